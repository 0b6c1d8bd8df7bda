"""The inputs of plans: derive a plan's next input from its file and its runs, while its own run waits."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app import clock, errors
from app.domain import operations, plain, plan_events, plans, states
from app.engine import aio, ports, run_engine
from app.flows.session_plan import driver, rules
from app.services.plans.facts import Facts
from app.services.plans.repository import PlanRepository
from app.services.plans.scoping import has_open_checks, is_unscoped

_MOST_KNOWN = 64  # Plans whose last content on file is known; of others each view waits for their run.

FIRST_PAUSE_SECONDS = 1.0
"""Time until a plan that could not continue is retried; it doubles with each attempt."""

LONGEST_PAUSE_SECONDS = 30.0  # Longest time until a retry.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlan:
    """A plan whose run waits for its next input."""

    key: str  # Key of the input.
    plan: plans.Plan  # The plan, which its file contains, too.


@dataclass(slots=True)
class Waiting:
    """Facts about a plan while its run waits for an input."""

    key: str = ""  # Key of the input.
    open: OpenPlan | None = None  # The plan, once its file contains it.
    bell: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the file and the runs are to be read again."""
    endings: dict[str, asyncio.Task[plan_events.RunFact]] = field(default_factory=dict)
    """Runs whose endings are awaited."""
    heard: dict[str, plan_events.RunFact] = field(default_factory=dict)  # Endings that have arrived meanwhile.
    rests: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Runs that are watched for coming to rest, because tasks lack capacity."""
    reviews: list[asyncio.Task[None]] = field(default_factory=list)
    """Watches for changes of reviews."""
    resting: frozenset[str] = frozenset()  # Those of the runs that were at rest at the last check.
    fault: errors.ControlRoomError | errors.Fault | None = None  # Why the file cannot be read or written now.
    watches: bool = True
    """Whether changes that may become an input are watched; otherwise each call checks for them."""


class PlanInputs:
    """Gives the runs of plans their inputs, from files and runs."""

    def __init__(
        self,
        *,
        repository: PlanRepository,
        facts: Facts,
        engine: run_engine.RunEngine,
        clock: clock.Clock,
    ) -> None:
        self._repository = repository
        self._facts = facts
        self._engine = engine
        self._clock = clock
        self._following: dict[str, list[tuple[str, asyncio.Future[plans.Plan]]]] = {}
        self._damaged: set[str] = set()
        self._on_file: OrderedDict[str, plans.Plan] = OrderedDict()
        self._agreed: set[str] = set()
        """Plans whose files this process has seen in agreement with the journal."""
        self.waiting: dict[str, Waiting] = {}
        """Plans whose runs wait for an input."""
        self.begins: set[str] = set()
        """Plans whose tasks start in this process."""
        self.begins_all = False
        """Whether the tasks of every plan start in this process."""
        self.broken: dict[str, BaseException] = {}
        """Plans whose handling has failed, with the errors."""
        self.stopped = asyncio.Event()
        """Set when no further input is given."""
        self.notify_full: Callable[[str], None] = lambda session_id: None
        """Called with a plan whose journal is full."""

    async def stop(self) -> None:
        """Give no further input."""
        self.stopped.set()
        # A plan whose wait ends meanwhile removes itself from the mapping.
        for waiting in list(self.waiting.values()):
            await _given_up(waiting)
            waiting.bell.set()

    def following(self, session_id: str, opened: OpenPlan) -> asyncio.Future[plans.Plan]:
        """Return a future for the plan that results from an input; call this before the delivery."""
        following: asyncio.Future[plans.Plan] = asyncio.get_running_loop().create_future()
        self._following.setdefault(session_id, []).append((opened.key, following))
        return following

    def note_broken(self, session_id: str, error: BaseException) -> None:
        """Record and log that the handling of a plan has failed; an empty id stands for all plans."""
        self.broken[session_id] = error
        self._repository.notify(session_id)
        facts = {"session_id": session_id}
        _log.critical("the planner failed on %s", session_id or "all plans", exc_info=error, extra=facts)

    async def wait(self, call: ports.Call) -> plain.Json:
        """Write a plan's file, and return the next input from the file or from a run of the plan."""
        shown = _shown(call)
        plan = shown.plan
        waiting = self.waiting[plan.session_id] = Waiting(key=call.key)
        pause: float | None = None
        try:
            while True:
                # Cleared before the check, so that a change during it causes another one.
                waiting.bell.clear()
                try:
                    event = await self._next(shown, waiting)
                    value = None if event is None else event.to_json()
                    pause = waiting.fault = None
                except (errors.Conflict, errors.WriteFailed, errors.Unavailable, errors.StorageFault) as error:
                    pause = self.hindered(plan.session_id, error, pause)
                    waiting.fault, value = error, None
                    self._repository.notify(plan.session_id)
                except errors.InterruptionFault:
                    raise
                except Exception as error:  # noqa: BLE001 - a fault in one plan must not stop the others
                    self.note_broken(plan.session_id, error)
                    value, pause = None, None
                if value is not None:
                    return value
                if not self.stopped.is_set():
                    await self._rest(waiting, pause)
                if self.stopped.is_set():
                    # The engine cancels this wait when it stops.
                    await _given_up(waiting)
                    await asyncio.Event().wait()
        finally:
            await _given_up(waiting)
            if self.waiting.get(plan.session_id) is waiting:
                del self.waiting[plan.session_id]

    async def input_now(self, call: ports.Call) -> plain.Json:
        """Write a plan's file, and return the input that the file or a run of the plan gives now, if any."""
        shown = _shown(call)
        self.begins.add(shown.plan.session_id)
        try:
            event = await self._next(shown, Waiting(key=call.key, watches=False))
            return None if event is None else event.to_json()
        except errors.Conflict as conflict:
            # A file that changes meanwhile, or that a person has to repair, is read again later.
            self.hindered(shown.plan.session_id, conflict, None)
            return None
        except (errors.WriteFailed, errors.Unavailable) as error:
            raise errors.StorageFault(error.message, detail=error.detail) from error

    async def _next(self, shown: plan_events.Shown, waiting: Waiting) -> plan_events.PlanEvent | None:
        plan = shown.plan
        if shown.is_removal:
            await self._repository.remove(plan.session_id)
            self._agreed.discard(plan.session_id)
            return plan_events.Removed()
        on_disk = await self._repository.find(plan.session_id)
        if on_disk is None and await self._repository.was_removed(plan.session_id):
            # Removed by an order that no longer found a file.
            return plan_events.Deleted()
        edit = await self._published(shown, on_disk)
        if edit is not None:
            # Once this process has seen the file agree with the journal, a difference is a person's edit.
            at_start = plan.session_id not in self._agreed
            if at_start and edit.revision > plan.revision:
                _log.error(
                    "plan.json of %s is at revision %s and the plan's journal only at %s, which may lack its last "
                    "lines; the file counts as an edit, which names no author",
                    plan.session_id,
                    edit.revision,
                    plan.revision,
                    extra={"session_id": plan.session_id},
                )
            return plan_events.FileEdited(plan=edit, at_start=at_start, seen_at=self._repository.now())
        if await self._repository.find(plan.session_id) is None:
            waiting.open = None
            self._repository.notify(plan.session_id)
            return None
        self._agreed.add(plan.session_id)
        self._note_own(plan)
        if shown.is_last:
            self.notify_full(plan.session_id)
            if shown.earlier is None:
                return plan_events.Continued()
            # A person may edit the file before the next run has begun.
            return plan_events.Continued(plan=plan, earlier=shown.earlier)
        self._show(waiting, plan)
        return await self._observe(plan, waiting)

    def _note_own(self, plan: plans.Plan) -> None:
        self._on_file[plan.session_id] = plan
        self._on_file.move_to_end(plan.session_id)
        if len(self._on_file) > _MOST_KNOWN:
            self._on_file.popitem(last=False)

    def is_own(self, plan: plans.Plan) -> bool:
        """Return whether the content of a plan's file is what the plan's run last wrote here; if not, it is edited."""
        own = self._on_file.get(plan.session_id)
        return own is plan or own == plan

    async def _published(self, shown: plan_events.Shown, on_disk: plans.Plan | None) -> plans.Plan | None:
        """Write the plan's file; return its content if a person has changed it."""
        plan = shown.plan
        if on_disk is None:
            if shown.on_file is None and not await self._repository.was_lost(plan.session_id):
                await self._repository.make(plan)
                self._note_own(plan)
            return None
        if on_disk == plan:
            return None
        # The journal has the hash of this service's last write: content with another hash is a person's edit.
        if driver.sha256(on_disk) != shown.on_file:
            return on_disk
        await self._repository.write(on_disk, plan)
        # Before a reader that the write woke can take the new content for an edit.
        self._note_own(plan)
        if shown.is_stale:
            _log.warning(
                "plan.json of %s held an earlier version of the plan (revision %s) and was written again (revision %s)",
                plan.session_id,
                on_disk.revision,
                plan.revision,
                extra={"session_id": plan.session_id},
            )
        return None

    async def _observe(self, plan: plans.Plan, waiting: Waiting) -> plan_events.Observed | None:
        begins = self._begins(plan) and not self._engine.status().stopping and not self.stopped.is_set()
        facts = await self._seen(plan, waiting)
        # Runs that a former service has left continue only in a process that may start their tasks.
        if begins:
            for run_id in running(plan):
                await self._facts.queue_if_left(run_id)
        reconciled, scoped = rules.reconciled(plan, facts), plan
        if any(is_unscoped(task) or has_open_checks(task) for task in plan.tasks):
            scoped = await self._facts.scoped(plan)
        unscoped = scoped != plan or any(is_unscoped(task) for task in plan.tasks)
        limit = self._engine.status().limit + len(waiting.resting) if begins else 0
        chief = _asks_chief(plan, facts, begins)
        to_check = bool(rules.to_check(reconciled, facts) or rules.reviewed(reconciled, facts))
        ready = rules.startable(reconciled, limit) or rules.unbegun(reconciled) or rules.to_review(reconciled, facts)
        if reconciled == plan and not (unscoped or (begins and ready) or to_check or chief):
            if waiting.watches:
                self._watch(plan, waiting, facts)
            return None
        attempts = None
        if begins and await self._repository.was_removed(plan.session_id):
            # A plan that was deleted and written again must not find the runs of the deleted one.
            attempts = await self._facts.attempts(reconciled)
        return plan_events.Observed(facts=facts, limit=limit, scoped=scoped if unscoped else None, attempts=attempts)

    def _begins(self, plan: plans.Plan) -> bool:
        return self.begins_all or plan.session_id in self.begins

    async def _seen(self, plan: plans.Plan, waiting: Waiting) -> dict[str, plan_events.RunFact]:
        for run_id, ending in [each for each in waiting.endings.items() if each[1].done()]:
            # An ending that could not be read is awaited again.
            del waiting.endings[run_id]
            if not ending.cancelled():
                waiting.heard[run_id] = ending.result()
        asked = running(plan) if waiting.rests or not waiting.watches else []
        waiting.resting = frozenset([run_id for run_id in asked if await self._facts.rests(run_id)])
        facts = await self._facts.of(plan, waiting.heard)
        if plan.chief_run_id is not None and not plan.tasks:
            known = waiting.heard.get(plan.chief_run_id)
            facts[plan.chief_run_id] = await self._facts.of_run(plan.chief_run_id, ending=known)
        return facts

    def _watch(self, plan: plans.Plan, waiting: Waiting, facts: Mapping[str, plan_events.RunFact]) -> None:
        for run_id in running(plan):
            if run_id not in waiting.endings:
                waiting.endings[run_id] = asyncio.create_task(self._facts.ending(run_id), name=f"watch {run_id}")
        for task in waiting.rests.values():
            task.cancel()
        for change in waiting.reviews:
            change.cancel()
        waiting.reviews = [
            asyncio.create_task(self._facts.review_differs(run_id, facts[run_id])) for run_id in _reviews(plan)
        ]
        lacks = _lacks_room(plan) and self._begins(plan)
        waiting.rests = {
            run_id: asyncio.create_task(self._facts.rests_otherwise(run_id, run_id in waiting.resting))
            for run_id in (running(plan) if lacks else ())
        }

    def hindered(self, session_id: str, error: errors.ControlRoomError | errors.Fault, pause: float | None) -> float:
        """Log why a plan cannot continue, and return the pause before the retry.

        Args:
            pause: The previous pause; None: the plan could continue until now.
        """
        facts = {"session_id": session_id, "code": error.code}
        if error.code == plans.CHANGED:
            _log.info("%s; it is read again", error.message, extra=facts)
            return 0.0
        if error.code == plans.DAMAGED:
            if session_id not in self._damaged:
                _log.error("not continued until its file can be read: %s", error.message, extra=facts)
            self._damaged.add(session_id)
        elif isinstance(error, errors.Conflict) and error.code != "run_busy":
            raise error
        else:
            _log.warning("the plan waits: %s", error.message, extra=facts)
        return longer(pause)

    async def _rest(self, waiting: Waiting, pause: float | None) -> None:
        watched = [*waiting.endings.values(), *waiting.rests.values(), *waiting.reviews]
        if pause is not None:
            # Runs that ended before the fault must not cut the pause short.
            watched = [each for each in watched if not each.done()]
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(waiting.bell.wait())]
        if pause is not None:
            waits.append(asyncio.ensure_future(self._clock.sleep(pause)))
        try:
            await asyncio.wait([*waits, *watched], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _show(self, waiting: Waiting, plan: plans.Plan) -> None:
        waiting.open = OpenPlan(key=waiting.key, plan=plan)
        self._damaged.discard(plan.session_id)
        for key, following in (known := self._following.pop(plan.session_id, [])):
            if key != waiting.key and not following.done():
                following.set_result(plan)
        if left := [each for each in known if not each[1].done()]:
            self._following[plan.session_id] = left
        self._repository.notify(plan.session_id)


def _shown(call: ports.Call) -> plan_events.Shown:
    assert isinstance(call.operation, operations.Input)
    return plan_events.Shown.from_json(call.operation.shown)


def running(plan: plans.Plan) -> list[str]:
    """Return the unfinished runs that a plan waits for."""
    of_tasks = [task.deciding_run_id for task in plan.tasks if task.status is plans.TaskState.RUNNING]
    return [
        *(run_id for run_id in of_tasks if run_id),
        *([plan.chief_run_id] if plan.awaits_chief and plan.chief_run_id else []),
    ]


def _reviews(plan: plans.Plan) -> list[str]:
    begun = [task.review for task in plan.tasks if task.status is plans.TaskState.RUNNING and task.review is not None]
    return [review.run_id or "" for review in begun if rules.is_under_way(review)]


def _asks_chief(plan: plans.Plan, facts: dict[str, plan_events.RunFact], begins: bool) -> bool:
    if plan.tasks:
        return False
    if plan.chief_run_id is None:
        return plan.awaits_chief and begins
    fact = facts[plan.chief_run_id]
    over = fact.status is None or fact.status.finished
    if plan.awaits_chief:
        return over
    failed = fact.status in (None, states.RunState.FAILED, states.RunState.CANCELLED)
    return plan.status is plans.PlanState.FAILED and plan.created_by == plans.BY_CHIEF and not failed


def _lacks_room(plan: plans.Plan) -> bool:
    is_running = plan.status is plans.PlanState.RUNNING
    return is_running and any(task.status is plans.TaskState.PENDING for task in plan.tasks)


async def _given_up(waiting: Waiting) -> None:
    watches = [*waiting.endings.values(), *waiting.rests.values(), *waiting.reviews]
    await aio.end(*watches)


def longer(pause: float | None) -> float:
    """Return the pause after a previous one; None: return the first pause."""
    return min(2 * pause, LONGEST_PAUSE_SECONDS) if pause else FIRST_PAUSE_SECONDS
