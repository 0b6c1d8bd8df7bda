"""Commands to plans: what they wait for, and how they are refused while the data directory fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NoReturn

from app import errors
from app.domain import plans, states
from app.engine import aio, run_engine
from app.services.plans.plan_inputs import OpenPlan, PlanInputs, Waiting
from app.services.plans.plan_runs import PlanRuns
from app.services.plans.repository import PlanRepository

_MOST_LOADS = 10


@dataclass(slots=True)
class Command:
    """What a command has had tried again, so that it waits for nothing that fails again."""

    session_id: str  # The plan.
    tried_again: Waiting | None = None  # Wait for an input whose fault was tried again.
    hurried: bool = False  # Whether the run has repeated what failed.
    taken_up: int = 0  # How often the run was loaded.


class PlanCommands:
    """Wait for plans on behalf of commands."""

    def __init__(
        self, *, repository: PlanRepository, plan_runs: PlanRuns, inputs: PlanInputs, engine: run_engine.RunEngine
    ) -> None:
        self._repository = repository
        self._plan_runs = plan_runs
        self._inputs = inputs
        self._engine = engine

    def check(self, session_id: str | None = None) -> None:
        """Refuse a command when the work on its plan, or on all plans, has broken down.

        Raises:
            errors.Unavailable: `planner_broken`; the log has the cause.
        """
        broken = self._inputs.broken if session_id is None else self._inputs.broken.keys() & {session_id, ""}
        if broken:
            names = ", ".join(sorted(name or "all plans" for name in broken))
            raise errors.Unavailable(f"the planner failed on {names}; see the log", code="planner_broken")

    async def opened(self, session_id: str) -> OpenPlan:
        """Return a plan that takes its next input, as its file has it now.

        Raises:
            errors.NotFound, errors.Conflict: there is no such plan, or its file cannot be read.
            errors.DiskFull: it cannot be written now.
            errors.Unavailable: `planner_broken`.
        """
        self._inputs.begins.add(session_id)
        self._inputs.broken.pop(session_id, None)
        command = Command(session_id)
        # The run and the file change by themselves, so everything is looked at anew after each wait.
        while True:
            # Taken before the look: a change between the look and the wait is then not missed.
            news, waiting = self._repository.news(session_id), self._inputs.waiting.get(session_id)
            kept = await self._repository.get(session_id)
            known = waiting.open if waiting is not None else None
            if known is not None and known.plan == kept:
                return known
            if waiting is None:
                await self._plan_runs.ensure(kept)
            else:
                self._refuse(command, waiting)
                waiting.open = None
                waiting.bell.set()
            await self.news(command, news)

    async def shown(self, session_id: str) -> OpenPlan:
        """Return a plan once its run has written its file; as `opened`, of a plan that has just been made."""
        command = Command(session_id)
        while True:
            news, waiting = self._repository.news(session_id), self._inputs.waiting.get(session_id)
            if waiting is not None and waiting.open is not None:
                return waiting.open
            if waiting is not None:
                self._refuse(command, waiting)
            await self.news(command, news)

    def following(self, session_id: str, opened: OpenPlan) -> asyncio.Future[plans.Plan]:
        """Return what will hold the plan that comes of an input; to be asked for before that is delivered."""
        return self._inputs.following(session_id, opened)

    async def after(self, session_id: str, opened: OpenPlan, following: asyncio.Future[plans.Plan]) -> plans.Plan:
        """Return the plan that comes of an input, as its file has it then.

        Raises:
            errors.NotFound, errors.Conflict, errors.DiskFull, errors.Unavailable: as `opened`.
        """
        command = Command(session_id)
        while not following.done():
            news, waiting = self._repository.news(session_id), self._inputs.waiting.get(session_id)
            if waiting is not None and waiting.key != opened.key:
                if waiting.open is not None:
                    # Another input was taken before `following` was asked for: nothing will set it.
                    return waiting.open.plan
                await self._repository.get(session_id)
                self._refuse(command, waiting)
            if not following.done():
                await self.news(command, news)
        return following.result()

    async def ended(self, session_id: str) -> None:
        """Wait until the run of a plan that is deleted has ended.

        Raises:
            errors.DiskFull, errors.StorageFault, errors.Unavailable: it cannot be removed now.
        """
        command, ended = Command(session_id), asyncio.ensure_future(self._plan_runs.ended(session_id))
        try:
            while not ended.done():
                news, waiting = self._repository.news(session_id), self._inputs.waiting.get(session_id)
                if waiting is not None:
                    self._refuse(command, waiting)
                run_id = self._plan_runs.run_id(session_id)
                number = self._engine.change_number(run_id)
                if not await self._tried_again(command) and self._plan_runs.is_away(session_id):
                    await self._plan_runs.wake(session_id)
                await aio.wait_first(asyncio.wait([ended]), news.wait(), self._engine.changed(run_id, number))
            ended.result()
        finally:
            ended.cancel()

    def _refuse(self, command: Command, waiting: Waiting) -> None:
        """Refuse a command whose plan's file cannot be read or written; a fault of before is tried again first."""
        self.check(command.session_id)
        if isinstance(waiting.fault, errors.StorageFault | errors.DiskFull | errors.Unavailable):
            if command.tried_again is waiting:
                _raise_hindered(waiting.fault)
            waiting.fault = None
            waiting.bell.set()
        command.tried_again = waiting

    async def news(self, command: Command, news: asyncio.Event) -> None:
        """Wait until there may be something new of a plan; a run that the engine lacks is loaded first."""
        session_id, run_id = command.session_id, self._plan_runs.run_id(command.session_id)
        number, view = self._engine.change_number(run_id), self._engine.view(run_id)
        if not await self._tried_again(command):
            if view is not None and view.status is states.RunState.PAUSED:
                await self._plan_runs.renew(await self._repository.get(session_id))
                return
            if self._plan_runs.is_away(session_id) and not self._inputs.stopped.is_set():
                # It could not be loaded, or has ended and is to be continued.
                await self._load(command)
                return
        await aio.wait_first(news.wait(), self._engine.changed(run_id, number), self._inputs.stopped.wait())
        if self._inputs.stopped.is_set():
            raise errors.Unavailable("the service is stopping; ask it again after its next start", code="stopping")

    async def _tried_again(self, command: Command) -> bool:
        """Let a run that waits for the data directory repeat what failed, once for a command."""
        fault = self._plan_runs.obstacle(command.session_id)
        if fault is None:
            return False
        if command.hurried:
            _raise_hindered(fault)
        command.hurried = True
        await self._plan_runs.wake(command.session_id)
        return True

    async def _load(self, command: Command) -> None:
        command.taken_up += 1
        if command.taken_up > _MOST_LOADS:
            told = f"the run of the plan {command.session_id} cannot be loaded; see the log"
            raise errors.Unavailable(told, code="planner_broken")
        plan = await self._repository.find(command.session_id)
        await (self._plan_runs.wake(command.session_id) if plan is None else self._plan_runs.ensure(plan))


def _raise_hindered(fault: errors.ControlRoomError | errors.Fault) -> NoReturn:
    if isinstance(fault, errors.Unreadable):
        raise fault
    raise errors.DiskFull(f"it cannot be written down now: {fault.message}")
