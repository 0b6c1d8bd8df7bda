"""Workload: request a run, a conference, a session plan or unattended runs, bring it to rest, and return its
outcome.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from app import bootstrap, errors
from app.crash_lab import outcomes, unattended
from app.domain import plans, states
from app.services import conferences, requests
from app.services.plans import requests as plan_requests

KEY = "crashtest"  # Idempotency key of all requests of the laboratory, and session of its runs.
Asked: TypeAlias = requests.StartRequest | conferences.NewConference | plan_requests.NewPlan | unattended.Unattended
"""The request."""
Pause = Callable[[], Awaitable[None]]  # Waits until a disk may have space again.

_WAIT_SECONDS = 10.0
_TRIES = 40
_PASSING = ("revision", "attempt", "run_id", "chief_run_id", "earlier_runs")
"""Fields of a plan that depend on tries; runs are compared separately, whatever their ids."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The result of a request."""

    name: str  # The run or the plan.
    existed: bool  # Whether an earlier process had requested it.


def owned(asked: Asked) -> Asked:
    """Return the request in the form that every process uses: with one key, in one session, for the service."""
    if isinstance(asked, unattended.Unattended):
        return asked
    if isinstance(asked, plan_requests.NewPlan):
        return dataclasses.replace(asked, idempotency_key=KEY)
    return dataclasses.replace(asked, idempotency_key=KEY, session_id=asked.session_id or KEY, owner="service")


def placed(asked: Asked, place: Path) -> Asked:
    """Return the request for an experiment's own folder."""
    return dataclasses.replace(asked, place=place) if isinstance(asked, unattended.Unattended) else asked


def title(asked: Asked) -> str:
    """Return its name in reports."""
    match asked:
        case plan_requests.NewPlan():
            return "plan"
        case conferences.NewConference():
            return "conference"
        case unattended.Unattended():
            return f"{asked.request.recipe_id}, {unattended.NAME}"
    return asked.recipe_id or ""


async def begin(application: bootstrap.Application, asked: Asked, pause: Pause) -> Begun:
    """Request it, or find it; repeat the request as long as the disk has no space."""
    match asked:
        case plan_requests.NewPlan():
            created = await _tried(lambda: application.plans.create(asked), pause)
            return Begun(name=created.plan.session_id, existed=created.existed)
        case conferences.NewConference():
            held = await _tried(lambda: application.conferences.start(asked), pause)
            return Begun(name=held.run_id, existed=held.existed)
        case unattended.Unattended():
            # An unattended workload has several requests, and so no run or plan that would name it.
            return Begun(name=unattended.NAME, existed=True)
    started = await _tried(lambda: application.runs.start(asked), pause)
    return Begun(name=started.run_id, existed=started.existed)


async def rest(application: bootstrap.Application, asked: Asked, name: str, pause: Pause) -> None:
    """Wait until it has ended, or waits for a person; approve and start a plan on the way."""
    if isinstance(asked, plan_requests.NewPlan):
        await _plan_rests(application, name, pause)
    elif isinstance(asked, unattended.Unattended):
        await unattended.rest(application, asked, lambda ask: _tried(ask, pause), run_rests, pause)
    else:
        await run_rests(application, name)


async def run_rests(application: bootstrap.Application, run_id: str) -> bool:
    """Wait until a run has ended, or is parked for a person; return whether it has ended."""
    known: frozenset[str] = frozenset()
    while True:
        ready = await application.runs.polls.answer(run_id, _WAIT_SECONDS, known)
        shown = json.loads(ready.body)
        healing = (shown["error"] or {}).get("code") == errors.StorageFault.default_code
        if ready.finished or (shown["status"] == states.RunState.PAUSED.value and not healing):
            return ready.finished
        known = frozenset({ready.etag})


async def outcome(application: bootstrap.Application, asked: Asked, name: str) -> outcomes.Outcome:
    """Return its outcome, as the service shows it."""
    if isinstance(asked, unattended.Unattended):
        return await unattended.outcome(application, asked)
    if not isinstance(asked, plan_requests.NewPlan):
        return await outcomes.of_run(application, name)
    plan = await application.plans.show(name)
    for run_id in _runs_of(plan):
        # A plan may have the result of a run just before the run is shown as ended.
        await run_rests(application, run_id)
    runs = [await outcomes.of_run(application, run_id) for run_id in _runs_of(plan)]
    return outcomes.together(runs, _failures(plan)) | {"plan": _lasting(plan.to_json())}


async def _plan_rests(application: bootstrap.Application, session_id: str, pause: Pause) -> None:
    while True:
        # A plan that cannot be read now is read again.
        plan = await _tried(lambda: application.plans.rested(session_id), pause)
        running = [task.run_id for task in plan.tasks if task.status is plans.TaskState.RUNNING and task.run_id]
        running += [plan.chief_run_id] if plan.awaits_chief and plan.chief_run_id else []
        if running:
            ended = [await run_rests(application, run_id) for run_id in running]
            if not any(ended):
                return
            # The plan detects the end of its runs by itself.
            await _tried(partial(application.plans.wait, session_id, _WAIT_SECONDS, plan.revision), pause)
        elif plan.status is plans.PlanState.DRAFT and plan.tasks:
            await _ordered(lambda: application.plans.approve(session_id), pause)
        elif plan.status is plans.PlanState.APPROVED:
            await _ordered(lambda: application.plans.start(session_id), pause)
        else:
            return


def _runs_of(plan: plans.Plan) -> list[str]:
    named = (plan.chief_run_id, *(task.run_id for task in plan.tasks))
    return [run_id for run_id in named if run_id is not None]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in _PASSING and name[-3:] != "_at"}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


def _failures(plan: plans.Plan) -> set[str]:
    failed = plan.error is not None or any(task.error is not None for task in plan.tasks)
    return {"plan.failed"} if failed else set()


async def _ordered(order: Callable[[], Awaitable[object]], pause: Pause) -> None:
    # An order that only the journal had when the process died is carried out while the plan is inspected.
    with contextlib.suppress(errors.WrongState):
        await _tried(order, pause)


async def _tried(ask: Callable[[], Awaitable[T]], pause: Pause) -> T:
    for tried in range(_TRIES):
        try:
            return await ask()
        except (errors.WriteFailed, errors.StorageFault):
            if tried + 1 == _TRIES:
                raise
            await pause()
    raise AssertionError("not reached")
