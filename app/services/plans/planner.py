"""The planner: goes on with every plan that has something to go on with, each by a worker that waits for its runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

from app import clock, errors
from app.domain import plan_stores, plans, runs
from app.services import aio
from app.services.plans import advancing, rules
from app.services.plans.advancing import Advance
from app.services.plans.facts import Facts
from app.services.plans.repository import PlanRepository
from app.services.plans.rules import RunFact
from app.services.runs import RunStartedListeners

FIRST_PAUSE_SECONDS = 1.0
"""Time after which a plan is tried again that could not go on; it doubles from try to try."""

LONGEST_PAUSE_SECONDS = 30.0
"""Longest such time."""

_PAGE = 1000
_MOST_PASSES = 16
_KEY = "plan:"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Worker:
    begins: bool
    """Whether it may begin tasks, and not only look at those that have begun."""
    bell: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the plan is to be looked at."""
    watches: dict[str, asyncio.Task[RunFact]] = field(default_factory=dict)
    """Runs that are waited for."""
    resting: frozenset[str] = frozenset()
    """Runs that waited for a person at the last look, of those that are watched for it."""
    rests: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Runs that are watched for that to change, because tasks lack room."""


class Planner:
    """Work on plans; whoever starts it holds the data directory."""

    def __init__(
        self,
        *,
        repository: PlanRepository,
        advance: Advance,
        facts: Facts,
        started_listeners: RunStartedListeners,
        clock: clock.Clock,
    ) -> None:
        self._repository = repository
        self._advance = advance
        self._facts = facts
        self._started_listeners = started_listeners
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Semaphore(_MOST_PASSES)
        self._broken: dict[str, BaseException] = {}
        self._looking: asyncio.Task[None] | None = None
        self._works = self._serves = False
        self._stopped = asyncio.Event()

    # -- start and stop

    def start(self, *, recover: bool = True) -> None:
        """Begin to work; nothing when started already.

        Args:
            recover: Whether this process is the service, which goes on with every plan, in the background; another one
                goes on only with those that it is asked to, and notes of the others what becomes of their runs.
        """
        if self._works or self._stopped.is_set():
            return
        self._works = True
        self._serves = recover
        self._started_listeners.listen(self._note)
        if recover:
            self._looking = asyncio.create_task(self._look(), name="plans")
            self._looking.add_done_callback(lambda task: self._ended("", task))

    async def stop(self) -> None:
        """Stop, and wait for it: what is being written is finished, nothing more is begun. All can go on later."""
        self._stopped.set()
        if self._works:
            self._works = False
            self._started_listeners.forget(self._note)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def works(self) -> bool:
        """Tell whether it has been started and not been stopped."""
        return self._works

    # -- plans

    def look_at(self, session_id: str) -> None:
        """See to a plan that may have something to go on with."""
        self._wake(session_id, begins=True)

    def _wake(self, session_id: str, *, begins: bool) -> None:
        if not self._works:
            return
        worker = self._workers.get(session_id)
        if worker is not None:
            worker.begins |= begins
            worker.bell.set()
            return
        self._broken.pop(session_id, None)
        worker = self._workers[session_id] = _Worker(begins=begins)
        working = asyncio.create_task(self._work(session_id, worker), name=f"plan {session_id}")
        self._tasks.add(working)
        working.add_done_callback(lambda task: self._ended(session_id, task))

    def check(self, session_id: str | None = None) -> None:
        """Refuse to go on as if nothing had happened when the work on a plan, or on any, has broken down.

        Raises:
            errors.Unavailable: `planner_broken`; the log tells more.
        """
        broken = self._broken if session_id is None else self._broken.keys() & {session_id, ""}
        if broken:
            names = ", ".join(sorted(name or "all plans" for name in broken))
            raise errors.Unavailable(f"the planner broke over {names}; see the log", code="planner_broken")

    def _note(self, start: runs.RunStart) -> None:
        if start.session_plan_task_id is not None or (start.idempotency_key or "").startswith(_KEY):
            self._wake(start.session_id, begins=self._serves)

    def _ended(self, session_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broken[session_id] = error
            facts = {"session_id": session_id}
            self._repository.tell(session_id)
            _log.critical("the planner broke over %s", session_id or "all plans", exc_info=error, extra=facts)

    # -- what an earlier life has left

    async def _look(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while self._works:
            try:
                await self._look_through()
            except errors.StorageFault as fault:
                _log.error("plans not listed: %s", fault.message, extra={"code": fault.code})
                with contextlib.suppress(errors.StorageFault):
                    # The others need not wait for a file that cannot be read now.
                    await self._look_through(partial=isinstance(fault, errors.Unreadable))
                await self._clock.sleep(pause)
                pause = _longer(pause)
            else:
                return

    async def _look_through(self, *, partial: bool = False) -> None:
        cursor: tuple[str, str] | None = None
        while True:
            page = await self._repository.page(plans.PlanQuery(limit=_PAGE, cursor=cursor, partial=partial))
            for summary in page:
                if _may_go_on(summary):
                    self.look_at(summary.session_id)
            if len(page) < _PAGE:
                return
            cursor = (page[-1].created_at, page[-1].session_id)

    # -- the work on one plan

    async def _work(self, session_id: str, worker: _Worker) -> None:
        pause: float | None = None
        try:
            while self._works:
                worker.bell.clear()
                try:
                    plan = await self._pass(session_id, worker)
                except (errors.Conflict, errors.DiskFull, errors.Unavailable, errors.StorageFault) as error:
                    pause = _hindered(session_id, error, pause)
                else:
                    pause = None
                    if plan is None or (_is_over(plan, worker) and not worker.bell.is_set()):
                        return
                    self._watch(worker, plan)
                await self._rest(worker, pause)
        except errors.InterruptionFault:
            # The engine stops: its runs go on at the next start, and so does the plan.
            _log.info("the plan goes on at the next start", extra={"session_id": session_id})
        finally:
            del self._workers[session_id]
            await _given_up(worker)

    async def _pass(self, session_id: str, worker: _Worker) -> plans.Plan | None:
        endings = {run_id: await worker.watches.pop(run_id) for run_id in _over(worker)}
        asked = worker.watches.keys() & worker.rests.keys()
        worker.resting = frozenset([run_id for run_id in asked if await self._facts.rests(run_id)])
        async with self._passes, self._repository.turn(session_id):
            return await self._advance.advance(session_id, endings, begins=worker.begins, resting=worker.resting)

    def _watch(self, worker: _Worker, plan: plans.Plan) -> None:
        wanted = advancing.running(plan)
        for run_id in worker.watches.keys() - set(wanted):
            worker.watches.pop(run_id).cancel()
        for run_id in wanted:
            if run_id not in worker.watches:
                worker.watches[run_id] = asyncio.create_task(self._facts.ending(run_id), name=f"watch {run_id}")
        for known in worker.rests.values():
            known.cancel()
        worker.rests = {
            run_id: asyncio.create_task(self._facts.rests_otherwise(run_id, run_id in worker.resting))
            for run_id in (wanted if _lacks_room(plan) and worker.begins else ())
        }

    async def _rest(self, worker: _Worker, pause: float | None) -> None:
        waits: list[Awaitable[object]] = [worker.bell.wait(), self._stopped.wait()]
        if pause is not None:
            waits.append(self._clock.sleep(pause))
        elif worker.watches:
            watches = [*worker.watches.values(), *worker.rests.values()]
            waits.append(asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED))
        await aio.wait_first(*waits)


def _is_over(plan: plans.Plan, worker: _Worker) -> bool:
    return rules.at_rest(plan) or not (worker.begins or advancing.running(plan))


def _over(worker: _Worker) -> list[str]:
    return [run_id for run_id, watch in worker.watches.items() if watch.done()]


def _lacks_room(plan: plans.Plan) -> bool:
    running = plan.status is plans.PlanState.RUNNING
    return running and any(task.status is plans.TaskState.PENDING for task in plan.tasks)


async def _given_up(worker: _Worker) -> None:
    watches = [*worker.watches.values(), *worker.rests.values()]
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


def _hindered(session_id: str, error: errors.ControlRoomError | errors.Fault, pause: float | None) -> float:
    """Tell why a plan cannot go on, and return the pause before it is tried again.

    Args:
        pause: The one before; None: it could go on until now.
    """
    facts = {"session_id": session_id, "code": error.code}
    if error.code == plan_stores.CHANGED:
        # What was begun meanwhile is found again by its key.
        _log.info("%s; it is read again", error.message, extra=facts)
        return 0.0
    if error.code == plan_stores.DAMAGED:
        if not pause:
            _log.error("not gone on with until it can be read: %s", error.message, extra=facts)
    elif isinstance(error, errors.Conflict):
        raise error
    else:
        _log.warning("the plan waits: %s", error.message, extra=facts)
    return _longer(pause)


def _longer(pause: float | None) -> float:
    return min(2 * pause, LONGEST_PAUSE_SECONDS) if pause else FIRST_PAUSE_SECONDS


def _may_go_on(plan: plans.PlanSummary) -> bool:
    # A run of a failed task may have been sent on by hand just before the end.
    waiting = (plans.TaskState.RUNNING.value, plans.TaskState.FAILED.value)
    return plan.status == plans.PlanState.RUNNING or not plan.tasks or any(state in plan.tasks for state in waiting)
