"""The step executor: takes one step from its `started` line to its final journal line, in visible phases."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TypeVar

from app import clock, errors
from app.domain import capabilities, gates, operations, plain
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.domain.records import BLOB_BYTES, BlobRef, Record, Result
from app.domain.runs import RunStart
from app.domain.states import StepState
from app.engine import journal_lines, ports, step_rules, workspace_faults
from app.engine.active_step import ActiveStep
from app.engine.driver_scheduler import Ask
from app.engine.run_equipment import Equipment, Parked
from app.engine.runner_link import RunnerLink, StepOwner

T = TypeVar("T")

_log = logging.getLogger(__name__)


class StepExecutor:
    """Executes the steps of one run, each in its own task.

    A step passes its phases in the order of `execute`. It counts once its line is on disk: after a crash before that
    the step is repeated as its next attempt, after a crash later its line is found.
    """

    def __init__(self, start: RunStart, equipment: Equipment, link: RunnerLink | None = None) -> None:
        self._start = start
        self._equipment = equipment
        self._clock = equipment.clock
        self._masker = equipment.masker
        self._reach = equipment.probes.reach
        self._recorded: dict[str, tuple[int, ...]] = {}
        self._committed: dict[str, dict[str, str]] = {}
        self.link = link or RunnerLink(start.run_id)
        """Reaches the attached runner; steps of an evicted run wait for one."""

    def remember(self, records: Iterable[Record]) -> None:
        """Replace the known attempts that left a line, and the files that they committed."""
        self._recorded = {}
        self._committed = {}
        for record in records:
            self._recorded[record.key] = (*self._recorded.get(record.key, ()), record.attempt)
            if committed := record.committed:
                self._committed.setdefault(record.key, {}).update(committed)

    async def execute(self, step: ActiveStep) -> None:
        """Execute a step until one of its attempts is final; the runner receives each record and any failure."""
        try:
            owner = self.link.owner or await self.link.attached()
            decided = self._rescue(step, owner) if step.ask.key in owner.log.loaded.decisions.attempts else None
            while True:
                holds_capacity = step.idle or self._start.run_id in owner.capacity.holders
                if step.history or not holds_capacity:
                    await self._prepare(step, owner)
                if decided is None and isinstance(step.ask.operation, operations.AgentCall | operations.Command):
                    await self.reserve(step, owner)
                await self.announce(step, owner)
                call = self.call(step, owner)
                # The run may be evicted while the performer is at work, so this frame must not refer to its runner.
                del owner
                result = decided or await self._perform(step, call)
                if result is not None:
                    record = await self.record(step, result)
                    if step.is_last or (record is not None and record.final):
                        return
                owner = self.link.owner or await self.link.attached()
                decided = self._rescue_again(step, owner) if result is None else None
        except asyncio.CancelledError:
            raise
        except BaseException as failure:  # noqa: BLE001 - the runner raises it where the run is settled
            self.link.report(step, failure)
        finally:
            if step.reservation is not None:
                step.reservation.close()

    # -- rescue: may it be performed after attempts that were cut off?

    def _rescue(self, step: ActiveStep, owner: StepOwner) -> Result | None:
        key, attempts = step.ask.key, owner.log.loaded.decisions.attempts.get(step.ask.key)
        if not attempts:
            return None
        match step_rules.rescue(step.ask.operation, attempts, self._recorded.get(key, ())):
            case step_rules.Rescue.CRASH_LOOP:
                error = step_rules.cut_off(key, "crash_loop", "was cut off too often", len(attempts))
                raise Parked(error.code, error)
            case step_rules.Rescue.ASK:
                error = step_rules.cut_off(key, "step_interrupted", "must not be repeated unasked", 1)
                raise Parked(error.code, error)
            case step_rules.Rescue.FAIL:
                return step_rules.failed("interrupted", f"the step {key!r} was cut off and must not be repeated")
        return None

    def _rescue_again(self, step: ActiveStep, owner: StepOwner) -> Result | None:
        # As after a kill of the service, a further attempt is made, so that the journal shows the previous one.
        owner.log.add_event(EventType.STEP_INTERRUPTED, step.ask.key, {"attempt": step.attempt})
        return self._rescue(step, owner)

    # -- prepare: wait for a retry's delay, and for capacity

    async def _prepare(self, step: ActiveStep, owner: StepOwner) -> None:
        if step.history and step.history[-1].retry_at:
            due = clock.instant(step.history[-1].retry_at)
            await self._clock.sleep((due - self._clock.now()).total_seconds())
        if not step.idle:
            await owner.capacity.enter()

    async def reserve(self, step: ActiveStep, owner: StepOwner) -> None:
        """Reserve for an operation that calls an agent; one that does not fit a limit or budget parks the run."""
        operation, spending = step.ask.operation, self._equipment.spending
        if spending is not None and capabilities.calls_agent(operation):
            if step.reservation is not None:
                step.reservation.close()
            step.reserving = True
            try:
                step.reservation = await spending.reserve(owner.log.loaded, step.ask.key, operation)
            finally:
                step.reserving = False

    # -- announce: the `started` line, synced where a power cut must not forget it

    async def announce(self, step: ActiveStep, owner: StepOwner) -> None:
        """Begin an attempt, and write its `started` line unless the step continues an earlier wait."""
        self._reach("step.before_started")
        step.performing, step.output_at = not step.idle, None
        rested = step.begun and not step.attempt
        step.started_at, step.began_seconds = self._clock.now(), self._clock.monotonic()
        step.announced_at = clock.stamp(step.started_at)
        if not (step.idle and self._continues_waiting(step, owner)):
            await self._write_started(step, owner)
        if isinstance(step.ask.operation, operations.Input):
            self._show_awaited(step, step.ask.operation, owner, announced=rested)
        self._reach("step.after_started")
        step.begun = True
        owner.began(step)

    def _continues_waiting(self, step: ActiveStep, owner: StepOwner) -> bool:
        # After a restart, a wait continues as the same attempt with the same due time: another `started` line would
        # give it its whole time again.
        key, decisions = step.ask.key, owner.log.loaded.decisions
        highest = decisions.highest_attempt.get(key, 0)
        if highest == 0 or highest in self._recorded.get(key, ()):
            return False
        if isinstance(step.ask.operation, operations.Input) and key not in decisions.asked:
            return False
        step.attempt = highest
        return step_rules.due_seconds(step.ask.operation) is None or key in decisions.due

    async def _write_started(self, step: ActiveStep, owner: StepOwner) -> None:
        ask, operation, at = step.ask, step.ask.operation, step.announced_at
        # After a power cut an unsynced `started` line may be gone although the line of its step is present.
        earlier = (owner.log.loaded.decisions.highest_attempt.get(ask.key, 0), *self._recorded.get(ask.key, ()))
        step.attempt = max(earlier) + 1
        facts: dict[str, plain.Json] = {"key": ask.key, "attempt": step.attempt, "operation": ask.fingerprint}
        facts |= {"step_id": ask.place.step_id, "phase": ask.place.phase}
        if ask.branch:
            facts["branch"] = ask.branch
        wait = step_rules.due_seconds(operation) if step.idle else None
        if wait is not None:
            facts["due_at"] = clock.stamp(step.started_at + timedelta(seconds=wait))
        if isinstance(operation, operations.Gate):
            facts["gate_id"] = gates.gate_id(self._start.run_id, ask.key, step.attempt)
        if isinstance(operation, operations.Input):
            facts["asked_at"] = at
        facts |= {} if step.reservation is None else step.reservation.begin(step.attempt)
        # A step that only reads leaves no trace: if a power cut takes its line, its repetition is its first attempt.
        sync = operation.outside or wait is not None or operation.on_interrupted != "rerun"
        write = functools.partial(owner.log.decide, DecisionKind.STARTED, facts, sync=sync, at=at)
        try:
            await write()
        except errors.StorageFault as fault:
            await owner.storage_retry.retry(fault, write)
        if step.reservation is not None and (release := step.reservation.release) is not None:
            release()

    def _show_awaited(self, step: ActiveStep, awaited: operations.Input, owner: StepOwner, *, announced: bool) -> None:
        log, key = owner.log, step.ask.key
        # Its time began when the run first asked it, perhaps in an earlier process.
        step.started_at = clock.instant(log.loaded.decisions.asked[key])
        step.announced_at = clock.stamp(step.started_at)
        if isinstance(awaited, operations.Gate) and not announced:
            gate = gates.OpenGate.of(self._start, key, step.attempt, awaited, log.loaded.decisions)
            log.add_event(EventType.GATE_OPENED, key, self._masker.mask(gate.facts()))

    # -- perform: the only phase that reaches outside

    async def _perform(self, step: ActiveStep, call: ports.Call) -> Result | None:
        operation, run_id = step.ask.operation, self._start.run_id
        performer = self._equipment.performers.get(operation.kind)
        if performer is None:
            return step_rules.failed("no_performer", f"nothing here performs {operation.kind!r}")
        if operation.outside and run_id.encode() in step.ask.encoded:
            await self._update_snapshots()
        self._reach("step.performing")
        step.away = True
        status = "interrupted"
        try:
            try:
                result = await performer.perform(call)
            except (errors.WorkspaceFault, errors.StorageFault) as fault:
                result = await self._perform_again(step, performer, call, fault)
            status = result.status._value_
            if (result.status is StepState.FAILED) != (result.error is not None):
                result = step_rules.unsound(result)
            return journal_lines.masked(self._masker, result)
        except ports.Interrupted as cut:
            # No record is written: a failure would be replayed forever, although only its process was killed.
            _log.warning("the step %s of %s was cut off: %s", step.ask.key, run_id, cut.cause.message)
            return None
        except Exception as error:  # noqa: BLE001 - a broken performer fails its step, not the engine
            status = StepState.FAILED.value
            return journal_lines.masked(self._masker, workspace_faults.result_of(run_id, step.ask.key, error))
        finally:
            step.duration_seconds = self._clock.monotonic() - step.began_seconds
            step.away = False
            if not step.idle and self._equipment.observe is not None:
                self._equipment.observe(operation.kind, status, step.duration_seconds)
            self._reach("step.performed")

    async def _perform_again(
        self,
        step: ActiveStep,
        performer: ports.Performer,
        call: ports.Call,
        fault: errors.WorkspaceFault | errors.StorageFault,
    ) -> Result:
        for times in itertools.count():
            if isinstance(fault, errors.WorkspaceFault):
                await self._wait_for_workspace(fault, step, times)
            elif step.ask.operation.outside:
                raise fault
            else:
                # A write of files outside the folder, such as issues, waits for space too.
                await self._heal(fault)
            try:
                result = await performer.perform(call)
            except (errors.WorkspaceFault, errors.StorageFault) as again:
                fault = again
            else:
                break
        async with self.link.use() as owner:
            owner.log.add_event(EventType.STORAGE_HEALED)
        return result

    async def _heal(self, fault: errors.StorageFault) -> None:
        async with self.link.use() as owner:
            await owner.storage_retry.heal(fault)

    async def _wait_for_workspace(self, fault: errors.WorkspaceFault, step: ActiveStep, times: int) -> None:
        async with self.link.use() as owner:
            await owner.storage_retry.postpone(fault, times, step.ask.key, step.attempt)
            if not step.idle:
                await owner.capacity.enter()

    def call(self, step: ActiveStep, owner: StepOwner) -> ports.Call:
        """Return the attempt as its performer sees it."""
        ask, decisions = step.ask, owner.log.loaded.decisions
        return ports.Call(
            run=self._start,
            key=ask.key,
            attempt=step.attempt,
            operation=ask.operation,
            place=ask.place,
            due_at=decisions.due.get(ask.key),
            read_blob=self._read_blob_for_outside if ask.operation.outside else self._read_blob,
            write_log=self._write_log,
            asked_at=decisions.asked.get(ask.key),
            retry_until_space=self._retry_until_space,
            append_log=self.link.append_log,
            live=step,
            masker=self._masker,
            recorded=self._recorded.get(ask.key, ()),
            committed=self._committed.get(ask.key, {}),
            exchanges=step.exchanges,
            cap_usd=None if step.reservation is None else step.reservation.cap_usd,
        )

    async def _write_log(self, name: str, text: str) -> None:
        # A reply that has cost money must not be lost because its log cannot be written now.
        async with self.link.use() as owner:
            await owner.storage_retry.commit(lambda: owner.log.write_log(name, self._masker.mask(text)))

    async def _retry_until_space(self, write: Callable[[], Awaitable[T]]) -> T:
        try:
            return await write()
        except errors.StorageFault as fault:
            # Only at this point does the run have to be loaded.
            async with self.link.use() as owner:
                return await owner.storage_retry.retry(fault, write)

    async def _read_blob(self, blob: BlobRef) -> plain.Json:
        # An evicted run is loaded for this read.
        async with self.link.use() as owner:
            return await owner.storage_retry.get_blob(blob)

    async def _read_blob_for_outside(self, blob: BlobRef) -> plain.Json:
        content = await self._read_blob(blob)
        if self._start.run_id in (content if isinstance(content, str) else plain.encode(content).decode()):
            await self._update_snapshots()
        return content

    async def _update_snapshots(self) -> None:
        # A program that knows the run's folder may read the snapshots there.
        async with self.link.use() as owner:
            await owner.storage_retry.commit(owner.log.flush)

    # -- record: build the line, append it, write its receipt, hand the record over

    async def record(self, step: ActiveStep, result: Result) -> Record | None:
        """Make a result durable; return None for a delivery that could not be written, whose input is open again."""
        # From here on, an interruption lets the record be written, even while the run is evicted.
        step.committing = True
        delivery = step.ask.operation.kind == operations.Input.kind
        try:
            owner = self.link.owner or await self.link.attached()
            line = await self._build_line(step, owner, result)
            self._reach("step.before_append")
            try:
                record = await owner.log.append_step(line)
            except errors.StorageFault as fault:
                if delivery:
                    raise
                record = await owner.storage_retry.retry(fault, lambda: owner.log.append_step(line))
            self._reach("step.after_append")
            self._recorded[record.key] = (*self._recorded.get(record.key, ()), step.attempt)
            step.history.append(record)
            if step.reservation is not None:
                # Only after the line is written: after a crash the ledger is rebuilt from the journal.
                step.reservation.charge(record)
            if record.receipt_id is not None:
                await self._add_receipt(owner, record)
            owner.arrived(record)
            return record
        except errors.StorageFault as fault:
            if not delivery:
                raise
            # A delivery that cannot be written now was refused to its sender, and must not count later.
            await self._heal(fault)
            return None
        finally:
            step.committing = step.performing = False

    async def _build_line(self, step: ActiveStep, owner: StepOwner, result: Result) -> dict[str, plain.Json]:
        step.result = result
        step.completed_at = self._clock.now()
        step.retry_at = None
        if result.status is StepState.FAILED and (policy := step.ask.operation.retry) is not None:
            delay = step_rules.retry_delay_seconds(policy, result, len(step.history) + 1)
            if delay is not None:
                step.retry_at = clock.stamp(step.completed_at + timedelta(seconds=delay))
        if step.reservation is not None and step.reservation.ended_by_limit(result):
            # The next attempt parks the run, and begins once the limit is raised.
            step.retry_at = clock.stamp(step.completed_at)
        output, ask = result.output, step.ask
        encoded = output.encode() if isinstance(output, str) else b"" if output is None else plain.content(output)
        blob = None
        if len(encoded) > BLOB_BYTES:
            keep = functools.partial(owner.log.put_blob, encoded, text=isinstance(output, str))
            blob = await (keep() if ask.operation.kind == operations.Input.kind else owner.storage_retry.commit(keep))
        body = self._masker.mask(ask.body)
        if body is ask.body and len(ask.encoded) <= operations.INLINE_BODY_BYTES:
            operation: dict[str, plain.Json] = {"hash": ask.fingerprint, "body": body}
        else:
            operation = await self._large_operation(owner, ask, body)
        return journal_lines.line(self._start.run_id, step, encoded, blob=blob, operation=operation)

    async def _large_operation(self, owner: StepOwner, ask: Ask, body: plain.Json) -> dict[str, plain.Json]:
        encoded = ask.encoded if body is ask.body else plain.canonical(body)
        if len(encoded) <= operations.INLINE_BODY_BYTES:
            return {"hash": ask.fingerprint, "body": body}
        if ask.operation.idle and ask.operation.kind != operations.Gate.kind:
            return {"hash": ask.fingerprint, "kind": ask.operation.kind}
        if ask.operation.kind not in (operations.ToolCall.kind, operations.Gate.kind):
            return {"hash": ask.fingerprint}
        blob = await owner.storage_retry.commit(lambda: owner.log.put_blob(encoded, text=False))
        return {"hash": ask.fingerprint, "blob": blob.to_json()}

    async def _add_receipt(self, owner: StepOwner, record: Record) -> None:
        self._reach("step.before_receipt")
        await owner.storage_retry.commit(lambda: owner.log.add_receipt(record))
        self._reach("step.after_receipt")
