"""The runner: one run from its journal to its rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from app import errors
from app.domain import views
from app.domain.decisions import LINES_MISSING, DecisionKind
from app.domain.events import EventType
from app.domain.operations import Input
from app.domain.records import Record, retried
from app.domain.runs import Transition
from app.domain.states import RunState
from app.engine import completion, ports, replay
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import STEPS_AT_ONCE, Ask, DriverScheduler
from app.engine.evicted_runs import EvictedRun
from app.engine.exchanges import Exchanges
from app.engine.light_event import LightEvent
from app.engine.missing_lines import MissingLines, unled
from app.engine.open_steps import Work
from app.engine.run_projection import RunProjection
from app.engine.space_retry import RetryUntilSpace
from app.engine.step_executor import Equipment, Parked, StepExecutor
from app.engine.stores import RunLog

_log = logging.getLogger(__name__)

__all__ = ["Equipment", "Runner"]

_Halt = Literal["pause", "stop"]


class Runner:
    """Execute one run, loaded once."""

    def __init__(
        self,
        log: RunLog,
        dialect: ports.Driver,
        equipment: Equipment,
        slots: ports.Capacity,
        changed: Callable[[], None],
        evicted: EvictedRun | None = None,
    ) -> None:
        start = equipment.copies.shared(log.loaded.start)
        if isinstance(dialect, ports.SecretiveDialect):
            equipment = equipment.hiding(dialect.secrets(start.recipe))
        self._run_id = start.run_id
        self._run_log = log
        self._slots = slots
        self._reach = equipment.probes.reach
        self._context = DriverContext(start, completion.noter(log), equipment.masker)
        self._exchanges = Exchanges(start.begun_again)
        self._scheduler = DriverScheduler(lambda: dialect.drive(self._context), self._exchanges.note)
        self._projection = RunProjection(log, self._context, equipment.clock, changed)
        self._durability = RetryUntilSpace(log, equipment.clock, self._storage_changed)
        self._projection.durability = self._durability
        self._stepper = evicted.stepper if evicted else StepExecutor(start, equipment)
        if evicted is not None:
            self._projection.wake(evicted.status, evicted.updated_at, evicted.works)
        self._completion = completion.Completion(log, self._projection, self._durability, equipment)
        self._works = self._projection.works
        self._retried = retried(log.loaded.records)
        self._landed: dict[int, Record] = {}
        self._closing: list[asyncio.Task[None]] = []
        self._failures: list[BaseException] = []
        self._wake = LightEvent()
        self._halt: _Halt | None = None
        self._parked: Parked | None = None
        self._wakes = evicted is not None
        self._sleeps = False
        self._waits = False
        self._turns = 0
        self._cancelled = log.loaded.decisions.cancel_requested_at is not None

    async def run(self) -> RunState:
        """Go on with the run until it rests, and return its state then.

        Returns:
            `done`, `failed`, `cancelled` once the ending is durable; `paused`; or `running` after a stop.
        """
        try:
            return await self._go()
        except errors.InterruptionFault:
            return RunState.RUNNING
        except errors.Fault as fault:
            return await self._give_up(fault)
        except errors.JournalCorrupt as error:
            return await self._completion.declare_corrupt(error)
        except Exception as error:  # noqa: BLE001 - one run must not take the others down
            _log.exception("the engine failed", extra={"run_id": self._run_id})
            return await self._give_up(errors.Fault(f"{type(error).__name__}: {error}", code="internal_error"))
        finally:
            if not self._sleeps:
                await self._drop_works()
            self._scheduler.close()

    async def _go(self) -> RunState:
        await self._replay()
        if self._at_rest() and not self._works:
            return await self._completion.rest_again()
        if (missing := self._missing()) is not None:
            return await self._park_for_lines(missing)
        await self._take()
        self._move_in()
        while self._goes_on():
            await self._drive()
            await self._perform()
            await self._record()
        return await self._settle()

    def cancel(self) -> None:
        """Cut off every open step and end as cancelled; the request is durable already."""
        self._cancelled = True
        self._durability.cancel()
        self._projection.tell()
        self._wake.give()

    def pause(self, *, interrupt: bool = False) -> None:
        """Begin no further step, and cut open ones off if `interrupt`; the request is durable already."""
        self._halt_at_boundary("pause")
        if interrupt:
            self._cut_all()
        self._projection.tell()

    def hurry(self) -> None:
        """Try again now to write what waits for room."""
        self._durability.hurry()

    def stop(self) -> None:
        """Begin no further step, since the service stops."""
        self._halt_at_boundary("stop")

    def interrupt(self) -> None:
        """Cut off what is open after `stop`; it leaves no record and runs again at the next start."""
        self._halt = "stop"
        self._cut_all()
        self._durability.abandon()
        self._wake.give()

    @property
    def turns(self) -> int:
        """Return how often the run has moved since it was loaded; while that stays the same, nothing has happened."""
        return self._turns

    def may_sleep(self) -> bool:
        """Tell whether every open step is with its performer, and nothing else is under way or asked for."""
        asked_to = self._halt or self._cancelled or self._sleeps or self._run_log.loaded.decisions.paused
        under_way = self._landed or self._failures or self._closing or self._durability.fault
        if asked_to or under_way or not self._waits or not self._stepper.writer.is_quiet:
            return False
        away = all(work.away for work in self._works.values())
        return away and bool(self._works) and not self._run_log.owes_move

    def sleep(self, call: Callable[[str], None]) -> EvictedRun:
        """Let go of a run that may sleep; `run` returns, and another runner goes on with what is returned.

        Args:
            call: Told the run's id when one of its steps needs it.
        """
        self._sleeps = True
        works, self._works = self._works, {}
        for work in works.values():
            work.ask.forget_body()
        self._stepper.writer.detach(call)
        self._stepper.know(())
        self._wake.give()
        status, updated_at = self._projection.status, self._projection.moved_at()
        return EvictedRun(stepper=self._stepper, works=works, status=status, updated_at=updated_at)

    def view(self) -> views.RunView:
        """Return the run as it stands; it shares what goes on growing, so it is to be read at once."""
        return self._projection.view()

    # -- replay, take

    async def _replay(self) -> None:
        try:
            await replay.replay(self._scheduler, self._run_log.loaded, self._durability.get_blob)
        except (errors.NondeterminismFault, errors.DriverFault):
            if not (self._cancelled or self._at_rest()):
                raise

    def _at_rest(self) -> bool:
        decisions = self._run_log.loaded.decisions
        return decisions.ended is not None or (decisions.paused is not None and not self._cancelled)

    async def _take(self) -> None:
        if self._cancelled or self._wakes:
            return
        self._reach("run.before_taken")
        await self._durability.commit(lambda: self._run_log.decide(DecisionKind.TAKEN, {}))
        self._reach("run.after_taken")
        taken, lines = self._run_log.loaded.decisions.taken, len(self._projection.records)
        self._run_log.add_event(EventType.RUN_STARTED, None, {"taken": taken})
        if taken > 1:
            self._run_log.add_event(EventType.RECOVERY_CONTINUED, None, {"lines": lines})
        await self._projection.move(Transition.take(self._run_id, self._projection.now()))

    def _missing(self) -> MissingLines | None:
        loaded = self._run_log.loaded
        if self._cancelled or self._wakes:
            return None
        return loaded.missing or unled(self._projection.records, loaded.decisions, self._scheduler)

    async def _park_for_lines(self, missing: MissingLines) -> RunState:
        error = missing.error(self._run_id)
        _log.error("run parked: %s", error.message, extra={"run_id": self._run_id, "code": error.code})
        self._run_log.add_event(EventType.RECOVERY_LINES_MISSING, None, error.detail)
        return await self._completion.pause(Parked(LINES_MISSING, error))

    def _move_in(self) -> None:
        for key, work in list(self._works.items()):
            asked = self._scheduler.asks.get(key)
            if asked is not None and asked.fingerprint == work.ask.fingerprint:
                work.ask = asked
            else:
                work.committing = False
                self._cut(key)
        self._stepper.know(self._projection.records)
        self._stepper.writer.attach(
            self._run_log,
            self._durability,
            self._slots.enter,
            self._begun,
            self._land,
            self._work_over,
        )
        if self._at_rest():
            self._halt_at_boundary("pause")

    # -- drive

    def _goes_on(self) -> bool:
        if self._scheduler.finished or self._cancelled or self._sleeps:
            return False
        return self._halt is None or bool(self._works)

    async def _drive(self) -> None:
        for key in [key for key, work in self._works.items() if self._scheduler.asks.get(key) is not work.ask]:
            self._cut(key)
        unopened = [ask for key, ask in self._scheduler.asks.items() if key not in self._works]
        for count, ask in enumerate(unopened, 1):
            if self._halt is None and not self._cancelled:
                self._open(ask)
            if count % STEPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if self._works and all(work.idle for work in self._works.values()):
            self._slots.leave()

    def _open(self, ask: Ask) -> None:
        dead = self._run_log.loaded.decisions.dead
        history = [record for record in self._retried.get(ask.key, ()) if record.position not in dead]
        work = self._works[ask.key] = Work(ask=ask, history=history, exchanges=self._exchanges.before(ask))
        work.task = asyncio.create_task(self._stepper.carry_out(work), name=f"{self._run_id}:{ask.key}")
        work.task.add_done_callback(self._stepper.writer.note_over)

    def _work_over(self, task: asyncio.Task[None]) -> None:
        if task in self._closing:
            self._closing.remove(task)
        # A step that came to its record has landed it, and there is nothing more to see.
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)
            self._wake.give()

    # -- perform

    async def _perform(self) -> None:
        await self._show_waiting()
        self._waits = True
        await self._wake.given()
        self._wake.take_back()
        self._waits = False
        self._turns = self._turns + 1

    async def _show_waiting(self) -> None:
        inputs = [key for key, work in self._works.items() if isinstance(work.ask.operation, Input)]
        # Whoever hears that the run waits may ask at once for what.
        waits = bool(inputs) and all(work.idle and work.begun for work in self._works.values())
        if waits and self._projection.status is RunState.RUNNING:
            self._run_log.add_event(EventType.RUN_WAITING, None, {"keys": inputs})
            await self._projection.move(Transition.wait(self._run_id, self._projection.now()))
        elif not waits and self._projection.status is RunState.WAITING:
            await self._projection.move(Transition.take(self._run_id, self._projection.now()))

    # -- record

    def _begun(self, idle: bool) -> None:
        self._projection.tell()
        if idle:
            self._wake.give()

    def _land(self, record: Record) -> None:
        self._landed[record.position] = record
        self._wake.give()

    async def _record(self) -> None:
        while (record := self._landed.pop(len(self._projection.records), None)) is not None:
            self._projection.add(record)
            await self._hand_out(record)
            self._reach("step.delivered")
            self._projection.touch()
        self._raise_failures()

    async def _hand_out(self, record: Record) -> None:
        if record.final:
            self._works.pop(record.key, None)
        if not self._scheduler.finished:
            replay.hand_out(self._scheduler, record, self._run_log.loaded)
            await replay.satisfy(self._scheduler, self._durability.get_blob)

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        for failure in failures:
            if not isinstance(failure, Parked):
                raise failure
            self._parked = self._parked or failure
            for key in [key for key, work in self._works.items() if work.task is not None and work.task.done()]:
                del self._works[key]
            self._halt_at_boundary("pause")

    # -- settle

    async def _settle(self) -> RunState:
        if self._sleeps:
            return self._projection.status
        await self._drop_works()
        await self._record_late()
        if self._cancelled:
            return await self._completion.cancel()
        if self._scheduler.finished:
            return await self._completion.end(self._scheduler)
        if self._halt == "stop":
            return await self._completion.release()
        return await self._completion.pause(self._parked)

    async def _record_late(self) -> None:
        try:
            await self._record()
        except errors.Fault:
            if not self._cancelled:
                raise

    async def _give_up(self, fault: errors.Fault) -> RunState:
        await self._drop_works()
        if not isinstance(fault, errors.Unreadable):
            return await self._completion.park(fault)
        if not self._cancelled:
            raise fault
        return await self._completion.cancel()

    async def _drop_works(self) -> None:
        if not self._stepper.writer.is_attached:
            self._stepper.writer.desert()
        self._cut_all()
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
            # Since Python 3.12 a gather of ended tasks does not let the loop run, and the loop tells of them.
            await asyncio.sleep(0)
            self._closing = [task for task in self._closing if not task.done()]

    def _halt_at_boundary(self, halt: _Halt) -> None:
        self._halt = self._halt or halt
        for key in [key for key, work in self._works.items() if not work.performing]:
            self._cut(key)
        self._wake.give()

    def _cut_all(self) -> None:
        for key in list(self._works):
            self._cut(key)

    def _cut(self, key: str) -> None:
        work = self._works.pop(key)
        if work.task is not None and not work.task.done():
            self._closing.append(work.task)
            if work.committing:
                work.cut = True
                return
            if work.performing:
                self._run_log.add_event(EventType.STEP_INTERRUPTED, key, {"attempt": work.attempt})
            work.task.cancel()

    def _storage_changed(self) -> None:
        if self._durability.fault is not None:
            self._slots.leave()
        self._projection.touch()
