"""Inputs: open steps that wait for a delivery from outside; a gate waits for a person's decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from app import clock
from app.domain import gates, operations, records
from app.domain.gates import Answer
from app.domain.inputs import Delivery
from app.engine import input_results, ports


@dataclass(slots=True, kw_only=True, eq=False)
class _OpenInput:
    call: ports.Call
    gate: gates.OpenGate | None
    delivered: asyncio.Future[records.Result] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def expires_at(self) -> str | None:
        return None if self.gate is None else self.gate.expires_at

    def take(self, delivery: Answer | Delivery) -> bool:
        """Take a delivery, unless another one was first."""
        if self.delivered.done():
            return False
        self.delivered.set_result(input_results.result(self.gate, delivery))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a delivery."""

    attempt: int
    """Try of the step that it is for."""
    first: bool
    """Whether no other delivery was there before."""
    input: _OpenInput
    """The input that it is for."""


class InputRegister:
    """Perform `Input` and `Gate`: wait for the first delivery, or take a gate's default when its time is over."""

    def __init__(self, time: clock.Clock, sources: Mapping[str, ports.Source]) -> None:
        """Args: sources: By the names of inputs."""
        self._clock = time
        self._sources = sources
        self._open: dict[str, dict[str, _OpenInput]] = {}

    async def perform(self, call: ports.Call) -> records.Result:
        """Wait for the delivery; its record is what makes it count."""
        awaited = _OpenInput(call=call, gate=_gate(call))
        of_run = self._open.setdefault(call.run.run_id, {})
        of_run[call.key] = awaited
        try:
            return await (self._given(awaited) if self._gives(awaited) else asyncio.shield(awaited.delivered))
        finally:
            del of_run[call.key]
            if not of_run and self._open.get(call.run.run_id) is of_run:
                del self._open[call.run.run_id]

    def open_gates(self, run_id: str | None = None) -> list[gates.OpenGate]:
        """Return the unanswered gates of a run, or of all, in the order of asking."""
        waiting: Mapping[str, Mapping[str, _OpenInput]] = self._open
        if run_id is not None:
            waiting = {run_id: waiting.get(run_id, {})}
        return [
            awaited.gate
            for of_run in waiting.values()
            for awaited in of_run.values()
            if awaited.gate is not None and not awaited.delivered.done()
        ]

    def is_refused(self, run_id: str, key: str, taken: Taken) -> bool:
        """Return whether an input is open again, because what it had taken could not be written."""
        return self._open.get(run_id, {}).get(key, taken.input) is not taken.input

    def is_open(self, run_id: str, key: str) -> bool:
        """Return whether a step waits for a delivery."""
        return key in self._open.get(run_id, {})

    def deliver(self, run_id: str, key: str, delivery: Answer | Delivery, attempt: int | None = None) -> Taken | None:
        """Deliver to an open step; return what became of that, or None if none is open.

        Raises:
            errors.Conflict: `gate_lapsed`, `input_lapsed`, that try of the step is not the present one.
            errors.RequestInvalid: `unknown_decision`.
        """
        awaited = self._open.get(run_id, {}).get(key)
        if awaited is None or type(awaited.call.operation) is not delivery.of:
            return None
        present = awaited.call.attempt
        if attempt not in (None, present):
            raise input_results.lapsed(delivery.of.kind, key)
        if awaited.gate is not None and isinstance(delivery, Answer):
            input_results.refuse_unknown(delivery.decision, awaited.gate)
        if self._left_seconds(awaited) <= 0:
            _take_default(awaited)
        return Taken(attempt=present, first=awaited.take(delivery), input=awaited)

    def _gives(self, awaited: _OpenInput) -> bool:
        # Thousands of gates wait without a time limit, and a task for each would be most of what they hold.
        operation = awaited.call.operation
        assert isinstance(operation, operations.Input)
        return awaited.expires_at is not None or operation.name in self._sources

    async def _given(self, awaited: _OpenInput) -> records.Result:
        source = asyncio.create_task(self._give(awaited))
        try:
            await asyncio.wait((awaited.delivered, source), return_when=asyncio.FIRST_COMPLETED)
            if not awaited.delivered.done():
                source.result()
            return await awaited.delivered
        finally:
            source.cancel()

    async def _give(self, awaited: _OpenInput) -> None:
        """Take a gate's default, or what an input's own source gives."""
        operation = awaited.call.operation
        assert isinstance(operation, operations.Input)
        if (source := self._sources.get(operation.name)) is not None:
            awaited.take(Delivery(value=await source(awaited.call), author=input_results.SYSTEM))
        elif awaited.expires_at is not None:
            await self._clock.sleep(self._left_seconds(awaited))
            _take_default(awaited)

    def _left_seconds(self, awaited: _OpenInput) -> float:
        if awaited.expires_at is None:
            return float("inf")
        return (clock.instant(awaited.expires_at) - self._clock.now()).total_seconds()


def _gate(call: ports.Call) -> gates.OpenGate | None:
    if not isinstance(call.operation, operations.Gate):
        return None
    return gates.OpenGate(
        start=call.run,
        key=call.key,
        attempt=call.attempt,
        gate=call.operation,
        asked_at=call.asked_at,
        expires_at=call.due_at if call.operation.default is not None else None,
    )


def _take_default(awaited: _OpenInput) -> None:
    default = awaited.gate.gate.default if awaited.gate is not None else None
    if default is not None:
        awaited.take(Answer(decision=default, by_default=True))
