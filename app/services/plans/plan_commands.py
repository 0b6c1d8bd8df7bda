"""Commands to plans: wait for plans on behalf of commands, and refuse commands while the data directory fails."""

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
    """Retries that a command has triggered, so that it does not wait for a second failure."""

    session_id: str  # The plan.
    tried_again: Waiting | None = None  # Wait whose fault the command has caused to be retried.
    hurried: bool = False  # Whether the run has already repeated its failed writes and reads for the command.
    taken_up: int = 0  # How often the run was loaded for the command.


class PlanCommands:
    """Waits for plans on behalf of commands."""

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
        """Return a plan that accepts its next input, with the content of its file.

        Raises:
            errors.NotFound, errors.Conflict: the plan does not exist, or its file cannot be read.
            errors.WriteFailed: the file cannot be written now.
            errors.Unavailable: `planner_broken`.
        """
        self._inputs.begins.add(session_id)
        self._inputs.broken.pop(session_id, None)
        command = Command(session_id)
        # The run and the file change on their own, so everything is read again after each wait.
        while True:
            # Taken before the read, so that a change between the read and the wait is not missed.
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
        """Return a new plan once its run has written its file; raises as `opened`."""
        command = Command(session_id)
        while True:
            news, waiting = self._repository.news(session_id), self._inputs.waiting.get(session_id)
            if waiting is not None and waiting.open is not None:
                return waiting.open
            if waiting is not None:
                self._refuse(command, waiting)
            await self.news(command, news)

    def following(self, session_id: str, opened: OpenPlan) -> asyncio.Future[plans.Plan]:
        """Return a future for the plan that results from an input; call this before the delivery."""
        return self._inputs.following(session_id, opened)

    async def after(self, session_id: str, opened: OpenPlan, following: asyncio.Future[plans.Plan]) -> plans.Plan:
        """Return the plan that results from an input, with the content of its file.

        Raises:
            errors.NotFound, errors.Conflict, errors.WriteFailed, errors.Unavailable: as `opened`.
        """
        command = Command(session_id)
        while not following.done():
            news, waiting = self._repository.news(session_id), self._inputs.waiting.get(session_id)
            if waiting is not None and waiting.key != opened.key:
                if waiting.open is not None:
                    # Another input was taken before the call of `following`, so its future will never be set.
                    return waiting.open.plan
                await self._repository.get(session_id)
                self._refuse(command, waiting)
            if not following.done():
                await self.news(command, news)
        return following.result()

    async def ended(self, session_id: str) -> None:
        """Wait until the run of a deleted plan has ended.

        Raises:
            errors.WriteFailed, errors.StorageFault, errors.Unavailable: the plan cannot be removed now.
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
        """Refuse a command if its plan's file cannot be read or written; an earlier fault is retried first."""
        self.check(command.session_id)
        if isinstance(waiting.fault, errors.StorageFault | errors.WriteFailed | errors.Unavailable):
            if command.tried_again is waiting:
                _raise_hindered(waiting.fault)
            waiting.fault = None
            waiting.bell.set()
        command.tried_again = waiting

    async def news(self, command: Command, news: asyncio.Event) -> None:
        """Wait until a plan may have changed; load its run first if the engine lacks it."""
        session_id, run_id = command.session_id, self._plan_runs.run_id(command.session_id)
        number, view = self._engine.change_number(run_id), self._engine.view(run_id)
        if not await self._tried_again(command):
            if view is not None and view.status is states.RunState.PAUSED:
                await self._plan_runs.renew(await self._repository.get(session_id))
                return
            if self._plan_runs.is_away(session_id) and not self._inputs.stopped.is_set():
                # The run could not be loaded, or has ended and is to be continued.
                await self._load(command)
                return
        await aio.wait_first(news.wait(), self._engine.changed(run_id, number), self._inputs.stopped.wait())
        if self._inputs.stopped.is_set():
            raise errors.Unavailable("the service is stopping; ask it again after its next start", code="stopping")

    async def _tried_again(self, command: Command) -> bool:
        """Let a run that waits for the data directory repeat its failed write or read, once for each command."""
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
            message = f"the run of the plan {command.session_id} cannot be loaded; see the log"
            raise errors.Unavailable(message, code="planner_broken")
        plan = await self._repository.find(command.session_id)
        await (self._plan_runs.wake(command.session_id) if plan is None else self._plan_runs.ensure(plan))


def _raise_hindered(fault: errors.ControlRoomError | errors.Fault) -> NoReturn:
    if isinstance(fault, errors.Unreadable):
        raise fault
    raise errors.WriteFailed(f"it cannot be written down now: {fault.message}")
