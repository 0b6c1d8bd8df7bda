"""The workflow of a run: it owns the driver and its scheduler, and nothing else.

It can be discarded at any time: a new one continues the run from the journal. Signals report that the journal has new
lines and carry no state; `pause` also says whether to interrupt open steps, which is lost with the signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from app import clock, errors
    from app.dialects import registry as dialects
    from app.domain import decisions, operations, runs
    from app.domain.records import Record
    from app.engine import driver_context, driver_scheduler, ports, replay, stores
    from app.flows import registry as flows
    from app.temporal import attributes, messages, priorities, slices
    from app.temporal.step_dispatch import StepDispatch, ask, is_cut, is_superseded
    from app.temporal.time_limit_watch import TimeLimitWatch

_AGAIN = timedelta(seconds=30)

_WAITING = (operations.Input, operations.Timer, operations.ChildRun)
# Other operations that hold no capacity, e.g. those of plans, are performed like any step, on a queue of their own.


@workflow.defn(name=messages.WORKFLOW)
class RunWorkflow:
    """One run, from its journal to its rest."""

    def __init__(self) -> None:
        self._run_id = ""
        self._records: list[Record] = []
        # Records by position that wait for earlier ones: the driver receives them in the order of the journal.
        self._landed: dict[int, Record] = {}
        self._steps: dict[str, asyncio.Task[None]] = {}
        # Steps that only wait, with whether for an input; `_announced` has those whose wait the journal records.
        self._idle: dict[str, bool] = {}
        self._announced: set[str] = set()
        self._shows_waiting = False
        self._collected: dict[str, messages.StepOrder] = {}
        self._closing: list[asyncio.Task[None]] = []
        self._cancelled = self._paused = False
        # Set by an interrupting pause, or an ending that another process wrote: open steps are cut off, not awaited.
        self._ends_now = False
        # A signal has arrived, and no reading of the journal has begun since.
        self._journal_has_more = self._is_reading = False
        # Increased by every event that the main loop must handle; its conditions compare it, so that none is missed.
        self._wakeups = 0
        self._parking: messages.Parking | None = None
        self._dispatch = StepDispatch("", None, (), priorities.of({}))
        self._shown = attributes.Shown()
        self._time_limits = TimeLimitWatch()
        self._is_watched = False
        self._loaded_lines = 0
        self._loaded: stores.Loaded

    @workflow.run
    async def run(self, run_id: str, again: bool = False) -> str:
        """Continue a run until it is at rest, and return its state."""
        self._run_id = run_id
        journal = await self._load(again)
        if journal["facts"].get("rests"):
            return await self._complete()
        self._note(journal["facts"])
        self._shown.show("running")
        facts = journal["facts"]
        self._dispatch = StepDispatch(run_id, _placement(facts), facts.get("services", ()), priorities.of(facts))
        scheduler = None
        if not self._cancelled:
            scheduler = await self._replayed(journal)
            if scheduler is not None:
                await self._drive(scheduler)
        await self._cut_all()
        wakeups = self._wakeups
        state = await self._complete()
        if state == "running" or self._wakeups != wakeups:
            # The journal got new lines while the run came to rest.
            workflow.continue_as_new(args=[run_id, True])
        return state

    async def _load(self, again: bool) -> dict[str, Any]:
        while True:
            wakeups = self._wakeups
            journal: dict[str, Any] = json.loads(await ask(messages.LOAD, self._run_id, again))
            self._shown.note(journal["facts"])
            if "busy" not in journal["facts"]:
                return journal
            self._shown.show("pending")
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[self._run_id, again])
            # A signal arrives when this run may get the workspace or the key.
            longest = timedelta(seconds=journal["facts"].get("look_seconds", _AGAIN.seconds))
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda wakeups=wakeups: self._wakeups != wakeups, timeout=longest)  # type: ignore[misc]

    # The journal decides: a repeated signal has no further effect, and the next one, or the next start of a service,
    # makes up for a lost one, except that a pause whose signal was lost does not interrupt open steps.

    @workflow.signal(name=messages.NEW_LINES_SIGNAL)
    def note_new_lines(self) -> None:
        """Note that the journal has new lines."""
        self._journal_has_more = True
        self._wakeups += 1

    @workflow.signal(name=messages.CANCEL_SIGNAL)
    def cancel(self) -> None:
        """Note that the journal has a request to end the run."""
        self._cancelled = True
        self._wakeups += 1

    @workflow.signal(name=messages.PAUSE_SIGNAL)
    def pause(self, interrupt: bool) -> None:
        """Note that the journal has a pause."""
        self._paused = True
        # A reading that is under way may have begun before the pause, and would revoke it.
        self._journal_has_more = True
        self._ends_now = self._ends_now or interrupt
        self._wakeups += 1

    # -- replay

    async def _replayed(self, journal: Mapping[str, Any]) -> driver_scheduler.DriverScheduler | None:
        start = runs.RunStart.from_json(journal["start"])
        self._records = slices.lines_of(journal)
        self._loaded_lines = len(self._records)
        dead = frozenset(decisions.expand(journal["facts"]["dead"]))
        self._loaded = stores.Loaded(
            start=start, records=self._records, decisions=decisions.Decisions(dead=dead), emitted=frozenset()
        )
        context = driver_context.DriverContext(start, lambda key, facts: None)
        try:
            driver = ports.driver_of({**flows.DRIVERS, **dialects.DIALECTS}, start)
            scheduler = driver_scheduler.DriverScheduler(lambda: driver.drive(context))
            await replay.replay(scheduler, self._loaded, self._read)
        except errors.Fault:
            # The completion of the run replays it, too, and reports what does not fit.
            return None
        return scheduler

    async def _read(self, blob: Any) -> Any:
        return json.loads(await ask(messages.READ_BLOB, self._run_id, blob.to_json()))

    # -- drive

    async def _drive(self, scheduler: driver_scheduler.DriverScheduler) -> None:
        try:
            while not (scheduler.finished or self._cancelled or self._ends_now):
                wakeups = self._wakeups
                self._open(scheduler)
                if self._drains() and not self._is_busy():
                    return
                if self._journal_has_more and not self._is_reading:
                    self._begin_to_read()
                elif self._waits() and not self._shows_waiting:
                    self._shows_waiting = True
                    self._shown.show("waiting")
                    await ask(messages.SHOW_WAITING, self._run_id, self._awaited(), result_type=None)
                    continue
                await workflow.wait_condition(lambda wakeups=wakeups: self._wakeups != wakeups or self._has_next())  # type: ignore[misc]
                await self._hand_out(scheduler)
        except errors.Fault:
            # As above: the completion reports it.
            return

    def _drains(self) -> bool:
        full = len(self._records) - self._loaded_lines >= messages.STEPS_OF_A_HISTORY
        return self._paused or full or self._parking is not None or workflow.info().is_continue_as_new_suggested()

    def _is_busy(self) -> bool:
        return any(key not in self._idle for key in self._steps) or bool(self._landed) or self._is_reading

    def _waits(self) -> bool:
        # All open steps only wait, and at least one of them for an input.
        return bool(self._awaited()) and not self._landed and self._announced >= self._steps.keys()

    def _awaited(self) -> list[str]:
        return [key for key in self._steps if self._idle.get(key)]

    def _has_next(self) -> bool:
        return len(self._records) in self._landed

    def _open(self, scheduler: driver_scheduler.DriverScheduler) -> None:
        dropped, scheduler.dropped = scheduler.dropped, []
        for key in dropped:
            self._cut(key)
        if self._drains() or self._time_limits.is_unknown:
            return
        unopened, scheduler.unopened = scheduler.unopened, {}
        for asked in unopened.values():
            if isinstance(asked.operation, _WAITING):
                self._idle[asked.key] = isinstance(asked.operation, operations.Input)
            self._steps[asked.key] = asyncio.create_task(self._carry_out(asked))

    async def _hand_out(self, scheduler: driver_scheduler.DriverScheduler) -> None:
        while (record := self._landed.pop(len(self._records), None)) is not None:
            self._records.append(record)
            self._shows_waiting = False
            self._shown.show("running")
            if record.final:
                self._cut(record.key)
            if not scheduler.finished:
                replay.hand_out(scheduler, record, self._loaded)
                await replay.satisfy(scheduler, self._read)
        if self._landed and not self._is_reading:
            # Another process wrote an earlier line, and its signal was lost.
            self._begin_to_read()

    def _begin_to_read(self) -> None:
        self._journal_has_more, self._is_reading = False, True
        self._closing.append(asyncio.create_task(self._read_new_lines()))

    async def _read_new_lines(self) -> None:
        try:
            answer = json.loads(await ask(messages.READ_LINES, self._run_id, len(self._records)))
            self._note(answer["facts"])
            self._shown.note(answer["facts"])
            self._shown.show("waiting" if self._shows_waiting else "running")
            for record in slices.lines_of(answer):
                self._land(record)
            for order in list(self._collected.values()):
                await self._collect_or_park(order)
        finally:
            self._is_reading = False
            self._wakeups += 1

    def _note(self, facts: Mapping[str, Any]) -> None:
        self._cancelled = self._cancelled or facts["cancelled"]
        self._paused = facts["paused"]
        self._ends_now = self._ends_now or facts["ended"]
        self._time_limits.note(facts)
        if self._time_limits.is_limited and not self._is_watched:
            self._is_watched = True
            self._closing.append(asyncio.create_task(self._watch_time()))

    async def _watch_time(self) -> None:
        if await self._time_limits.watch(self._run_id, self._wake):
            # The pause is already in the journal.
            self._paused = self._ends_now = True
            self._wake()

    def _wake(self) -> None:
        self._wakeups += 1

    # -- steps

    async def _carry_out(self, asked: driver_scheduler.Ask) -> None:
        order = messages.StepOrder(run_id=self._run_id, key=asked.key, operation=asked.fingerprint, branch=asked.branch)
        while True:
            try:
                carry_out = self._wait if isinstance(asked.operation, _WAITING) else self._perform
                await carry_out(asked, order)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                if is_superseded(error) and not is_cut():
                    # The journal has a newer attempt or an order; if neither, the step still has to be performed.
                    self._journal_has_more = True
                    self._wakeups += 1
                    await workflow.sleep(1)
                    continue
                if not is_cut():
                    self._fail(asked.key, error)
            break
        self._wakeups += 1

    async def _perform(self, asked: driver_scheduler.Ask, order: messages.StepOrder) -> None:
        while True:
            if not asked.operation.idle:
                self._time_limits.begin(asked.key)
            record = self._record_in(await self._dispatch.perform(order, asked.operation))
            self._time_limits.end(asked.key)
            self._land(record)
            if record.final or record.retry_at is None or is_cut():
                return
            await self._until(record.retry_at)

    async def _wait(self, asked: driver_scheduler.Ask, order: messages.StepOrder) -> None:
        announced: messages.Announced = await ask(messages.ANNOUNCE, order, result_type=messages.Announced)
        if announced.recorded or is_cut():
            self._journal_has_more = True
            return
        self._announced.add(asked.key)
        self._wakeups += 1
        if announced.is_given:
            await self._collect_given(dataclasses.replace(order, is_given=True))
        if announced.child is not None:
            order = self._collected[asked.key] = dataclasses.replace(order, child=announced.child)
            await self._collect(order)
        if announced.due_at is None or _is_open_ended(asked.operation) or is_cut():
            return
        await self._until(announced.due_at)
        await self._collect(dataclasses.replace(order, is_over=True))

    async def _collect_given(self, order: messages.StepOrder) -> None:
        # A signal triggers an earlier reading of the journal.
        self._collected[order.key] = order
        while True:
            await self._collect(order)
            if is_cut():
                return
            await workflow.sleep(_AGAIN)

    async def _collect_or_park(self, order: messages.StepOrder) -> None:
        # The object for which one step waits may be damaged: the other steps are collected nevertheless.
        try:
            await self._collect(order)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            if not is_superseded(error):
                self._cut(order.key)
                self._fail(order.key, error)

    async def _collect(self, order: messages.StepOrder) -> None:
        content = await ask(messages.FINISH, order)
        if content is not None:
            self._collected.pop(order.key, None)
            self._land(self._record_in(content))

    def _land(self, record: Record) -> None:
        # The same line may arrive twice: from its step, and from a reading of the journal.
        if record.position >= len(self._records):
            self._landed[record.position] = record
        self._wakeups += 1

    def _fail(self, key: str, error: ActivityError) -> None:
        self._steps.pop(key, None)
        self._time_limits.end(key)
        self._parking = self._parking or self._dispatch.parking(key, error)

    def _forget(self, key: str) -> None:
        self._collected.pop(key, None)
        self._idle.pop(key, None)
        self._announced.discard(key)
        self._steps.pop(key, None)
        self._time_limits.end(key)

    def _cut(self, key: str) -> None:
        step = self._steps.get(key)
        if step is not None and not step.done():
            step.cancel()
            self._closing.append(step)
        self._forget(key)

    async def _cut_all(self) -> None:
        closing = [*self._steps.values(), *self._closing]
        for step in closing:
            step.cancel()
        await asyncio.gather(*closing, return_exceptions=True)

    # -- helpers

    def _record_in(self, content: bytes) -> Record:
        return slices.lines_of(json.loads(content))[0]

    async def _until(self, at: str) -> None:
        left = (clock.instant(at) - workflow.now()).total_seconds()
        if left > 0:
            await workflow.sleep(left)

    async def _complete(self) -> str:
        order = messages.CompletionOrder(run_id=self._run_id, parking=self._parking)
        state = str(await ask(messages.COMPLETE, order, result_type=str))
        self._shown.show(state)
        return state


def _placement(facts: Mapping[str, Any]) -> messages.Placement | None:
    if "gone_seconds" not in facts:
        return None
    return messages.Placement(worker=facts["placed"] or "", gone_seconds=facts["gone_seconds"])


def _is_open_ended(operation: operations.Operation) -> bool:
    return isinstance(operation, operations.Gate) and operation.default is None
