"""The planner for runs of plans that workers execute: it reads plans from their journals and files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from app import clock, errors
from app.domain import plain, plan_events, plans, runs, states
from app.engine import aio, outages, run_engine, stores
from app.services.plans.plan_commands import PlanCommands
from app.services.plans.plan_inputs import OpenPlan, PlanInputs
from app.services.plans.plan_runs import PlanRuns
from app.services.plans.planner import Planner
from app.services.plans.repository import PlanRepository

LOOK_SECONDS = 0.25  # Longest time between two checks of a plan that a caller waits for.
KEEP_SECONDS = 60.0  # Time between two checks of all plans, to find those that an ended process has left.
ANSWER_SECONDS = 45.0  # Longest time for which an order waits for a worker.

_HURRY_SECONDS = 2.0

_log = logging.getLogger(__name__)


class SharedEngine(run_engine.RunEngine, Protocol):
    """An engine whose runs other processes execute, too."""

    rest_listeners: list[Callable[[runs.RunStart], object]]
    """Called when a run comes to rest in this process, or waits for an input."""

    async def open_input(self, run_id: str) -> tuple[str, plain.Json] | None:
        """Return the input that a run waits for, with the data that it shows; None if it waits for none now."""


class SharedCommands(PlanCommands):
    """Waits for plans whose files workers write."""

    def __init__(
        self,
        *,
        repository: PlanRepository,
        plan_runs: PlanRuns,
        inputs: PlanInputs,
        engine: SharedEngine,
        store: stores.RunStore,
        clock: clock.Clock,
    ) -> None:
        super().__init__(repository=repository, plan_runs=plan_runs, inputs=inputs, engine=engine)
        self._shared = engine
        self._store = store
        self._clock = clock

    async def opened(self, session_id: str) -> OpenPlan:
        """Return a plan that accepts its next input, with the content of its file; raises as `PlanCommands.opened`."""
        await self._plan_runs.ensure(await self._repository.get(session_id))
        return await self._other_than(session_id, None)

    async def shown(self, session_id: str) -> OpenPlan:
        """Return a plan once its run has written its file; raises as `opened`."""
        return await self._other_than(session_id, None)

    def following(self, session_id: str, opened: OpenPlan) -> asyncio.Future[plans.Plan]:
        """Return a future that is never set, since the journal shows the result."""
        return asyncio.get_running_loop().create_future()

    async def after(self, session_id: str, opened: OpenPlan, following: asyncio.Future[plans.Plan]) -> plans.Plan:
        """Return the plan that results from an input, with the content of its file; raises as `opened`."""
        return (await self._other_than(session_id, opened)).plan

    async def ended(self, session_id: str) -> None:
        """Wait until the run of a deleted plan has ended; raises as `opened`."""
        await aio.wait_first(self._plan_runs.ended(session_id), self._clock.sleep(ANSWER_SECONDS))
        if not await self._has_ended(session_id):
            raise _unanswered(session_id)

    async def _other_than(self, session_id: str, known: OpenPlan | None) -> OpenPlan:
        began = hurried = self._clock.monotonic()
        while True:
            run_id = self._plan_runs.run_id(session_id)
            number = self._engine.change_number(run_id)
            found = await self._shared.open_input(run_id)
            if (opened := await self._published(session_id, found)) is not None and opened != known:
                return opened
            if found is None:
                await self._continue(session_id)
            now = self._clock.monotonic()
            if now - began > ANSWER_SECONDS:
                raise _unanswered(session_id)
            if now - hurried > _HURRY_SECONDS:
                # A person may have changed the plan's file.
                hurried = now
                await self._plan_runs.wake(session_id)
            await aio.wait_first(self._engine.changed(run_id, number), self._clock.sleep(LOOK_SECONDS))

    async def _published(self, session_id: str, found: tuple[str, plain.Json] | None) -> OpenPlan | None:
        kept = await self._repository.find(session_id)
        if kept is None and (
            await self._repository.was_removed(session_id) or await self._repository.was_lost(session_id)
        ):
            await self._repository.get(session_id)
        if found is None or kept is None:
            return None
        key, shown = found[0], plan_events.Shown.from_json(found[1])
        if shown.is_removal or shown.is_last or shown.plan != kept:
            return None
        return OpenPlan(key=key, plan=shown.plan)

    async def _continue(self, session_id: str) -> None:
        """Continue a plan whose run has ended, or cannot continue with the present version."""
        plan = await self._repository.find(session_id)
        if plan is not None and await self._has_ended(session_id):
            await self._plan_runs.ensure(plan)
        elif plan is not None and await self._state(session_id) is states.RunState.PAUSED:
            await self._plan_runs.renew(plan)

    async def _has_ended(self, session_id: str) -> bool:
        state = await self._state(session_id)
        return state is not None and state.finished

    async def _state(self, session_id: str) -> states.RunState | None:
        try:
            return states.RunState((await self._store.summary(self._plan_runs.run_id(session_id))).status)
        except errors.NotFound:
            return None


class SharedPlanner(Planner):
    """Ensures that every plan has a run that can continue, which workers execute."""

    def _wake(self, session_id: str, *, begins: bool) -> None:
        if self._works:
            self._begin(self._ensured(session_id), session_id)

    def _notice(self, plan: plans.Plan) -> None:
        # A worker reads the plan's file, and so does the next check of all plans.
        return

    async def _written(self, news: asyncio.Event) -> None:
        await aio.wait_first(news.wait(), self._clock.sleep(LOOK_SECONDS))

    async def _recover(self) -> None:
        outage = outages.Outage(_log, "plans are not listed: %s", "plans are listed again")
        while self._works:
            try:
                await self._wake_all(partial=True)
                outage.worked()
            except errors.StorageFault as fault:
                outage.failed(fault.message)
            await self._clock.sleep(KEEP_SECONDS)

    async def _may_be_behind(self, plan: plans.PlanSummary) -> bool:
        # A worker repeats the work that another one has not finished.
        return False

    async def _ensured(self, session_id: str) -> None:
        try:
            plan = await self._repository.find(session_id)
            await (self._plan_runs.wake(session_id) if plan is None else self._plan_runs.ensure(plan))
        except (errors.ControlRoomError, errors.StorageFault) as error:
            # The plan is checked again with all others.
            _log.warning("the plan waits: %s", error.message, extra={"session_id": session_id, "code": error.code})


def _unanswered(session_id: str) -> errors.Unavailable:
    message = f"no worker has carried the plan {session_id} on in {ANSWER_SECONDS:g} s: is one running?"
    return errors.Unavailable(message, code="planner_broken")
