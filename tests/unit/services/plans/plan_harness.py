"""The use cases of plans over a store in memory, a real pool and a scripted chief.

The process can be killed and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app import bootstrap, clock, errors, settings
from app.agents import backends
from app.agents import performer as agent_performer
from app.bootstrap import catalogue, container, definitions, roster
from app.domain import issues, operations, plain, plans, records
from app.engine import conversation_claims, ports, refusal_performers, stores
from app.engine.run_equipment import Equipment
from app.processes import supervisor
from app.services import requests as run_requests
from app.services.plans import requests
from app.storage import agent_sessions, memory_store
from app.tools import checks, workspace
from tests import examples
from tests.integration import planning
from tests.integration.project import Project
from tests.unit.services.plans import chores
from tests.unit.worker import pools, recording

T = TypeVar("T")

CHIEF = {"id": "chief-1", "archetype": "chief", "tier": "t3", "backend": "said", "role": "You are the chief."}
"""An agent that splits intents into tasks."""

Left = tuple[memory_store.MemoryStore, list[chores.Tried]]
"""The store that a crash left, and the tries before the crash."""


class Tools:
    """Search files for the chief, and carry out chores for all other runs."""

    def __init__(self, toolbox: chores.Toolbox, door: asyncio.Event) -> None:
        self._toolbox = toolbox
        self._door = door

    async def perform(self, call: ports.Call) -> records.Result:
        """Carry out one step."""
        if call.run.dialect == chores.CHORES.name:
            result = await self._toolbox.perform(call)
        else:
            result = records.Result(output={"matches": []}, summary="nothing found")
        await self._door.wait()
        return result


class Place:
    """A project whose recipes and agents are read once."""

    def __init__(self, root: Path, *, agents: Sequence[Mapping[str, Any]] = (CHIEF,)) -> None:
        self.project = make_project(root / "project", agents)
        """The project."""
        self.chosen = settings.load({}, project=self.project.root, home=self.project.root / "home")
        """Its settings."""
        self.people = roster.roster_of(self.chosen)
        """Its agents."""
        self.reference = definitions.definitions_of(self.chosen, self.people, chores.platform(chores.Toolbox()))
        """Its recipes."""

    def add_recipe(self, recipe: dict[str, Any]) -> None:
        """Write another chore."""
        self.project.write(f".control-room/recipes/chores/{recipe['recipe_id']}.json", json.dumps(recipe))

    def remove_recipe(self, recipe_id: str) -> None:
        """Remove a chore."""
        (self.project.data / "recipes" / "chores" / f"{recipe_id}.json").unlink()


class Harness:
    """A service over one disk, with a new process after each crash or restart."""

    def __init__(self, place: Place, *, limit: int = 8, time: clock.Clock | None = None) -> None:
        self.place = place
        self.toolbox = chores.Toolbox()
        self.door = asyncio.Event()
        """Event that holds back the result of every chore step and of the chief's search while it is not set."""
        self.door.set()
        self.clock: clock.Clock = time or clock.SystemClock()
        self.probes = recording.RecordingProbes()
        self.store = memory_store.MemoryStore(clock=self.clock, probes=self.probes)
        self.sessions = agent_sessions.MemoryAgentSessions()
        self.limit = limit
        self.application: bootstrap.Application
        """The use cases of the current process."""

    async def open(self, *, recover: bool = True) -> Harness:
        """Start a process.

        Args:
            recover: Whether the process is a service; False for that of a command.
        """
        await self.store.start(serve=recover)
        self.application = self._room()
        self.application.engine.start(recover=recover)
        self.application.planner.start(recover=recover)
        return self

    async def close(self) -> None:
        """Stop as a service does."""
        await soon(self.application.planner.stop())
        await soon(self.application.engine.stop(0))
        await self.store.close()

    def crash_when(self, point: str, nth: int, *, lose_unsynced: bool = False) -> asyncio.Future[Left]:
        """Crash the process at the nth passing of a point from now on, and return the future for `take_over`."""
        left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()

        def die() -> None:
            left.set_result((self.store.crashed(lose_unsynced=lose_unsynced), list(self.toolbox.performed)))

        self.probes.at(point, self.probes.count(point) + nth, die)
        return left

    async def take_over(self, left: asyncio.Future[Left]) -> None:
        """Wait for a crash and end the tasks that survived it; tries after the crash are not counted."""
        self.store, performed = await soon(left)
        await pools.abandon()
        self.toolbox.performed[:] = performed
        self.toolbox.busy.clear()

    async def dies(self, left: asyncio.Future[Left], acting: asyncio.Future[Any]) -> bool:
        """Wait for a crash as `take_over` does; return False if the action ends without a crash.

        Commits share a sync when they overlap, so that one process may pass a point less often than another.
        """
        either: set[asyncio.Future[Any]] = {left, acting}
        await soon(asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED))
        if not left.done():
            return False
        await self.take_over(left)
        await over(acting)
        return True

    async def crash(self) -> None:
        """Crash at once."""
        store = self.store.crashed()
        await pools.abandon()
        self.store = store
        self.toolbox.busy.clear()

    async def restart(self, *, recover: bool = True) -> Harness:
        """Start a new process over the contents of the disk."""
        self.probes = recording.RecordingProbes()
        left = self.store
        self.store = memory_store.MemoryStore(clock=self.clock, probes=self.probes, disk=left.disk, index=left.index)
        return await self.open(recover=recover)

    # -- plans

    async def create(self, *tasks: requests.NewTask, **fields: Any) -> str:
        """Create a plan and return its id."""
        return (await self.application.plans.create(requests.NewPlan(tasks=tasks, **fields))).plan.session_id

    async def started(self, *tasks: requests.NewTask, **fields: Any) -> str:
        """Create a plan, approve and start it."""
        session_id = await self.create(*tasks, **fields)
        await self.application.plans.approve(session_id)
        await self.application.plans.start(session_id)
        return session_id

    def start_soon(self, session_id: str) -> asyncio.Task[plans.Plan]:
        """Begin to start a plan."""
        return asyncio.create_task(self.application.plans.start(session_id))

    async def resume(self, run_id: str) -> None:
        """Resume a run by hand."""
        await self.application.runs.resume(run_id, run_requests.ResumeRequest())

    async def show(self, session_id: str) -> plans.Plan:
        """Return a plan."""
        return await self.application.plans.show(session_id)

    async def task(self, session_id: str, task_id: int) -> plans.Task:
        """Return a task of a plan."""
        found = (await self.show(session_id)).task(task_id)
        assert found is not None
        return found

    async def rested(self, session_id: str) -> plans.Plan:
        """Wait until a plan is at rest."""
        return await soon(self.application.plans.rested(session_id))

    async def until(self, session_id: str, holds: Callable[[plans.Plan], bool]) -> plans.Plan:
        """Wait until a condition holds for a plan."""
        return await soon(self._until(session_id, holds))

    async def comes_to(self, session_id: str, **statuses: str) -> plans.Plan:
        """Wait until tasks, given as `t1="done"`, are in these states; a running task has its run by then."""

        def holds(plan: plans.Plan) -> bool:
            named = (each.run_id for each in plan.tasks if statuses.get(f"t{each.id}") == "running")
            return {**stand(plan), **statuses} == stand(plan) and None not in named

        return await self.until(session_id, holds)

    async def runs(self) -> list[str]:
        """Return the state of every run, oldest first."""
        found = await self.application.runs.list_runs(stores.RunQuery(limit=1000))
        return [row.status for row in reversed(found)]

    async def run_ids(self) -> list[str]:
        """Return the ids of all runs."""
        return [row.run_id for row in await self.application.runs.list_runs(stores.RunQuery(limit=1000))]

    async def issues(self) -> list[issues.IssueSummary]:
        """Return all issues."""
        found, _ = await self.application.issues.page(issues.IssueQuery())
        return found

    def put(self, session_id: str, content: dict[str, Any]) -> None:
        """Write a plan's file by hand."""
        self.store.disk.add_folder(f"sessions/{session_id}")
        path = f"sessions/{session_id}/plan.json"
        self.store.disk.write(path, json.dumps(content).encode(), sync=True)

    async def _until(self, session_id: str, holds: Callable[[plans.Plan], bool]) -> plans.Plan:
        while True:
            plan = await self.show(session_id)
            if holds(plan):
                return plan
            await asyncio.sleep(0)

    def _room(self) -> bootstrap.Application:
        place = self.place
        pool = dataclasses.replace(place.chosen.pool, max_running=self.limit)
        chosen = dataclasses.replace(place.chosen, pool=pool)
        platform = dataclasses.replace(chores.platform(self.toolbox), clock=self.clock, probes=self.probes)
        conversations = conversation_claims.ConversationClaims(self.sessions, self.store, platform.drivers)
        programs = supervisor.Supervisor(place.project.data / "processes", platform.ids, {})
        around = catalogue.backend_context_of(chosen, self.clock, programs, self.sessions)
        asking = agent_performer.AgentPerformer(backends.Backends(place.people.backends, around), conversations)
        workspaces = workspace.Workspaces([place.project.root])
        performers: dict[str, ports.Performer] = {
            operations.ToolCall.kind: Tools(self.toolbox, self.door),
            operations.AgentCall.kind: asking,
            operations.CheckEvidence.kind: checks.EvidencePerformer(workspaces, self.store.prove_receipt),
            operations.Refusal.kind: refusal_performers.RefusalPerformer(),
        }
        equipment = Equipment(
            performers=performers, clock=self.clock, masker=plain.Masker(), probes=self.probes, environ={}
        )
        return container._application(
            chosen, platform, place.reference, equipment, self.store, conversations, self.sessions, programs
        )


def make_project(root: Path, agents: Sequence[Mapping[str, Any]]) -> Project:
    """Create a project whose recipes are chores, and whose agents reply from a script."""
    project = planning.make_project(root)
    backends = {"said": {"type": "scripted", "file": "replies.json"}}
    project.write(".control-room/agents.json", json.dumps({"agents": list(agents), "backends": backends}))
    return project


def task(description: str, *deps: int, **fields: Any) -> requests.NewTask:
    """Return a task for a request."""
    return requests.NewTask(description=description, deps=deps, **fields)


def intended(intent: str, key: str | None = None) -> requests.NewPlan:
    """Return a request for a plan that the chief makes."""
    return requests.NewPlan(intent=intent, idempotency_key=key)


def stand(plan: plans.Plan) -> dict[str, str]:
    """Return the states of a plan's tasks, as `t1`, `t2`, …."""
    return {f"t{each.id}": each.status.value for each in plan.tasks}


def says(*tasks: dict[str, Any]) -> str:
    """Return a reply of the chief."""
    return json.dumps({"tasks": [{"deps": [], "dod": "it is done", **each} for each in tasks]})


def judges(verdict: str, evidence: str = '"work of" (output:work)', **fields: Any) -> str:
    """Return the chief's verdict on a task; by default with evidence that every chore leaves."""
    given = {"verdict": verdict, "why": f"it is {verdict}", "evidence": f"Evidence: {evidence}", "proposals": []}
    return json.dumps(given | fields)


async def soon(awaited: Awaitable[T]) -> T:
    """Wait for an awaitable for a minute at most."""
    return await asyncio.wait_for(awaited, 60)


Begin = Callable[[], Awaitable[tuple[Harness, str]]]
"""Open a harness with a plan."""

Act = Callable[[Harness, str], Awaitable[Any]]
"""Bring a plan to its end, or check its state; after a crash it is called again."""


async def start_and_rest(harness: Harness, session_id: str) -> None:
    """Start an approved plan, and wait until it is at rest."""
    if (await harness.show(session_id)).status is plans.PlanState.APPROVED:
        # A start that was journalled before a crash may have brought the plan to its end by now.
        with contextlib.suppress(errors.WrongState):
            await harness.application.plans.start(session_id)
    await harness.rested(session_id)


def crash_points(passed_points: Sequence[str], lost: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return passings of points with these prefixes, at which to kill a process."""
    return examples.passings([point for point in passed_points if point.startswith(lost)])


async def crash_everywhere(begin: Begin, check: Act, lost: tuple[str, ...], act: Act = start_and_rest) -> set[str]:
    """Bring a plan to its end, and again with a crash at passings of every point: kill, restart, check.

    Args:
        lost: Prefixes of the points.

    Returns:
        The points at which a process died.
    """
    harness, session_id = await begin()
    await act(harness, session_id)
    points = crash_points(harness.probes.passed_points, lost)
    await check(harness, session_id)
    await harness.close()
    died: list[str] = []
    for point, nth in points:
        harness, session_id = await begin()
        left = harness.crash_when(point, nth)
        acting = asyncio.ensure_future(act(harness, session_id))
        if await harness.dies(left, acting):
            died.append(point)
            await harness.restart()
            await act(harness, session_id)
        else:
            await acting
        try:
            await check(harness, session_id)
        except AssertionError as error:
            error.add_note(f"killed at {point}, passing {nth}")
            raise
        await harness.close()
    assert len(died) > 0.8 * len(points)
    return set(died)


async def over(task: asyncio.Future[Any]) -> None:
    """Wait for a task to end, with any result."""
    await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    """Wait, turn by turn of the loop, until a condition holds."""
    await soon(_turning(holds))


async def _turning(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - one turn of the loop at a time, no time passes
        await asyncio.sleep(0)
