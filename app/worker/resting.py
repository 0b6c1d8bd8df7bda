"""Resting: keeps runs that only await inputs without a task, and shares the facts of their recipe."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import cast

from app import errors
from app.domain import decisions, gates, operations, records, runs, states
from app.engine import driver_scheduler, dry_replay, evicted_runs, ports, run_equipment, stores
from app.worker.active_run import ActiveRun
from app.worker.active_runs import ActiveRuns
from app.worker.inputs import InputRegister

_KEPT = 256
_AT_A_TIME = 32

_Question = tuple[operations.Input, records.Place]


class Resting:
    """Lets runs rest at their inputs."""

    def __init__(
        self,
        register: InputRegister,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        active: ActiveRuns,
    ) -> None:
        self._register = register
        self._store = store
        self._drivers = drivers
        self._equipment = equipment
        self._active = active
        self._questions: OrderedDict[str, _Question] = OrderedDict()

    async def put_back(self, summaries: Sequence[stores.RunSummary]) -> None:
        """Put runs that were found waiting to rest from their journals alone, and queue the others."""
        usable: dict[str, bool] = {}
        # In batches: journals are long, and the loop serves other tasks too.
        for first in range(0, len(summaries), _AT_A_TIME):
            rows = {
                row.run_id: row for row in summaries[first : first + _AT_A_TIME] if row.run_id in self._active.unread
            }
            for loaded in await self._store.read_sound(list(rows)):
                run_id = loaded.start.run_id
                inputs = await self._awaited(loaded) if await self._is_usable(loaded.start, usable) else ()
                if inputs and run_id in self._active.unread:
                    self._rest_unread(loaded, inputs, rows[run_id])
            # A run that could not be put to rest is queued; `Deliveries.let_ask` loads it without capacity.
            for run_id in rows.keys() & self._active.unread:
                self._active.unread.discard(run_id)
                self._active.capacity.join(self._active.active_runs[run_id].request)

    def rest(self, loaded: stores.Loaded, evicted: evicted_runs.EvictedRun) -> evicted_runs.RestingRun | None:
        """End the tasks of an evicted run that only awaits inputs; None if it awaits more, and stays unchanged."""
        run_id, steps, asked_at = loaded.start.run_id, evicted.steps, loaded.decisions.asked
        if evicted.status is not states.RunState.WAITING or not self._register.drop(run_id, steps.keys()):
            return None
        # In this order: a delivery accepted before `drop` belongs to the tasks that `give_up` ends.
        evicted.give_up()
        inputs = [self._input(step.ask, step.attempt, asked_at[key]) for key, step in steps.items()]
        return self._resting(loaded, inputs, evicted.updated_at, taken=True)

    def _rest_unread(
        self, loaded: stores.Loaded, inputs: Sequence[evicted_runs.RestingInput], row: stores.RunSummary
    ) -> None:
        active_run = self._active.active_runs[row.run_id]
        active_run.evicted = self._resting(loaded, inputs, row.updated_at, taken=False)
        self._active.unread.discard(row.run_id)
        self._active.changes.note(row.run_id)

    async def _is_usable(self, start: runs.RunStart, usable: dict[str, bool]) -> bool:
        """Return whether a run's working folder has no fault that would park it."""
        find, folder = self._equipment.folder_fault, start.working_dir
        if find is not None and folder not in usable:
            usable[folder] = find(start, False) is None and await asyncio.to_thread(find, start, True) is None
        return usable.get(folder, True)

    async def _awaited(self, loaded: stores.Loaded) -> Sequence[evicted_runs.RestingInput]:
        """Return the inputs of a run that waits for nothing else; if empty, the run must be loaded."""
        decided = loaded.decisions
        timed = loaded.limits.wall_seconds is not None or loaded.limits.active_seconds is not None
        try:
            driver = ports.driver_of(self._drivers, loaded.start)
        except errors.DriverFault:
            return ()
        # Only a loaded run watches its time limits and carries out orders.
        if decided.is_halted or not decided.taken_since_resume or timed:
            return ()
        read_blob = functools.partial(self._store.read_blob, loaded.start.run_id)
        try:
            asks = await dry_replay.open_asks(loaded, driver, read_blob)
        except errors.Unreadable:
            return ()
        recorded = {(record.key, record.attempt) for record in loaded.records}
        # A step that was started, but is neither open nor recorded, was interrupted: a loaded run performs it again.
        explained = asks.keys() | {key for key, _ in recorded}
        if not explained >= decided.attempts.keys() or not all(
            self._rests(ask, decided, recorded) for ask in asks.values()
        ):
            return ()
        return [self._input(ask, decided.highest_attempt[key], decided.asked[key]) for key, ask in asks.items()]

    def _rests(
        self, ask: driver_scheduler.Ask, decided: decisions.Decisions, recorded: AbstractSet[tuple[str, int]]
    ) -> bool:
        """Return whether a run has asked for an input that has neither an answer, nor a deadline, nor a source."""
        key, operation = ask.key, ask.operation
        if not isinstance(operation, operations.Input) or operation.name in self._equipment.sources:
            return False
        return key not in decided.due and decided.awaits(key, recorded)

    def _resting(
        self,
        loaded: stores.Loaded,
        inputs: Sequence[evicted_runs.RestingInput],
        updated_at: str,
        *,
        taken: bool,
    ) -> evicted_runs.RestingRun:
        start = self._equipment.interner.compact(loaded.start)
        return evicted_runs.RestingRun(start=start, inputs=tuple(inputs), updated_at=updated_at, taken=taken)

    def _input(self, ask: driver_scheduler.Ask, attempt: int, asked_at: str) -> evicted_runs.RestingInput:
        operation, place = self._shared((cast(operations.Input, ask.operation), ask.place), ask.fingerprint)
        return evicted_runs.RestingInput(
            key=sys.intern(ask.key), attempt=attempt, operation=operation, place=place, asked_at=asked_at
        )

    def _shared(self, question: _Question, fingerprint: str) -> _Question:
        if (equal := self._questions.get(fingerprint)) == question and equal is not None:
            self._questions.move_to_end(fingerprint)
            return equal
        self._questions[fingerprint] = question
        if len(self._questions) > _KEPT:
            self._questions.popitem(last=False)
        return question


def open_gates(active_runs: Mapping[str, ActiveRun], run_id: str | None) -> Iterator[gates.OpenGate]:
    """Return the gates at which runs rest, of one run or of all."""
    for active_run in active_runs.values() if run_id is None else (active_runs.get(run_id),):
        if active_run is not None and isinstance(active_run.evicted, evicted_runs.RestingRun):
            yield from active_run.evicted.open_gates()
