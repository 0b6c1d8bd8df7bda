"""The planner: lets the runs of plans wait for their inputs, and returns plans with the states of their runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from app import clock, errors
from app.domain import plans, runs
from app.engine import aio
from app.flows.session_plan import rules
from app.services.plans.facts import Facts
from app.services.plans.plan_commands import Command, PlanCommands
from app.services.plans.plan_inputs import FIRST_PAUSE_SECONDS, PlanInputs, longer, running
from app.services.plans.plan_runs import PlanRuns
from app.services.plans.repository import PlanRepository
from app.services.runs import Runs

_PAGE = 1000
_KEY = "plan:"
_EDIT_SECONDS = 5.0  # Longest time for which a reader waits for the run of a plan to take an edit of its file.
_LOOK_SECONDS = 0.1

_log = logging.getLogger(__name__)


class Planner:
    """Watches over the runs of plans; only the owner of the data directory starts it."""

    def __init__(
        self,
        *,
        repository: PlanRepository,
        plan_runs: PlanRuns,
        inputs: PlanInputs,
        commands: PlanCommands,
        facts: Facts,
        runs: Runs,
        clock: clock.Clock,
    ) -> None:
        self._repository = repository
        self._plan_runs = plan_runs
        self._facts = facts
        self._runs = runs
        self.inputs = self._inputs = inputs
        """Inputs for the runs of plans."""
        self.commands = commands
        """Waits for plans on behalf of commands."""
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._works = False
        inputs.notify_full = lambda session_id: self._begin(self._continued(session_id), session_id)

    # -- start and stop

    def start(self, *, recover: bool = True) -> None:
        """Begin to work, unless the planner already works.

        Args:
            recover: Whether this process is the service, which continues every plan; any other process continues only
                plans that it is asked to continue, and notes the results of other runs.
        """
        if self._works or self._inputs.stopped.is_set():
            return
        self._works = True
        self._inputs.begins_all = recover
        self._runs.started_listeners.listen_to_sessions(self.note)
        if recover:
            self._repository.seen = self._notice
            self._begin(self._recover(), "")

    async def stop(self) -> None:
        """Stop, and wait for the end; no further work begins, and all of it can continue later."""
        if self._works:
            self._works = False
            self._runs.started_listeners.forget(self.note)
        await self._inputs.stop()
        for task in self._tasks:
            task.cancel()
        # A task that ends may begin another one.
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def works(self) -> bool:
        """Return whether the planner was started and not stopped."""
        return self._works

    def check(self, session_id: str | None = None) -> None:
        """Refuse a command when the work on its plan, or on all plans, has broken down.

        Raises:
            errors.Unavailable: `planner_broken`; the log has the cause.
        """
        self.commands.check(session_id)

    # -- plans

    def wake(self, session_id: str) -> None:
        """Check a plan that may be able to continue."""
        self._wake(session_id, begins=True)

    def let_begin(self, session_id: str) -> None:
        """Let this process start the tasks of a plan, and its chief."""
        self._inputs.begins.add(session_id)

    def _wake(self, session_id: str, *, begins: bool) -> None:
        if not self._works:
            return
        if begins:
            self._inputs.begins.add(session_id)
        self._inputs.broken.pop(session_id, None)
        if (waiting := self._inputs.waiting.get(session_id)) is not None:
            waiting.bell.set()
            return
        self._begin(self._ensured(session_id), session_id)

    def note(self, start: runs.RunStart) -> None:
        """Check the plan of a run that has started, or has come to rest, if it has one."""
        if start.session_plan_task_id is not None or (start.idempotency_key or "").startswith(_KEY):
            self._wake(start.session_id, begins=False)

    def _notice(self, plan: plans.Plan) -> None:
        """Let a plan take a person's edit of its file as soon as a caller reads it."""
        session_id, waiting = plan.session_id, self._inputs.waiting.get(plan.session_id)
        if waiting is not None:
            if waiting.open is not None and waiting.open.plan != plan:
                waiting.bell.set()
        elif self._plan_runs.is_away(session_id) and not rules.is_settled(plan):
            self.wake(session_id)

    def _begin(self, work: Any, session_id: str) -> None:
        task = asyncio.create_task(work, name=f"plan {session_id}")
        self._tasks.add(task)
        task.add_done_callback(lambda over: self._ended(session_id, over))

    def _ended(self, session_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = aio.failure(task)
        if error is not None and not isinstance(error, errors.InterruptionFault):
            self._inputs.note_broken(session_id, error)

    # -- waits

    async def current(self, session_id: str) -> plans.Plan:
        """Return a plan once its run, if this process has it, has taken the content of its file.

        A person's edit may claim what only the run decides, such as the state of a task. If the run does not take it
        within seconds, the content of the file is returned.

        Raises:
            errors.NotFound, errors.Conflict: the plan does not exist or cannot be read.
        """
        until = self._clock.monotonic() + _EDIT_SECONDS
        while True:
            news = self._repository.news(session_id)
            plan = await self._repository.get(session_id)
            if self._inputs.is_own(plan):
                return plan
            waiting = self._inputs.waiting.get(session_id)
            hindered = self._inputs.stopped.is_set() or session_id in self._inputs.broken
            hindered = hindered or (waiting.fault is not None if waiting else self._plan_runs.is_away(session_id))
            if hindered or not self._works or self._clock.monotonic() > until:
                return plan
            await aio.wait_first(self._written(news), self._clock.sleep(_LOOK_SECONDS))

    async def has_taken(self, plan: plans.Plan) -> bool:
        """Return whether the run of a plan has written or taken the content of the plan's file."""
        return await self._plan_runs.has_taken(plan)

    def as_taken(self, summary: plans.PlanSummary) -> plans.PlanSummary:
        """Return the list entry of a plan as its run last wrote it, if this process has it; a file may be edited."""
        waiting = self._inputs.waiting.get(summary.session_id)
        known = None if waiting is None or summary.error is not None else waiting.open
        return summary if known is None else plans.summary(known.plan)

    async def changed(self, session_id: str, seconds: float, known: int | None) -> plans.Plan:
        """Return a plan as soon as its revision differs from the known one; return a plan at rest at once.

        Args:
            seconds: Longest wait.
            known: Revision that the caller has; None: the present one.

        Raises:
            errors.NotFound, errors.Conflict: the plan does not exist or cannot be read.
        """
        until = self._clock.monotonic() + seconds
        released = asyncio.ensure_future(self._runs.stopping.wait())
        try:
            while True:
                # Taken before the read, so that a change in between ends the wait.
                news = self._repository.news(session_id)
                plan = await self.current(session_id)
                left, known = until - self._clock.monotonic(), plan.revision if known is None else known
                if plan.revision != known or rules.is_settled(plan) or left <= 0 or released.done():
                    return plan
                # An announced change may have been read before its announcement.
                await aio.wait_first(self._written(news), self._clock.sleep(left), asyncio.wait([released]))
        finally:
            released.cancel()

    async def rested(self, session_id: str) -> plans.Plan:
        """Return a plan when none of its runs executes or can start on its own, or when the planner stops.

        A run that is paused or waits for a person does not execute.

        Raises:
            errors.NotFound, errors.Conflict: the plan does not exist or cannot be read.
            errors.Unavailable: `planner_broken`.
        """
        released = asyncio.ensure_future(self._runs.stopping.wait())
        try:
            while True:
                news = self._repository.news(session_id)
                plan = await self._repository.get(session_id)
                self.check(session_id)
                changes = [(run_id, self._facts.number(run_id)) for run_id in running(plan)]
                if released.done() or not self._works or await self._rests(plan):
                    return plan
                await aio.wait_first(
                    self._written(news), asyncio.wait([released]), *(self._facts.changed(*change) for change in changes)
                )
        finally:
            released.cancel()

    async def _written(self, news: asyncio.Event) -> None:
        await news.wait()

    async def _rests(self, plan: plans.Plan) -> bool:
        if rules.is_settled(plan):
            return True
        under_way = running(plan)
        # A running task without a run is about to get one.
        if not under_way or any(task.run_id is None for task in plan.tasks if task.status is plans.TaskState.RUNNING):
            return False
        for run_id in under_way:
            if not await self._facts.rests(run_id):
                return False
        return True

    # -- plans of an earlier process

    async def _recover(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while self._works:
            try:
                await self._wake_all()
            except errors.StorageFault as fault:
                _log.error("plans not listed: %s", fault.message, extra={"code": fault.code})
                with contextlib.suppress(errors.StorageFault):
                    # The other plans need not wait for a file that cannot be read now.
                    await self._wake_all(partial=isinstance(fault, errors.Unreadable))
                await self._clock.sleep(pause)
                pause = longer(pause)
            else:
                return

    async def _wake_all(self, *, partial: bool = False) -> None:
        cursor: tuple[str, str] | None = None
        listed = set[str]()
        while True:
            page = await self._repository.page(plans.PlanQuery(limit=_PAGE, cursor=cursor, partial=partial))
            for summary in page:
                listed.add(summary.session_id)
                if _may_go_on(summary) or await self._may_be_behind(summary):
                    self.wake(summary.session_id)
            if len(page) < _PAGE:
                break
            cursor = (page[-1].created_at, page[-1].session_id)
        for session_id in await self._plan_runs.unfinished() - listed:
            # An interrupted deletion leaves a run without a file.
            if await self._repository.was_removed(session_id):
                self.wake(session_id)

    async def _may_be_behind(self, plan: plans.PlanSummary) -> bool:
        # An order is in the journal at once, and in the file only later: a plan that is shown as a draft, approved or
        # paused may have been started just before the end of the process.
        is_over = plan.tasks.keys() == {plans.TaskState.DONE.value}
        return not is_over and await self._plan_runs.has_run(plan.session_id)

    async def _ensured(self, session_id: str) -> None:
        pause: float | None = None
        while self._works:
            try:
                plan = await self._repository.find(session_id)
                if plan is not None:
                    await self._plan_runs.ensure(plan)
                    await self._until_waiting(session_id)
                elif await self._repository.was_removed(session_id):
                    await self._plan_runs.wake(session_id)
            except (errors.Conflict, errors.WriteFailed, errors.Unavailable, errors.StorageFault) as error:
                pause = self._inputs.hindered(session_id, error, pause)
                await aio.wait_first(self._clock.sleep(pause), self._inputs.stopped.wait())
            else:
                return

    async def _continued(self, session_id: str) -> None:
        await self._plan_runs.ended(session_id)
        await self._ensured(session_id)

    async def _until_waiting(self, session_id: str) -> None:
        # A run that an older version began may have to be replaced first.
        command = Command(session_id)
        while self._works and session_id not in self._inputs.waiting:
            await self.commands.news(command, self._repository.news(session_id))


def _may_go_on(plan: plans.PlanSummary) -> bool:
    # A run of a failed task may have been resumed by hand just before the end of the process.
    waiting = (plans.TaskState.RUNNING.value, plans.TaskState.FAILED.value)
    return plan.status == plans.PlanState.RUNNING or not plan.tasks or any(state in plan.tasks for state in waiting)
