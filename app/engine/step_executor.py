"""Stepping: one step from its `started` line to its final journal line, retries included."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from app import clock, errors
from app.domain import gates, operations, plain
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.domain.records import BLOB_BYTES, BlobRef, Record, Result
from app.domain.runs import RunStart
from app.domain.states import StepState
from app.engine import interruptions, journal_lines, ports, probes, step_decisions, workspace_faults
from app.engine.driver_scheduler import Ask
from app.engine.interning import Interner
from app.engine.journal_lines import Content, Try
from app.engine.open_steps import Work
from app.engine.run_writer import RunWriter

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What every run of a process shares."""

    performers: dict[str, ports.Performer]
    """Performers by kind of operation."""
    clock: clock.Clock
    """The time."""
    masker: plain.Masker
    """Hides secrets before anything is encoded."""
    probes: probes.Probes
    """Named points for tests."""
    copies: Interner = field(default_factory=Interner)
    """What runs have frozen alike."""
    sources: Mapping[str, ports.Source] = field(default_factory=dict)
    """What gives inputs their values from within, by their names."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment that recipes can name secrets of."""

    def hiding(self, secrets: ports.Secrets) -> Equipment:
        """Return it with further secrets masked."""
        values = {self.environ[name] for name in secrets.names if name in self.environ} | secrets.texts
        if short := self._too_short(secrets):
            _log.warning("secrets too short to be masked: %s", ", ".join(short))
        return dataclasses.replace(self, masker=self.masker.hiding(values)) if values else self

    def _too_short(self, secrets: ports.Secrets) -> list[str]:
        return sorted(name for name in secrets.names if 0 < len(self.environ.get(name, "")) < plain.SHORTEST_SECRET)


class Parked(BaseException):
    """The step cannot be performed now, and its run waits for a person."""

    def __init__(self, reason: str, error: errors.StepError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


class StepExecutor:
    """Carry out the steps of one run."""

    def __init__(self, start: RunStart, equipment: Equipment) -> None:
        self._start = start
        self._equipment = equipment
        self._recorded: dict[str, tuple[int, ...]] = {}
        self.writer = RunWriter(start.run_id)
        """What it writes with."""

    def know(self, records: Iterable[Record]) -> None:
        """Take in the tries that left a line, instead of those known before."""
        self._recorded = {}
        for record in records:
            self._note_recorded(record.key, record.attempt)

    async def carry_out(self, work: Work) -> None:
        """Perform a step until a try is final; each try's record is handed to `landed`.

        Raises:
            Parked: it was cut off too often, or must not be repeated unasked.
        """
        result = self._rescue(work)
        while True:
            await self._wait_for_turn(work)
            await self._begin(work)
            if result is None:
                result = await self._perform(work)
            if result is None:
                result = await self._begin_again(work)
                continue
            record = await self._record(work, result)
            if work.cut or (record is not None and record.final):
                return
            result = None

    def _rescue(self, work: Work) -> Result | None:
        key, decisions = work.ask.key, self.writer.log.loaded.decisions
        tries = decisions.tries.get(key, [])
        match step_decisions.rescue(work.ask.operation, tries, self._recorded.get(key, ())):
            case step_decisions.Rescue.CRASH_LOOP:
                raise Parked("crash_loop", _cut_off(key, "crash_loop", "was cut off too often", len(tries)))
            case step_decisions.Rescue.ASK:
                raise Parked("step_interrupted", _cut_off(key, "step_interrupted", "must not be repeated unasked", 1))
            case step_decisions.Rescue.FAIL:
                return step_decisions.failed("interrupted", f"the step {key!r} was cut off and must not be repeated")
        return None

    async def _wait_for_turn(self, work: Work) -> None:
        if work.history and work.history[-1].retry_at:
            due = clock.instant(work.history[-1].retry_at)
            await self._equipment.clock.sleep((due - self._equipment.clock.now()).total_seconds())
        if not work.idle:
            await self.writer.enter()

    async def _begin(self, work: Work) -> None:
        self._reach("step.before_started")
        work.performing = not work.idle
        work.started_at = self._equipment.clock.now()
        work.began = self._equipment.clock.monotonic()
        if not self._goes_on_waiting(work):
            await self._note_start(work)
        if isinstance(work.ask.operation, operations.Input):
            self._tell_asked(work, work.ask.operation)
        self._reach("step.after_started")
        work.begun = True
        self.writer.began(work.idle)

    def _goes_on_waiting(self, work: Work) -> bool:
        key, decisions = work.ask.key, self.writer.log.loaded.decisions
        highest = decisions.highest_attempt.get(key, 0)
        if not work.idle or highest == 0 or highest in self._recorded.get(key, ()):
            return False
        if isinstance(work.ask.operation, operations.Input) and key not in decisions.asked:
            return False
        work.attempt = highest
        return _due_seconds(work.ask.operation) is None or key in decisions.due

    async def _note_start(self, work: Work) -> None:
        ask, decisions = work.ask, self.writer.log.loaded.decisions
        work.attempt = max(decisions.highest_attempt.get(ask.key, 0), *self._recorded.get(ask.key, ()), 0) + 1
        facts: dict[str, plain.Json] = {"key": ask.key, "attempt": work.attempt, "operation": ask.fingerprint}
        if ask.branch:
            facts["branch"] = ask.branch
        wait, began = _due_seconds(ask.operation), work.started_at or self._equipment.clock.now()
        if wait is not None:
            facts["due_at"] = clock.stamp(began + timedelta(seconds=wait))
        if isinstance(ask.operation, operations.Gate):
            facts["gate_id"] = gates.gate_id(self._start.run_id, ask.key, work.attempt)
        if isinstance(ask.operation, operations.Input):
            facts["asked_at"] = clock.stamp(began)
        # A step that only reads leaves nothing: a power cut may take its line, and its repetition is its first try.
        sync = ask.operation.outside or wait is not None or ask.operation.on_interrupted != "rerun"
        await self.writer.durability.commit(lambda: self.writer.log.decide(DecisionKind.STARTED, facts, sync=sync))
        told = {"step_id": ask.place.step_id, "phase": ask.place.phase, "attempt": work.attempt}
        self.writer.log.add_event(EventType.STEP_STARTED, ask.key, told)

    def _tell_asked(self, work: Work, awaited: operations.Input) -> None:
        log = self.writer.log
        # Its time began when it was asked, perhaps in a process before this one.
        work.started_at = clock.instant(log.loaded.decisions.asked[work.ask.key])
        if not isinstance(awaited, operations.Gate):
            return
        asked = gates.OpenGate.of(self._start, work.ask.key, work.attempt, awaited, log.loaded.decisions)
        log.add_event(EventType.GATE_OPENED, work.ask.key, self._equipment.masker.mask(asked.told()))

    async def _begin_again(self, work: Work) -> Result | None:
        # As after a kill of the service: a further try, so that the journal shows that there was one before.
        await self.writer.reach()
        self.writer.log.add_event(EventType.STEP_INTERRUPTED, work.ask.key, {"attempt": work.attempt})
        return self._rescue(work)

    async def _perform(self, work: Work) -> Result | None:
        performer = self._equipment.performers.get(work.ask.operation.kind)
        if performer is None:
            return step_decisions.failed("no_performer", f"nothing here performs {work.ask.operation.kind!r}")
        if work.ask.operation.outside and self._start.run_id.encode() in work.ask.encoded:
            await self._show()
        self._reach("step.performing")
        work.away = True
        try:
            return self._masked(step_decisions.sound(await self._performed(performer, work)))
        except interruptions.Interrupted as cut:
            _log.warning("the step %s of %s was cut off: %s", work.ask.key, self._start.run_id, cut.cause.message)
            return None
        except (errors.StepError, errors.InputRefused) as error:
            return self._masked(step_decisions.failed(error.code, error.message, error.detail))
        except OSError as error:
            if workspace_faults.passes(error.errno):
                raise workspace_faults.parks(error) from error
            _log.error("performing failed: %s", error, extra={"run_id": self._start.run_id, "key": work.ask.key})
            return self._masked(workspace_faults.failed(error))
        except Exception as error:  # noqa: BLE001 - a broken performer fails its step, not the engine
            _log.exception("performing failed", extra={"run_id": self._start.run_id, "key": work.ask.key})
            return self._masked(step_decisions.failed("internal_error", f"{type(error).__name__}: {error}"))
        finally:
            work.away = False
            self._reach("step.performed")

    async def _performed(self, performer: ports.Performer, work: Work) -> Result:
        for times in itertools.count():
            try:
                result = await performer.perform(self._call(work))
            except errors.WorkspaceFault as fault:
                await self._wait_for_workspace(fault, work, times)
            except errors.StorageFault as fault:
                if work.ask.operation.outside:
                    raise
                # What is kept beside the folder, as issues are, waits for room too; a run asleep holds no old home.
                await self.writer.durability.heal(fault)
            else:
                if times:
                    async with self.writer.visit() as log:
                        log.add_event(EventType.STORAGE_HEALED)
                break
        return result

    async def _wait_for_workspace(self, fault: errors.WorkspaceFault, work: Work, times: int) -> None:
        async with self.writer.visit():
            await self.writer.durability.postpone(fault, times)
            if not work.idle:
                await self.writer.enter()

    def _call(self, work: Work) -> ports.Call:
        return ports.Call(
            run=self._start,
            key=work.ask.key,
            attempt=work.attempt,
            operation=work.ask.operation,
            place=work.ask.place,
            due_at=self.writer.log.loaded.decisions.due.get(work.ask.key),
            read_blob=self._read_blob if not work.ask.operation.outside else self._read_blob_for_outside,
            write_log=self._write_log,
            asked_at=self.writer.log.loaded.decisions.asked.get(work.ask.key),
            insist=self._insist,
            masker=self._equipment.masker,
            recorded=self._recorded.get(work.ask.key, ()),
            exchanges=work.exchanges,
        )

    async def _write_log(self, name: str, text: str) -> None:
        # A reply that was paid for must not be lost because its log cannot be written now.
        async with self.writer.visit() as log:
            await self.writer.durability.commit(lambda: log.write_log(name, self._equipment.masker.mask(text)))

    async def _insist(self, write: Callable[[], Awaitable[T]]) -> T:
        try:
            return await write()
        except errors.StorageFault as fault:
            # Only now does the run have to be awake.
            async with self.writer.visit():
                await self.writer.durability.heal(fault)
                return await self.writer.durability.commit(write)

    async def _read_blob(self, blob: BlobRef) -> plain.Json:
        async with self.writer.visit():
            return await self.writer.durability.get_blob(blob)

    async def _read_blob_for_outside(self, blob: BlobRef) -> plain.Json:
        content = await self._read_blob(blob)
        if self._start.run_id in (content if isinstance(content, str) else plain.encode(content).decode()):
            async with self.writer.visit():
                await self._show()
        return content

    async def _show(self) -> None:
        """Bring the snapshots up to date, because a program that is told of the run's folder may look into it."""
        await self.writer.durability.commit(self.writer.log.rest)

    async def _record(self, work: Work, result: Result) -> Record | None:
        """Make a result durable; None for a delivery that could not be written, whose input is then open again."""
        work.committing = True
        try:
            await self.writer.reach()
            return await self._commit(work, result)
        except errors.StorageFault as fault:
            if work.ask.operation.kind != operations.Input.kind:
                raise
            await self.writer.durability.heal(fault)
            return None
        finally:
            work.committing = work.performing = False

    async def _commit(self, work: Work, result: Result) -> Record:
        ask, done = work.ask, self._try(work, result)
        # A delivery that cannot be written now was refused, and must not count later.
        commit = _once if ask.operation.kind == operations.Input.kind else self.writer.durability.commit
        content, blob = done.content, None
        if len(content.encoded) > BLOB_BYTES:
            blob = await commit(lambda: self.writer.log.put_blob(content.encoded, text=content.text))
        line = journal_lines.line(self._start.run_id, ask, done, blob=blob, operation=await self._operation(ask))
        self._reach("step.before_append")
        record = await commit(lambda: self.writer.log.append_step(line))
        self._reach("step.after_append")
        self._note_recorded(ask.key, work.attempt)
        work.history.append(record)
        await self._prove(record)
        self._tell(record)
        self.writer.landed(record)
        return record

    def _try(self, work: Work, result: Result) -> Try:
        now = self._equipment.clock.now()
        delay = step_decisions.retry_delay_seconds(work.ask.operation.retry, result, len(work.history) + 1)
        return Try(
            attempt=work.attempt,
            started_at=work.started_at or now,
            completed_at=now,
            duration_seconds=self._equipment.clock.monotonic() - work.began,
            result=result,
            content=_content(result.output),
            earlier=work.history,
            retry_at=None if delay is None else clock.stamp(now + timedelta(seconds=delay)),
        )

    async def _keep(self, content: Content) -> BlobRef:
        return await self.writer.durability.commit(lambda: self.writer.log.put_blob(content.encoded, text=content.text))

    async def _operation(self, ask: Ask) -> dict[str, plain.Json]:
        masked = self._equipment.masker.mask(ask.body)
        encoded = ask.encoded if masked is ask.body else plain.canonical(masked)
        if len(encoded) <= operations.INLINE_BODY_BYTES:
            return {"hash": ask.fingerprint, "body": masked}
        if ask.operation.kind == operations.Input.kind:
            return {"hash": ask.fingerprint, "kind": ask.operation.kind}
        if ask.operation.kind not in (operations.ToolCall.kind, operations.Gate.kind):
            return {"hash": ask.fingerprint}
        blob = await self._keep(Content(value=masked, encoded=encoded))
        return {"hash": ask.fingerprint, "blob": blob.to_json()}

    async def _prove(self, record: Record) -> None:
        if record.receipt_id is not None:
            self._reach("step.before_receipt")
            await self.writer.durability.commit(lambda: self.writer.log.add_receipt(record))
            self._reach("step.after_receipt")

    def _tell(self, record: Record) -> None:
        told: dict[str, plain.Json] = {"position": record.position, "step_id": record.line["step_id"]}
        told |= {"duration_ms": record.line["duration_ms"], "attempt": record.attempt}
        if not record.final:
            told |= {"error": record.line["error"], "retry_at": record.retry_at}
            self.writer.log.add_event(EventType.STEP_RETRYING, record.key, told)
        elif record.status is StepState.FAILED:
            self.writer.log.add_event(EventType.STEP_FAILED, record.key, told | {"error": record.line["error"]})
        else:
            told |= {"status": record.status.value, "preview": record.summary}
            # First the answer: an opened run gets the events of a line again whose last one is missing.
            if (answer := gates.answer_in(record)) is not None:
                self.writer.log.add_event(EventType.GATE_DECIDED, record.key, gates.told(answer))
            self.writer.log.add_event(EventType.STEP_FINISHED, record.key, told)

    def _masked(self, result: Result) -> Result:
        masker, error = self._equipment.masker, result.error
        if error is not None:
            told = plain.plain({"message": error.message, "detail": error.detail})
            error = dataclasses.replace(error, **masker.mask_cut(told))
        return dataclasses.replace(
            result,
            output=masker.mask(plain.plain(result.output)),
            summary=None if result.summary is None else masker.mask_cut(plain.plain(result.summary)),
            error=error,
        )

    def _note_recorded(self, key: str, attempt: int) -> None:
        self._recorded[key] = (*self._recorded.get(key, ()), attempt)

    def _reach(self, point: str) -> None:
        self._equipment.probes.reach(point)


async def _once(write: Callable[[], Awaitable[T]]) -> T:
    return await write()


def _content(output: plain.Json) -> Content:
    return Content(value=output, encoded=b"" if output is None else plain.content(output))


def _due_seconds(operation: operations.Operation) -> float | None:
    match operation:
        case operations.Timer(seconds=seconds):
            return seconds
        case operations.Gate(expires_seconds=seconds) | operations.ChildRun(timeout_seconds=seconds):
            return seconds
    return None


def _cut_off(key: str, code: str, what: str, tries: int) -> errors.StepError:
    message = f"the step {key!r} {what}; let the run continue to try again"
    return errors.StepError(message, code=code, key=key, detail={"tries": tries})
