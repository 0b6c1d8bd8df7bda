"""Steps: perform, announce and record the steps of runs; a repeated call finds the recorded line."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from app import clock, errors
from app.domain import capabilities, gates, inputs, operations, plain, runs, states
from app.domain.records import Record, Result
from app.engine import active_step, child_results, journal_lines, ports, run_equipment, step_executor, stores
from app.temporal import messages
from app.temporal.leased_writer import LeasedWriter
from app.temporal.leases import Leases
from app.temporal.replayed_runs import ReplayedRun, ReplayedRuns, Superseded
from app.temporal.slices import Contents, Slice

StartChild = Callable[[ports.Call], Awaitable[str]]
"""Starts the run that a `ChildRun` requests, or finds it, and returns its id."""


@dataclasses.dataclass(slots=True, kw_only=True)
class _OpenStep:
    found: ReplayedRun
    writer: LeasedWriter
    active: active_step.ActiveStep
    executor: step_executor.StepExecutor


class Steps:
    """Continues the steps of runs."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        contents: Contents,
    ) -> None:
        self.leases = Leases(store, equipment.clock)
        """Leases of runs."""
        self.drivers = drivers
        """Drivers by name."""
        self.replayed_runs = ReplayedRuns(equipment)
        """Runs whose drivers are kept."""
        self.equipment = equipment
        """The parts that all runs share."""
        self._store = store
        self._contents = contents
        self.clock = equipment.clock
        """The time."""
        self.cancel_child: Callable[[str], Awaitable[object]] | None = None
        """Requests the end of a run for which no step waits any more."""

    async def perform(
        self, order: messages.StepOrder, follow: Callable[[active_step.ActiveStep], None] = lambda step: None
    ) -> Slice:
        """Perform one attempt of a step, unless its final line exists, and return the line.

        Args:
            follow: Receives the step before it is performed.
        """
        async with self._open(order) as step:
            if isinstance(step, Slice):
                return step
            await self._check_folder(step)
            follow(step.active)
            await step.executor.execute(step.active)
            step.writer.raise_failure()
            return await self._line(step.writer)

    async def _check_folder(self, step: _OpenStep) -> None:
        # As in the embedded engine when it takes a run up: steps would fail, although only the machine is wrong.
        find, found = step.found.equipment.folder_fault, step.found
        start, taken = found.log.loaded.start, found.log.loaded.decisions.taken
        anywhere = capabilities.is_anywhere(step.active.ask.operation, found.equipment.services)
        if find is None or anywhere or found.folder_checked_for == taken:
            return
        fault = find(start, False)
        if fault is None and (taken > 1 or found.count):
            fault = await asyncio.to_thread(find, start, True)
        if fault is not None:
            key = step.active.ask.key
            error = errors.StepError(on_this_machine(fault.message), code=fault.code, detail=fault.detail, key=key)
            raise run_equipment.Parked(fault.code, error)
        found.folder_checked_for = taken

    async def announce(self, order: messages.StepOrder) -> messages.Announced:
        """Record that a step waits from now on."""
        async with self._open(order) as step:
            if isinstance(step, Slice):
                return messages.Announced(due_at=None, recorded=True)
            owner = await step.writer.attached()
            await step.executor.announce(step.active, owner)
            due_at = owner.log.loaded.decisions.due.get(order.key)
            if not isinstance(step.active.ask.operation, operations.ChildRun):
                return messages.Announced(due_at=due_at, is_given=self._gives(step) is not None)
            call = step.executor.call(step.active, owner)
            # The start of a child may take long, and writes to the store as well.
            await step.writer.give_back()
            outcome = await self.equipment.performers[operations.ChildRun.kind].perform(call)
            if outcome.status is not states.StepState.DONE:
                await self._record(step, outcome)
                return messages.Announced(due_at=None, recorded=True)
            return messages.Announced(due_at=due_at, child=str(outcome.output))

    async def finish(self, order: messages.StepOrder) -> Slice | None:
        """Record a step that has waited long enough; return None if its child has not ended yet."""
        if order.is_given:
            return await self._given(order)
        result = await self._of_child(order) if order.child is not None else None
        if order.child is not None and result is None:
            return None
        async with self._open(order) as step:
            if isinstance(step, Slice):
                return step
            await self._record(step, result or _outcome(step))
            return await self._line(step.writer)

    def _gives(self, step: _OpenStep) -> ports.Source | None:
        operation = step.active.ask.operation
        return self.equipment.looks.get(operation.name) if type(operation) is operations.Input else None

    async def _given(self, order: messages.StepOrder) -> Slice | None:
        async with self._open(order) as step:
            if isinstance(step, Slice):
                return step
            source = self._gives(step)
            assert source is not None
            _continue(step)
            call = step.executor.call(step.active, await step.writer.attached())
            # Other callers may deliver meanwhile; the first delivery counts.
            await step.writer.give_back()
            # A source may wait for its answer, and other processes could not write to a leased run.
            value = await source(call)
            if value is None:
                return None
            log = (await step.writer.attached()).log
            dead = log.loaded.decisions.dead
            lines = (line for line in reversed(log.loaded.records) if line.key == order.key)
            if found := next((line for line in lines if line.final and line.position not in dead), None):
                return self._slice(log, found)
            delivery = inputs.Delivery(value=value, author=inputs.SYSTEM)
            await self._record(step, inputs.result(None, delivery))
            return await self._line(step.writer)

    async def open_input(self, run_id: str) -> tuple[str, plain.Json] | None:
        """Return the input that a run awaits, with its shown content; None if it awaits none now."""
        async with self.leases.of(run_id) as log:
            decided = log.loaded.decisions
            if decided.ended is not None or decided.cancel_requested_at is not None:
                # A run that ends has no open questions.
                return None
            found = await self.replayed_runs.of(log, self.driver(log))
            for key, ask in found.scheduler.asks.items():
                if type(ask.operation) is operations.Input and decided.highest_attempt.get(key):
                    return key, ask.operation.shown
        return None

    async def deliver(
        self, order: messages.StepOrder, delivery: gates.Answer | inputs.Delivery, attempt: int | None
    ) -> Record:
        """Record an input delivered to an open step.

        Raises:
            errors.Conflict: `gate_decided`, `input_decided`; `gate_lapsed`, `input_lapsed`.
            errors.NotFound: the step is not open.
        """
        kind = delivery.of.kind
        async with self._open(order) as step:
            if isinstance(step, Slice):
                raise _decided(kind, order.key)
            _continue(step)
            if attempt not in (None, step.active.attempt):
                raise inputs.lapsed(kind, order.key)
            if _is_over(step, self.clock):
                # No worker was there to record the default when the time was over.
                await self._record(step, _outcome(step))
                raise _decided(kind, order.key)
            await self._record(step, _delivered(step, delivery))
            assert step.writer.record is not None
            return step.writer.record

    async def key_order(self, run_id: str, key: str, kind: str) -> messages.StepOrder:
        """Return the order of an open step by its key.

        Raises:
            errors.Conflict: `gate_decided`, `input_decided`, perhaps a moment ago at another service.
            errors.NotFound: no step with that key is open.
        """
        async with self.leases.of(run_id) as log:
            found = await self.replayed_runs.of(log, self.driver(log))
            ask, recorded = found.scheduler.asks.get(key), found.final_of(key)
        if recorded is not None:
            raise _decided(kind, key)
        if ask is None:
            raise errors.NotFound(f"the run {run_id} has no open step {key!r:.80}", code=f"{kind}_not_found", key=key)
        return messages.StepOrder(run_id=run_id, key=key, operation=ask.fingerprint, branch=ask.branch)

    def driver(self, log: stores.RunLog) -> ports.Driver:
        """Return the driver of a run.

        Raises:
            errors.DriverFault: `unknown_dialect`, `driver_newer`.
        """
        return ports.driver_of(self.drivers, log.loaded.start)

    def hiding(self, start: runs.RunStart) -> run_equipment.Equipment:
        """Return the equipment of a run, which masks the secrets that the run's recipe names."""
        driver = self.drivers.get(start.dialect)
        return self.equipment if driver is None else self.equipment.hiding_for(driver, start.recipe)

    async def masked(self, run_id: str, text: str) -> str:
        """Return a text about a run with its secrets masked; while they are unknown, return a fixed text instead."""
        try:
            # Without the run, its secrets are unknown.
            start = (await self._store.read(run_id)).start
        except (errors.ControlRoomError, errors.Fault):
            return "its journal cannot be read now"
        shown: str = self.hiding(start).masker.mask_cut(text)
        return shown

    @asynccontextmanager
    async def _open(self, order: messages.StepOrder) -> AsyncIterator[_OpenStep | Slice]:
        writer = LeasedWriter(order.run_id, self.leases, self.equipment)
        try:
            owner = await writer.attached()
            found = await self.replayed_runs.of(owner.log, self.driver(owner.log))
            found.projection.touch()
            recorded = found.final_of(order.key)
            yield self._slice(found.log, recorded) if recorded else self._step(found, writer, order)
        finally:
            await writer.give_back()

    def _step(self, found: ReplayedRun, writer: LeasedWriter, order: messages.StepOrder) -> _OpenStep:
        active, loaded = found.active_step_of(order), found.log.loaded
        performers = {kind: writer.performs(each) for kind, each in found.equipment.performers.items()}
        equipment = dataclasses.replace(found.equipment, performers=performers)
        executor = step_executor.StepExecutor(loaded.start, equipment, writer)
        executor.remember(found.lines.get(order.key, ()))
        return _OpenStep(found=found, writer=writer, active=active, executor=executor)

    async def _record(self, step: _OpenStep, result: Result) -> None:
        owner = await step.writer.attached()
        _continue(step, owner.log)
        step.active.duration_seconds = max(0.0, (self.clock.now() - step.active.started_at).total_seconds())
        await step.executor.record(step.active, journal_lines.masked(step.found.equipment.masker, result))
        step.writer.raise_failure()
        await owner.log.move(runs.Transition.begin(owner.log.loaded.start.run_id, clock.stamp(self.clock.now())))

    async def _line(self, writer: LeasedWriter) -> Slice:
        owner = await writer.attached()
        assert writer.record is not None
        return self._slice(owner.log, writer.record)

    def _slice(self, log: stores.RunLog, record: Record) -> Slice:
        wanted = Slice(run_id=log.loaded.start.run_id, first=record.position, count=1)
        return self._contents.of_lines(log.loaded.start, [record], wanted)

    async def _of_child(self, order: messages.StepOrder) -> Result | None:
        assert order.child is not None
        ended = (await self._store.read(order.child)).decisions.ended
        if ended is not None:
            return await child_results.result(self._store, self.drivers, order.child, ended.status)
        if not order.is_over:
            return None
        # Before the line, as the process may die: otherwise the child would work on for a parent that has continued
        # without it.
        if self.cancel_child is not None:
            with suppress(errors.WrongState):
                await self.cancel_child(order.child)
        return child_results.timed_out(order.child)


class ChildStarts:
    """Starts a child instead of waiting for it."""

    def __init__(self, start: StartChild) -> None:
        self._start = start

    async def perform(self, call: ports.Call) -> Result:
        """Start the child, and return its id."""
        try:
            return Result(output=await self._start(call))
        except errors.ControlRoomError as error:
            is_local = isinstance(error, errors.UnknownRecipe | errors.RecipeInvalid | errors.NotReady)
            message = on_this_machine(error.message) if is_local else error.message
            return child_results.failed(error.code, message, None)


def on_this_machine(message: str) -> str:
    """Return a message about what differs between machines, such as recipes and versions, with the name of this one."""
    return f"On the machine {socket.gethostname()}: {message}"


def _decided(kind: str, key: str) -> errors.Conflict:
    return errors.Conflict(f"the {kind} {key!r} is decided", code=f"{kind}_decided", key=key)


def _continue(step: _OpenStep, log: stores.RunLog | None = None) -> None:
    key, active, decided = step.active.ask.key, step.active, (log or step.found.log).loaded.decisions
    active.attempt = decided.highest_attempt.get(key, 0)
    if active.attempt == 0:
        raise Superseded
    attempts = decided.attempts.get(key)
    at = decided.asked.get(key) or (attempts[-1].at if attempts else None)
    if at is not None:
        active.started_at = clock.instant(at)
        active.announced_at = ""


def _is_over(step: _OpenStep, time: clock.Clock) -> bool:
    operation, due_at = step.active.ask.operation, step.found.log.loaded.decisions.due.get(step.active.ask.key)
    has_default = isinstance(operation, operations.Gate) and operation.default is not None
    return has_default and due_at is not None and clock.instant(due_at) <= time.now()


def _outcome(step: _OpenStep) -> Result:
    operation = step.active.ask.operation
    if isinstance(operation, operations.Gate) and operation.default is not None:
        return _delivered(step, gates.Answer(decision=operation.default, by_default=True))
    return Result()


def _delivered(step: _OpenStep, delivery: gates.Answer | inputs.Delivery) -> Result:
    operation, loaded, gate = step.active.ask.operation, step.found.log.loaded, None
    if isinstance(operation, operations.Gate):
        _continue(step)
        key, attempt = step.active.ask.key, step.active.attempt
        gate = gates.OpenGate.of(loaded.start, key, attempt, operation, loaded.decisions)
    if gate is not None and isinstance(delivery, gates.Answer):
        inputs.refuse_unknown(delivery.decision, gate)
    return inputs.result(gate, delivery)
