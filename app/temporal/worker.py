"""The worker: performs steps and drives workflows in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import FixedSizeSlotSupplier, PollerBehaviorSimpleMaximum, Replayer, Worker, WorkerTuner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from app.domain import capabilities
from app.temporal import codec, messages, worker_roster
from app.temporal.activities import Activities
from app.temporal.capacity import StepCapacity
from app.temporal.claim_workflow import ClaimWorkflow
from app.temporal.slices import Contents
from app.temporal.workflow import RunWorkflow

BEAT = timedelta(seconds=0.5)  # Longest time for which the SDK delays a heartbeat.
IDLE_BEAT = timedelta(seconds=2)  # The same for steps that only wait, of which there are many.

IDLE_STEPS = 200
"""Most steps that one worker performs at a time of those that only wait, e.g. for files; they take no capacity."""

_POLLERS = 2

TASK_TIMEOUT = timedelta(seconds=60)  # Longest time of a workflow task; a long journal is replayed in a single one.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The number and the kinds of steps that one worker performs."""

    queue: str  # Task queue of the store: its workflows, and their reads and writes of journals.
    placement: messages.Placement | None = None
    """This worker, if runs are placed on workers; None: workers share their workspaces."""
    serves: frozenset[str] = frozenset()  # Capabilities of the steps that it performs.
    services: frozenset[str] = frozenset()
    """Backends that are models behind HTTP, whose steps need no placed worker."""
    folder: str = ""  # Identity of the data directory in the folder that workers share; empty: no shared folder.
    steps: int = 8  # Most steps that it performs at the same time.
    grace_seconds: float = 10.0  # Grace period of open steps at a stop.


def runner() -> SandboxedWorkflowRunner:
    """Return the runner of workflows.

    Control Room's modules bypass the sandbox: import contracts keep clock, chance and I/O out of drivers, and loading
    all of them for each workflow takes longer than a workflow task may.
    """
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())


@asynccontextmanager
async def working(
    client: Client, activities: Activities, capacity: StepCapacity, limits: WorkerLimits
) -> AsyncIterator[None]:
    """Work during the block, then finish or cancel open steps."""
    shared: Any = {
        "client": client,
        "graceful_shutdown_timeout": timedelta(seconds=limits.grace_seconds),
    }
    tuner = WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(1),
        activity_supplier=capacity,
        local_activity_supplier=FixedSizeSlotSupplier(1),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )
    few: Any = {"activity_task_poller_behavior": PollerBehaviorSimpleMaximum(_POLLERS), **shared}
    entry = worker_roster.Entry(worker=_identity(limits), serves=limits.serves, folder=limits.folder)
    async with AsyncExitStack() as working:
        await working.enter_async_context(entry.listed(client, limits.queue))
        for queue, performs in _step_queues(activities, limits).items():
            await working.enter_async_context(
                Worker(task_queue=queue, activities=performs, tuner=tuner, **_beats(BEAT), **few)
            )
        for queue, answers in _other_queues(activities, limits).items():
            await working.enter_async_context(
                Worker(
                    task_queue=queue,
                    activities=answers,
                    max_concurrent_activities=IDLE_STEPS,
                    **_beats(IDLE_BEAT),
                    **few,
                )
            )
        if is_home(limits):
            await working.enter_async_context(
                Worker(
                    task_queue=limits.queue,
                    workflows=[RunWorkflow, ClaimWorkflow],
                    activities=activities.short(),
                    workflow_runner=runner(),
                    # Time after a kill until the workflows that this process had cached go to other workers.
                    sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
                    **_beats(BEAT),
                    **shared,
                )
            )
        yield


def is_home(limits: WorkerLimits) -> bool:
    """Return whether runs can be placed on this worker; if so, the worker also drives workflows."""
    return limits.placement is None or bool(limits.serves - _anywhere(limits))


def _beats(interval: timedelta) -> dict[str, Any]:
    return {"max_heartbeat_throttle_interval": interval, "default_heartbeat_throttle_interval": interval}


def _identity(limits: WorkerLimits) -> str:
    return "" if limits.placement is None else limits.placement.worker


def _anywhere(limits: WorkerLimits) -> frozenset[str]:
    return limits.serves & {capabilities.of_backend(name) for name in limits.services}


def _own_queue(limits: WorkerLimits) -> str:
    if limits.placement is None:
        return messages.steps_queue(limits.queue)
    return messages.worker_queue(limits.queue, limits.placement.worker)


def _step_queues(activities: Activities, limits: WorkerLimits) -> dict[str, list[Callable[..., Any]]]:
    own = _own_queue(limits)
    queues = {messages.capability_queue(own, each): [activities.perform] for each in limits.serves}
    common = messages.steps_queue(limits.queue)
    if own != common:
        queues |= {messages.capability_queue(common, each): [activities.perform] for each in _anywhere(limits)}
    return queues


def _other_queues(activities: Activities, limits: WorkerLimits) -> dict[str, list[Callable[..., Any]]]:
    queues: dict[str, list[Callable[..., Any]]] = {}
    if capabilities.TOOLS in limits.serves:
        queues[messages.idle_queue(_own_queue(limits))] = [activities.perform_idle]
    if limits.placement is not None:
        queues[messages.presence_queue(limits.queue, limits.placement.worker)] = [activities.show_presence]
    if limits.placement is not None and is_home(limits):
        # A run is placed on a worker that can perform its first step.
        queues |= {messages.placing_queue(limits.queue, each): [activities.place] for each in limits.serves}
    return queues


def replayer(contents: Contents) -> Replayer:
    """Return the replayer of histories against the present drivers and the store."""
    return Replayer(
        workflows=[RunWorkflow, ClaimWorkflow], workflow_runner=runner(), data_converter=codec.converter(contents)
    )
