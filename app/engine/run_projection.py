"""The projection of a loaded run: computes what its views, its snapshots and its row in the index show."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from app import clock
from app.domain import decisions, gates, plain, views
from app.domain.events import EventType
from app.domain.operations import Input
from app.domain.records import Record
from app.domain.runs import Transition
from app.domain.slots import ShownState, snapshot
from app.domain.states import RunState
from app.domain.usage_sums import Reserved, UsageTally, uncharged
from app.engine import open_steps
from app.engine.active_step import ActiveStep
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import Ask
from app.engine.evicted_runs import Evicted, EvictedRun, RestingInput
from app.engine.storage_retry import StorageRetry
from app.engine.stores import RunLog


class RunProjection:
    """Keeps the visible state of a run current."""

    def __init__(self, log: RunLog, context: DriverContext, time: clock.Clock, changed: Callable[[], None]) -> None:
        loaded = log.loaded
        end_line = loaded.decisions.ended
        self._log = log
        self._context = context
        self._clock = time
        self._changed = changed
        self._start = loaded.start
        self._reason: str | None = loaded.decisions.paused
        self._error = end_line.error if end_line else loaded.decisions.pause_error
        self._ending = end_line.ending if end_line else None
        self._updated_at: str | datetime = loaded.decisions.last_at or loaded.start.created_at
        self._completed_at = end_line.at if end_line else None
        reserved = loaded.decisions.reserved
        self._tally = UsageTally(loaded.records, reserved)
        # Amounts of calls without a line, among the first reservations that were read.
        self._uncharged = dict(uncharged(reserved, loaded.records))
        self._reservations_read = len(reserved)
        self.status = loaded.decisions.status
        """State of the run."""
        self.records = list(loaded.records)
        """All journal lines so far, in order."""
        dead = loaded.decisions.dead
        self.counted = [record for record in self.records if record.final and record.position not in dead]
        """The records that count: final ones that no resume declared dead."""
        self.steps: dict[str, ActiveStep] = {}
        """Open steps by key."""
        self.resting: dict[str, RestingInput] = {}
        """Inputs at which the run rested, by step, until they are opened again."""
        self.replaying = True
        """Whether the driver is still replaying the journal."""
        self.storage_retry: StorageRetry | None = None
        """Guard of the writes; a fault there shows the run as parked."""

    def wake(self, evicted: Evicted) -> None:
        """Restore the state that was shown while the run was evicted."""
        self.status = evicted.status
        self._updated_at = evicted.updated_at
        if isinstance(evicted, EvictedRun):
            self.steps = evicted.steps
        else:
            self.resting = {one.key: one for one in evicted.inputs}

    def rested_at(self, ask: Ask) -> bool:
        """Return whether the run rested at what its driver requests, so that views show it already."""
        rested = self.resting.get(ask.key)
        if rested is not None and rested.operation != ask.operation:
            del self.resting[ask.key]
            return False
        return rested is not None

    def view(self) -> views.RunView:
        """Return the run's present state; the view shares growing collections, so read it at once."""
        fault = self.storage_retry.fault if self.storage_retry else None
        decided = self._log.loaded.decisions
        return views.RunView(
            start=self._log.loaded.start,
            status=RunState.PAUSED if fault else self._shown_status(),
            reason=fault.code if fault else self._why(),
            board=self._context.board(),
            records=self.records,
            dead=decided.dead,
            counted=self.counted,
            open=[open_steps.shown(step) for step in self.steps.values() if step.attempt]
            + [one.shown() for one in self.resting.values()],
            usage=self._tally.total,
            usage_sums=self._tally.sums,
            error=fault.to_json() if fault else self._error,
            ending=self._ending,
            limits=self._log.loaded.limits,
            updated_at=self._completed_at or self.moved_at(),
            paused_at=decided.paused_at if decided.paused is not None else None,
            placed=views.Placed.of(decided),
            started_at=decided.first_taken_at,
            completed_at=self._completed_at,
            replaying=self.replaying,
        )

    def waits(self) -> list[open_steps.StepWait]:
        """Return what the open steps wait for."""
        return open_steps.waits(self.steps.values(), self._log.loaded.decisions.due)

    def add(self, record: Record) -> None:
        """Show one more journal line."""
        self.records.append(record)
        # Lines are declared dead only while no runner has the run.
        if record.final:
            self.counted.append(record)
        # Every step passes here, and most call no agent; the tally examines the others.
        line = record.line
        if record.usage is not None or line.get("agent_id") is not None or line.get("provider") is not None:
            amounts = self._read_reservations()
            self._tally.add(record, amounts.pop((record.key, record.attempt), None))
            if record.covers is not None:
                amounts.pop((record.key, record.covers), None)

    def touch(self) -> None:
        """Announce a change, and mark the snapshots as outdated."""
        self._updated_at = self._clock.now()
        self._log.refresh(self._snapshots)
        self._changed()

    def reopen(self, step: ActiveStep) -> bool:
        """Return whether a step is an input at which the run rested, which views have shown all the time."""
        rested = self.resting.pop(step.ask.key, None) is not None
        if rested:
            self._changed()
        return rested

    def announce(self, at: datetime | None = None) -> None:
        """Announce a change that no snapshot contains, e.g. the begin of an attempt."""
        self._updated_at = at or self._clock.now()
        self._changed()

    async def move(self, transition: Transition) -> None:
        """Show a new state, in views and in the index."""
        self.status = transition.to
        self.resting = {}
        self.touch()
        await self.note(transition)

    async def note(self, transition: Transition) -> None:
        """Write a transition to the index, with the present sums of the journals."""
        decided = self._log.loaded.decisions
        facts = self._tally.facts(decided.first_taken_at, self._read_reservations().values())
        await self._log.move(dataclasses.replace(transition, facts=facts))

    async def show_waiting(self) -> None:
        """Show the run as waiting while its open steps only wait and one of them awaits an input."""
        inputs = list(self._awaited())
        # A reader who sees that the run waits may at once ask for what, so each step must have begun.
        waits = bool(inputs) and all(step.idle and step.begun for step in self.steps.values())
        if waits and self.status is RunState.RUNNING:
            self._log.add_event(EventType.RUN_WAITING, None, {"keys": inputs})
            await self.move(Transition.wait(self._start.run_id, self.now()))
        elif not waits and self.status is RunState.WAITING:
            await self.move(Transition.begin(self._start.run_id, self.now()))

    def settle(self, status: RunState, reason: str | None, error: Mapping[str, plain.Json] | None) -> None:
        """Show the state in which the run comes to rest, with the reason."""
        self.status = status
        self.resting = {}
        self._reason = reason
        self._error = error
        self.touch()

    def end(
        self, status: RunState, error: Mapping[str, plain.Json] | None, ending: Mapping[str, plain.Json] | None
    ) -> None:
        """Show how the run ended."""
        end_line = self._log.loaded.decisions.ended
        self._ending = ending
        self._completed_at = end_line.at if end_line else self.now()
        self.settle(status, None, error)

    def now(self) -> str:
        """Return the present instant in the form of JSON."""
        return clock.stamp(self._clock.now())

    def moved_at(self) -> str:
        """Return when the run last changed."""
        if not isinstance(self._updated_at, str):
            self._updated_at = clock.stamp(self._updated_at)
        return self._updated_at

    def _read_reservations(self) -> dict[tuple[str, int], Reserved]:
        # Only the new ones: a run can make thousands of limited calls.
        reserved = self._log.loaded.decisions.reserved
        if len(reserved) > self._reservations_read:
            self._uncharged.update(itertools.islice(reserved.items(), self._reservations_read, None))
            self._reservations_read = len(reserved)
        return self._uncharged

    def _shown_status(self) -> RunState:
        # The answer of the last open input is shown before the run leaves the state `waiting`.
        if self.status is RunState.WAITING and not any(self._awaited()):
            return RunState.RUNNING
        return self.status

    def _awaited(self) -> Iterator[str]:
        open_inputs = (key for key, step in self.steps.items() if isinstance(step.ask.operation, Input))
        return itertools.chain(open_inputs, self.resting)

    def _why(self) -> str | None:
        decided = self._log.loaded.decisions
        if not self.status.finished and decided.cancel_requested_at is not None:
            return decisions.CANCELLING
        if self.status is RunState.RUNNING:
            return decisions.PAUSING if decided.paused is not None else None
        return gates.end_reason(self._error, self._ending) if self.status.finished else self._reason

    def _snapshots(self) -> Mapping[str, plain.Json]:
        view = self.view()
        files = {"run.json": views.manifest(view), "cache.json": snapshot(view.board.slots)}
        return files | self._context.files(ShownState(status=self.status, updated_at=view.updated_at))
