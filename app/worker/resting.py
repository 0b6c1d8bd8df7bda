"""Resting: runs that only await inputs keep no task, and what they share with others is kept once."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import cast

from app.domain import gates, operations, records, states
from app.engine import driver_scheduler, equipment, evicted_runs, stores
from app.worker.active_run import ActiveRun
from app.worker.inputs import InputRegister

_KEPT = 256

_Question = tuple[operations.Input, records.Place]


class Resting:
    """Let runs rest at their inputs."""

    def __init__(self, register: InputRegister, copies: equipment.Interner) -> None:
        self._register = register
        self._copies = copies
        self._questions: OrderedDict[str, _Question] = OrderedDict()

    def rest(self, loaded: stores.Loaded, evicted: evicted_runs.EvictedRun) -> evicted_runs.RestingRun | None:
        """Give up the steps of an evicted run that only awaits inputs; None, and nothing done, of any other."""
        run_id, steps, asked = loaded.start.run_id, evicted.steps, loaded.decisions.asked
        if evicted.status is not states.RunState.WAITING or not self._register.let_go(run_id, steps.keys()):
            return None
        evicted.give_up()
        inputs = [self._input(step.ask, step.attempt, asked[key]) for key, step in steps.items()]
        start = self._copies.compact(loaded.start)
        return evicted_runs.RestingRun(start=start, inputs=tuple(inputs), updated_at=evicted.updated_at, taken=True)

    def _input(self, ask: driver_scheduler.Ask, attempt: int, asked_at: str) -> evicted_runs.RestingInput:
        operation, place = self._shared((cast(operations.Input, ask.operation), ask.place), ask.fingerprint)
        return evicted_runs.RestingInput(
            key=sys.intern(ask.key), attempt=attempt, operation=operation, place=place, asked_at=asked_at
        )

    def _shared(self, question: _Question, fingerprint: str) -> _Question:
        if (known := self._questions.get(fingerprint)) == question and known is not None:
            self._questions.move_to_end(fingerprint)
            return known
        self._questions[fingerprint] = question
        if len(self._questions) > _KEPT:
            self._questions.popitem(last=False)
        return question


def open_gates(active_runs: Mapping[str, ActiveRun], run_id: str | None) -> Iterator[gates.OpenGate]:
    """Return the gates at which runs rest, of one run or of all."""
    for active_run in active_runs.values() if run_id is None else (active_runs.get(run_id),):
        if active_run is not None and isinstance(active_run.evicted, evicted_runs.RestingRun):
            yield from active_run.evicted.open_gates()
