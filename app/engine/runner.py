"""
The runner: one run from its journal to its rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum

from app import clock, errors
from app.engine import conductor, plain, ports, replay, views
from app.engine.context import DriverContext
from app.engine.decisions import PAUSED_BY_PERSON, DecisionKind
from app.engine.durability import Durability
from app.engine.events import EventType
from app.engine.journal_lines import facts_of
from app.engine.operations import Gate
from app.engine.records import Record, Usage
from app.engine.runs import Ending, Transition
from app.engine.states import RunState
from app.engine.stepping import Equipment, Parked, Stepper, Work
from app.engine.stores import RunLog

_log = logging.getLogger(__name__)

__all__ = ["Equipment", "Runner"]


class _Halt(Enum):
    PAUSE = "pause"
    STOP = "stop"


class Runner:
    """
    Execute one run, loaded once.
    """

    def __init__(
        self,
        log: RunLog,
        dialect: ports.Dialect,
        equipment: Equipment,
        slots: ports.Slots,
        changed: Callable[[], None],
    ) -> None:
        self._run_log, self._equipment, self._slots, self._changed = log, equipment, slots, changed
        self._start = log.loaded.start
        self._status = log.loaded.decisions.status
        self._reason: str | None = None
        self._error: Mapping[str, plain.Json] | None = None
        self._ending: Mapping[str, plain.Json] | None = None
        self._updated_at = self._start.created_at
        self._completed_at: str | None = None
        self._records = list(log.loaded.records)
        self._usage = views.total_usage(self._records)
        self._landed: dict[int, Record] = {}
        self._works: dict[str, Work] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._wake = asyncio.Event()
        self._halt: _Halt | None = None
        self._parked: Parked | None = None
        self._cancelled = log.loaded.decisions.cancel_requested_at is not None
        self._durability = Durability(log, equipment.clock, self._touch)
        self._stepper = Stepper(log, self._start, equipment, self._durability, self._enter, self._land)
        self._context = DriverContext(self._start, self._note)
        self._conductor = conductor.Conductor(dialect.drive(self._context))

    async def run(self) -> RunState:
        """
        Go on with the run until it rests, and return its state then.

        Returns:
            `done`, `failed`, `cancelled` once the ending is durable; `paused`; or `running` after a stop.
        """
        try:
            return await self._go()
        except (errors.NondeterminismFault, errors.DriverFault) as fault:
            return await self._park(fault)
        except errors.JournalCorrupt as error:
            return await self._declare_corrupt(error)
        except Exception as error:
            _log.exception("the engine failed", extra={"run_id": self._start.run_id})
            return await self._park(errors.Fault(f"{type(error).__name__}: {error}", code="internal_error"))
        finally:
            await self._drop_works()
            self._conductor.close()

    async def _go(self) -> RunState:
        await self._replay()
        await self._take()
        while self._goes_on():
            self._drive()
            await self._perform()
            await self._record()
        return await self._settle()

    def cancel(self) -> None:
        """
        Cut off every open step and end as cancelled; the request is durable already.
        """
        self._cancelled = True
        self._wake.set()

    def pause(self) -> None:
        """
        Begin no further step; the request is durable already.
        """
        self._halt_at_boundary(_Halt.PAUSE)

    def stop(self) -> None:
        """
        Begin no further step, since the service stops.
        """
        self._halt_at_boundary(_Halt.STOP)

    def interrupt(self) -> None:
        """
        Cut off what is open after `stop`; it leaves no record and runs again at the next start.
        """
        for work in self._works.values():
            self._cut(work)
        self._works.clear()
        self._wake.set()
        if self._durability.fault is not None:
            for commit in self._stepper.commits:
                commit.cancel()

    def view(self) -> views.RunView:
        """
        Return the run as it stands; it shares what goes on growing, so it is to be read at once.
        """
        fault = self._durability.fault
        return views.RunView(
            start=self._start,
            status=RunState.PAUSED if fault else self._status,
            reason=fault.code if fault else self._reason,
            board=self._context.board(),
            records=self._records,
            dead=frozenset(self._run_log.loaded.decisions.dead),
            open=[_open_step(work) for work in self._works.values() if work.started_at is not None],
            usage=self._usage,
            error=fault.to_json() if fault else self._error,
            ending=self._ending,
            updated_at=self._updated_at,
            completed_at=self._completed_at,
        )

    # -- replay, take

    async def _replay(self) -> None:
        try:
            await replay.replay(self._conductor, self._run_log.loaded, self._run_log.get_blob)
        except (errors.NondeterminismFault, errors.DriverFault):
            if not self._cancelled:
                raise
        self._touch()

    async def _take(self) -> None:
        if self._cancelled:
            return
        self._reach("run.before_taken")
        await self._durability.commit(lambda: self._run_log.decide(DecisionKind.TAKEN, {}))
        self._reach("run.after_taken")
        taken = self._run_log.loaded.decisions.taken
        self._run_log.add_event(EventType.RUN_STARTED, None, {"taken": taken})
        if taken > 1:
            self._run_log.add_event(EventType.RECOVERY_CONTINUED, None, {"lines": len(self._records)})
        await self._move(Transition.take(self._start.run_id, self._now()))

    # -- drive

    def _goes_on(self) -> bool:
        if self._conductor.finished or self._cancelled:
            return False
        return self._halt is None or bool(self._works)

    def _drive(self) -> None:
        for key in [key for key, work in self._works.items() if self._conductor.asks.get(key) is not work.ask]:
            self._cut(self._works.pop(key))
        if self._halt is None:
            for key, ask in self._conductor.asks.items():
                if key not in self._works:
                    self._open(ask)
        if self._works and all(work.idle for work in self._works.values()):
            self._slots.leave()

    def _open(self, ask: conductor.Ask) -> None:
        dead = self._run_log.loaded.decisions.dead
        tries = [record for record in self._records if record.key == ask.key and record.position not in dead]
        work = self._works[ask.key] = Work(ask=ask, history=tries)
        work.task = asyncio.create_task(self._stepper.carry_out(work), name=f"{self._start.run_id}:{ask.key}")
        work.task.add_done_callback(self._work_over)

    def _work_over(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)
        self._wake.set()

    # -- perform

    async def _perform(self) -> None:
        await self._show_waiting()
        await self._wake.wait()
        self._wake.clear()

    async def _show_waiting(self) -> None:
        gates = [key for key, work in self._works.items() if isinstance(work.ask.operation, Gate)]
        waits = bool(gates) and all(work.idle for work in self._works.values())
        if waits and self._status is RunState.RUNNING:
            await self._move(Transition.wait(self._start.run_id, self._now()))
            self._run_log.add_event(EventType.RUN_WAITING, None, {"keys": gates})
        elif not waits and self._status is RunState.WAITING:
            await self._move(Transition.take(self._start.run_id, self._now()))

    async def _enter(self) -> None:
        await self._slots.enter()

    # -- record

    def _land(self, record: Record) -> None:
        self._landed[record.position] = record
        self._wake.set()

    async def _record(self) -> None:
        while (record := self._landed.pop(len(self._records), None)) is not None:
            self._records.append(record)
            self._usage = self._usage.plus(record.usage or Usage())
            await self._hand_out(record)
            self._reach("step.delivered")
            self._touch()
        self._raise_failures()

    async def _hand_out(self, record: Record) -> None:
        if record.final:
            self._works.pop(record.key, None)
        if not self._conductor.finished:
            replay.hand_out(self._conductor, record, self._run_log.loaded)
            await replay.satisfy(self._conductor, self._run_log.get_blob)

    def _raise_failures(self) -> None:
        for failure in self._failures:
            if not isinstance(failure, Parked):
                raise failure
            self._parked = self._parked or failure
            for key in [key for key, work in self._works.items() if work.task is not None and work.task.done()]:
                del self._works[key]
            self._halt_at_boundary(_Halt.PAUSE)
        self._failures.clear()

    # -- settle

    async def _settle(self) -> RunState:
        await self._drop_works()
        await self._record_rest()
        if self._cancelled:
            return await self._end(Ending(status=RunState.CANCELLED, reason="cancelled"), None)
        if self._conductor.finished:
            return await self._end(*self._outcome())
        return await self._rest()

    async def _drop_works(self) -> None:
        for work in self._works.values():
            self._cut(work)
        self._works.clear()
        while self._closing or self._stepper.commits:
            await asyncio.gather(*self._closing, *self._stepper.commits, return_exceptions=True)

    async def _record_rest(self) -> None:
        try:
            await self._record()
        except errors.Fault:
            if not self._cancelled:
                raise

    def _outcome(self) -> tuple[Ending, errors.ControlRoomError | None]:
        failure = self._conductor.failure
        if failure is None:
            return self._conductor.result or Ending(), None
        if not isinstance(failure, errors.ControlRoomError):
            raise errors.DriverFault(f"the recipe's driver broke: {type(failure).__name__}: {failure}") from failure
        reason = failure.reason if isinstance(failure, errors.RunFailed) else failure.code
        failed = failure.causes if isinstance(failure, errors.RunFailed) else ()
        return Ending(status=RunState.FAILED, reason=reason, failed_steps=failed), failure

    async def _end(self, ending: Ending, failure: errors.ControlRoomError | None) -> RunState:
        self._reach("run.before_ended")
        error = self._equipment.masker.mask(failure.to_json()) if failure else None
        facts = {
            "status": ending.status.value,
            "causes": self._positions(failure.causes) if isinstance(failure, errors.RunFailed) else [],
            "error": error,
            "ending": ending.to_json(),
        }
        if not await self._durability.commit(lambda: self._run_log.decide(DecisionKind.ENDED, facts)):
            return await self._end(Ending(status=RunState.CANCELLED, reason="cancelled"), None)
        self._reach("run.after_ended")
        await self._show_end(ending, error)
        return ending.status

    async def _show_end(self, ending: Ending, error: Mapping[str, plain.Json] | None) -> None:
        self._status, self._error, self._ending = ending.status, error, ending.to_json()
        self._reason = None
        self._completed_at = self._now()
        self._updated_at = self._completed_at
        told = {"status": ending.status.value, "error": error, "ending": ending.to_json()}
        self._run_log.add_event(EventType.RUN_ENDED, None, told)
        self._run_log.refresh(self._snapshots)
        await self._durability.commit(self._run_log.rest)
        code = str(error["code"]) if error else None
        await self._move(Transition.end(self._start.run_id, ending.status, self._now(), code))

    def _positions(self, keys: tuple[str, ...]) -> list[int]:
        latest = {record.key: record.position for record in self._records if record.final}
        return sorted(latest[key] for key in keys if key in latest)

    async def _rest(self) -> RunState:
        if self._parked is None and self._run_log.loaded.decisions.paused is None:
            await self._durability.commit(lambda: self._run_log.decide(DecisionKind.RELEASED, {}))
            await self._durability.commit(self._run_log.rest)
            return RunState.RUNNING
        if self._parked is not None:
            facts = {"reason": self._parked.reason, "error": self._parked.error.to_json()}
            await self._durability.commit(lambda: self._run_log.decide(DecisionKind.PAUSED, facts))
            await self._show_pause(self._parked.reason, self._parked.error.to_json())
        else:
            await self._show_pause(PAUSED_BY_PERSON, None)
        return RunState.PAUSED

    async def _park(self, fault: errors.Fault) -> RunState:
        _log.error("run parked: %s", fault.message, extra={"run_id": self._start.run_id, "code": fault.code})
        await self._drop_works()
        await self._show_pause(fault.code, fault.to_json())
        return RunState.PAUSED

    async def _show_pause(self, reason: str, error: Mapping[str, plain.Json] | None) -> None:
        self._reason, self._error = reason, error
        self._run_log.add_event(EventType.RUN_PAUSED, None, {"reason": reason, "error": error})
        code = str(error["code"]) if error else None
        await self._move(Transition.pause(self._start.run_id, self._now(), code))
        await self._durability.commit(self._run_log.rest)

    async def _declare_corrupt(self, error: errors.JournalCorrupt) -> RunState:
        self._error = error.to_json()
        self._run_log.add_event(EventType.RECOVERY_CORRUPT, None, error.detail)
        await self._drop_works()
        await self._move(Transition.end(self._start.run_id, RunState.FAILED, self._now(), error.code))
        return RunState.FAILED

    # -- small change

    def _halt_at_boundary(self, halt: _Halt) -> None:
        self._halt = self._halt or halt
        for work in list(self._works.values()):
            if not work.performing:
                self._cut(work)
                self._works.pop(work.ask.key, None)
        self._wake.set()

    def _cut(self, work: Work) -> None:
        if work.task is not None and not work.task.done():
            if work.performing:
                self._run_log.add_event(EventType.STEP_INTERRUPTED, work.ask.key, {"attempt": work.attempt})
            self._closing.add(work.task)
            work.task.cancel()

    async def _move(self, transition: Transition) -> None:
        self._status = transition.to
        self._touch()
        await self._run_log.move(transition)

    def _touch(self) -> None:
        self._updated_at = self._now()
        self._run_log.refresh(self._snapshots)
        self._changed()

    def _snapshots(self) -> Mapping[str, plain.Json]:
        view = self.view()
        files = {"run.json": views.manifest(view), "cache.json": views.cache(view)}
        return files | self._context.files(view.living())

    def _note(self, key: str, facts: Mapping[str, plain.Json]) -> None:
        if key not in self._run_log.loaded.emitted:
            self._run_log.add_event(EventType.RECIPE_NOTE, key, facts)

    def _now(self) -> str:
        return clock.stamp(self._equipment.clock.now())

    def _reach(self, point: str) -> None:
        self._equipment.probes.reach(point)


def _open_step(work: Work) -> views.OpenStep:
    return views.OpenStep(
        key=work.ask.key,
        attempt=work.attempt,
        kind=work.ask.operation.kind,
        place=work.ask.place,
        facts=facts_of(work.ask.operation),
        started_at=clock.stamp(work.started_at) if work.started_at else "",
    )
