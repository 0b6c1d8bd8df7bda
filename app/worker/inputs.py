"""Inputs: perform steps that wait for a delivery from outside; a gate waits for a person's decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from app import clock
from app.domain import gates, inputs, operations, records
from app.domain.gates import Answer
from app.domain.inputs import Delivery
from app.engine import evicted_runs, ports


@dataclass(slots=True, kw_only=True, eq=False)
class _OpenInput:
    attempt: int
    operation: operations.Operation
    gate: gates.OpenGate | None
    delivered: asyncio.Future[records.Result] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def expires_at(self) -> str | None:
        return None if self.gate is None else self.gate.expires_at

    def accept(self, delivery: Answer | Delivery) -> bool:
        """Accept a delivery, unless another one was first."""
        if self.delivered.done():
            return False
        self.delivered.set_result(inputs.result(self.gate, delivery))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The result of a delivery."""

    attempt: int  # Attempt of the step that the delivery is for.
    first: bool  # Whether it is the first delivery.
    input: _OpenInput  # The input that the delivery is for.


class InputRegister:
    """Performs `Input` and `Gate`: waits for the first delivery, or accepts a gate's default when its time is over.

    Args:
        sources: Sources that supply the value if it is not delivered, by input name.
    """

    def __init__(self, time: clock.Clock, sources: Mapping[str, ports.Source]) -> None:
        self._clock = time
        self._sources = sources
        self._open: dict[str, dict[str, _OpenInput]] = {}

    async def perform(self, call: ports.Call) -> records.Result:
        """Wait for the delivery; only its record makes it count."""
        of_run = self._open.setdefault(call.run.run_id, {})
        # After an eviction, a delivery may arrive before the step asks again.
        awaited = of_run[call.key] = _delivered(of_run.get(call.key), call) or _OpenInput(
            attempt=call.attempt, operation=call.operation, gate=_gate(call)
        )
        try:
            return await (self._given(awaited, call) if self._gives(awaited) else asyncio.shield(awaited.delivered))
        finally:
            del of_run[call.key]
            # The entry may belong to a later load of the run.
            if not of_run and self._open.get(call.run.run_id) is of_run:
                del self._open[call.run.run_id]

    def drop(self, run_id: str, keys: AbstractSet[str]) -> bool:
        """Drop the open inputs of a run; False if they are others, or one is delivered, timed or has a source."""
        awaited = self._open.get(run_id, {})
        if awaited.keys() != keys or any(one.delivered.done() or self._gives(one) for one in awaited.values()):
            return False
        del self._open[run_id]
        return True

    def open_gates(self, run_id: str | None = None) -> list[gates.OpenGate]:
        """Return the unanswered gates of a run, or of all runs, in the order of asking."""
        open_inputs: Mapping[str, Mapping[str, _OpenInput]] = self._open
        if run_id is not None:
            open_inputs = {run_id: open_inputs.get(run_id, {})}
        return [
            awaited.gate
            for of_run in open_inputs.values()
            for awaited in of_run.values()
            if awaited.gate is not None and not awaited.delivered.done()
        ]

    def is_refused(self, run_id: str, key: str, acceptance: Acceptance) -> bool:
        """Return whether an input is open again, because the delivery that it had accepted could not be written."""
        return self._open.get(run_id, {}).get(key, acceptance.input) is not acceptance.input

    def is_open(self, run_id: str, key: str) -> bool:
        """Return whether a step waits for a delivery."""
        return key in self._open.get(run_id, {})

    def deliver(
        self,
        run_id: str,
        key: str,
        delivery: Answer | Delivery,
        attempt: int | None = None,
        resting: evicted_runs.RestingRun | None = None,
    ) -> Acceptance | None:
        """Deliver to an open step, or to one at which a run rests; return the acceptance, None if there is none.

        Raises:
            errors.Conflict: `gate_lapsed`, `input_lapsed`: that attempt of the step is not the present one.
            errors.RequestInvalid: `unknown_decision`.
        """
        awaited = self._open.get(run_id, {}).get(key) or _rested(resting, key)
        if awaited is None or type(awaited.operation) is not delivery.of:
            return None
        if attempt not in (None, awaited.attempt):
            raise inputs.lapsed(delivery.of.kind, key)
        if awaited.gate is not None and isinstance(delivery, Answer):
            inputs.refuse_unknown(delivery.decision, awaited.gate)
        # The register keeps the answer until the loaded run asks for it.
        if resting is not None:
            self._open.setdefault(run_id, {})[key] = awaited
        # Its time may have run out while no task watched it: then the default came first.
        if self._left_seconds(awaited) <= 0:
            _accept_default(awaited)
        return Acceptance(attempt=awaited.attempt, first=awaited.accept(delivery), input=awaited)

    def forget(self, run_id: str) -> None:
        """Drop deliveries for a run that has left before it asked again."""
        self._open.pop(run_id, None)

    def _gives(self, awaited: _OpenInput) -> bool:
        # Thousands of gates wait without a time limit, and a task for each would take most of their memory.
        operation = awaited.operation
        assert isinstance(operation, operations.Input)
        return awaited.expires_at is not None or operation.name in self._sources

    async def _given(self, awaited: _OpenInput, call: ports.Call) -> records.Result:
        source = asyncio.create_task(self._give(awaited, call))
        try:
            await asyncio.wait((awaited.delivered, source), return_when=asyncio.FIRST_COMPLETED)
            if not awaited.delivered.done():
                # The source ended without a delivery: it failed, and its error is raised here.
                source.result()
            return await awaited.delivered
        finally:
            source.cancel()

    async def _give(self, awaited: _OpenInput, call: ports.Call) -> None:
        """Accept a gate's default, or the value from an input's own source."""
        operation = awaited.operation
        assert isinstance(operation, operations.Input)
        if (source := self._sources.get(operation.name)) is not None:
            awaited.accept(Delivery(value=await source(call), author=inputs.SYSTEM))
        elif awaited.expires_at is not None:
            await self._clock.sleep(self._left_seconds(awaited))
            _accept_default(awaited)

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


def _rested(resting: evicted_runs.RestingRun | None, key: str) -> _OpenInput | None:
    """Return the input that a resting run awaits, opened for a delivery."""
    one = None if resting is None else next((one for one in resting.inputs if one.key == key), None)
    if one is None or resting is None:
        return None
    gate = next((gate for gate in resting.open_gates() if gate.key == key), None)
    return _OpenInput(attempt=one.attempt, operation=one.operation, gate=gate)


def _delivered(earlier: _OpenInput | None, call: ports.Call) -> _OpenInput | None:
    """Return the earlier opened input of a call's step, with a delivery that arrived while the run rested."""
    fits = earlier is not None and (earlier.attempt, earlier.operation) == (call.attempt, call.operation)
    return earlier if fits else None


def _accept_default(awaited: _OpenInput) -> None:
    default = awaited.gate.gate.default if awaited.gate is not None else None
    if default is not None:
        awaited.accept(Answer(decision=default, by_default=True))
