"""The runner: executes one run from its journal to its rest, in the phases of `Runner.run`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from app import errors
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.domain.records import Record, retried
from app.domain.runs import Transition
from app.domain.states import RunState
from app.engine import active_time, completion, ports, replay
from app.engine.active_step import ActiveStep
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import Ask, DriverScheduler
from app.engine.evicted_runs import Evicted, EvictedRun
from app.engine.missing_lines import MissingLines, begun_unrequested
from app.engine.replay import Exchanges
from app.engine.run_equipment import Equipment, Parked
from app.engine.run_projection import RunProjection
from app.engine.runner_state import Halt, OpenSteps, Reports, StopRequest
from app.engine.step_executor import StepExecutor
from app.engine.storage_retry import StorageRetry
from app.engine.stores import RunLog

_log = logging.getLogger(__name__)

STEPS_AT_ONCE = 16
"""Steps that a run begins in one turn of the event loop, so that a run with many branches does not delay others."""

RECORDS_AT_ONCE = 16  # Records given to the driver in one turn, for the same reason.


class Runner:
    """Executes one run, loaded once, as the `StepOwner` of its steps.

    After a crash at any point the next runner replays the journal: the runner's own state is not stored elsewhere.
    """

    def __init__(
        self,
        log: RunLog,
        driver: ports.Driver,
        equipment: Equipment,
        capacity: ports.Capacity,
        changed: Callable[[], None],
        evicted: Evicted | None = None,
    ) -> None:
        start = equipment.interner.shared(log.loaded.start)
        equipment = equipment.hiding_for(driver, start.recipe)
        self.log = log
        self.capacity = capacity
        self.storage_retry = StorageRetry(log, equipment.clock, self._storage_changed)
        self._run_id = start.run_id
        self._reach = equipment.probes.reach
        context = DriverContext(start, completion.noter(log), equipment.masker)
        self._exchanges = Exchanges(start.begun_again) if start.begun_again else None
        self._scheduler = DriverScheduler(
            lambda: driver.drive(context), self._exchanges.note if self._exchanges else None
        )
        self._projection = RunProjection(log, context, equipment.clock, changed)
        self._projection.storage_retry = self.storage_retry
        self.view, self.waits, self.touch = self._projection.view, self._projection.waits, self._projection.touch
        self._executor = (evicted and evicted.executor) or StepExecutor(start, equipment)
        if evicted is not None:
            self._projection.wake(evicted)
        self.completion = completion.Completion(log, self._projection, self.storage_retry, equipment)
        steps = self._projection.steps
        self._steps = OpenSteps(by_key=steps, busy=sum(not step.idle for step in steps.values()))
        self._reports = Reports()
        self._stop = StopRequest(cancelled=log.loaded.decisions.cancel_requested_at is not None)
        self._retried = retried(log.loaded.records)
        self._was_evicted = evicted is not None
        self.turns = 0  # How often the run has moved since it was loaded.

    async def run(self) -> RunState:
        """Execute the run until it is at rest, and return its state.

        Returns:
            `done`, `failed`, `cancelled` once the ending is durable; `paused`; or `running` after a stop.
        """
        try:
            await self._replay()
            if (resting := await self._load()) is not None:
                return resting
            while self._continues():
                await self._drive()
                await self._perform()
                await self._record()
            return await self._settle()
        except errors.InterruptionFault:
            return RunState.RUNNING
        except errors.Fault as fault:
            return await self._give_up(fault)
        except errors.JournalCorrupt as error:
            return await self.completion.declare_corrupt(error)
        except Exception as error:  # noqa: BLE001 - one run must not take the others down
            _log.exception("the engine failed", extra={"run_id": self._run_id})
            return await self._give_up(errors.Fault(f"{type(error).__name__}: {error}", code="internal_error"))
        finally:
            if not self._stop.evicted:
                await self._close_steps()
                self._executor.link.end()
            self._scheduler.close()

    def cancel(self) -> None:
        """Cut off every open step and end as cancelled; the request is already durable."""
        self._stop.cancelled = True
        self.storage_retry.cancel()
        self._projection.announce()
        self._wake()

    def pause(self, *, interrupt: bool = False, parked: Parked | None = None) -> None:
        """Begin no further step, and cut off open ones if `interrupt`; a person's request is already durable."""
        self._stop.parked = self._stop.parked or parked
        self._halt_at_boundary("pause")
        if interrupt:
            self._cut_all()
        self._projection.announce()

    def retry_now(self) -> None:
        """Retry failed writes and reads now."""
        self.storage_retry.retry_now()

    def stop(self) -> None:
        """Begin no further step, since the service stops."""
        self._halt_at_boundary("stop")

    def interrupt(self) -> None:
        """Cut off open steps after `stop`; they leave no record, and are performed again at the next start."""
        self._stop.halt = "stop"
        self._cut_all()
        self.storage_retry.abandon()
        self._wake()

    def may_be_evicted(self) -> bool:
        """Return whether every open step is with its performer, and no other work is under way or requested."""
        asked_to = self._stop.halt or self._stop.cancelled or self._stop.evicted or self.log.loaded.decisions.paused
        closing = any(not task.done() for task in self._steps.closing)
        pending = closing or self._reports.records or self._reports.failures or self.storage_retry.fault
        if asked_to or pending or self._reports.waiting is None or not self._executor.link.is_quiet:
            return False
        return (
            bool(self._steps.by_key)
            and all(step.away for step in self._steps.by_key.values())
            and not self.log.has_pending_move
        )

    def evict(self, call: Callable[[str], None]) -> EvictedRun:
        """Release a run that may be evicted; `run` returns, and another runner continues from the returned state.

        Args:
            call: Called with the run's id when one of its steps needs the run.
        """
        self._stop.evicted = True
        steps, self._steps.by_key = self._steps.by_key, {}
        for step in steps.values():
            step.ask.forget_body()
        self._executor.link.detach(call)
        self._executor.remember(())
        self._wake()
        projection = self._projection
        return EvictedRun(
            executor=self._executor, steps=steps, status=projection.status, updated_at=projection.moved_at()
        )

    # -- replay, load

    async def _replay(self) -> None:
        try:
            await replay.replay(self._scheduler, self.log.loaded, self.storage_retry.get_blob)
            self._projection.replaying = False
        except (errors.NondeterminismFault, errors.DriverFault):
            if not (self._stop.cancelled or self._at_rest()):
                raise

    async def _load(self) -> RunState | None:
        """Begin the execution; return the run's state if there is nothing to execute."""
        if self._at_rest() and not self._steps.by_key:
            return await self.completion.rest_again()
        if (missing := self._missing()) is not None:
            return await self.completion.park_for_lines(missing)
        await self._write_taken()
        self._attach()
        return None

    def _at_rest(self) -> bool:
        decisions = self.log.loaded.decisions
        return decisions.ended is not None or (decisions.paused is not None and not self._stop.cancelled)

    def _missing(self) -> MissingLines | None:
        loaded, records = self.log.loaded, self._projection.records
        explained = self._stop.cancelled or self._was_evicted
        return None if explained else loaded.missing or begun_unrequested(records, loaded.decisions, self._scheduler)

    async def _write_taken(self) -> None:
        if self._stop.cancelled or self._was_evicted:
            return
        self._reach("run.before_taken")
        facts = active_time.taken_facts(self.log.loaded, self._scheduler.asks, self._projection.now())
        sync = self.log.loaded.decisions.taken > 0  # The first line shares the sync of the first step.
        await self.storage_retry.commit(lambda: self.log.decide(DecisionKind.TAKEN, facts, sync=sync))
        self._reach("run.after_taken")
        if self.log.loaded.decisions.taken > 1:
            self.log.add_event(EventType.RECOVERY_CONTINUED, None, {"lines": len(self._projection.records)})
        await self._projection.move(Transition.begin(self._run_id, self._projection.now()))

    def _attach(self) -> None:
        for key, step in list(self._steps.by_key.items()):
            ask = self._scheduler.asks.get(key)
            if ask is not None and ask.fingerprint == step.ask.fingerprint:
                step.ask = ask
            else:
                step.committing = False
                self._cut(key)
        self._executor.remember(self._projection.records)
        self._executor.link.attach(self)
        if self._at_rest():
            self._halt_at_boundary("pause")

    # -- drive

    def _continues(self) -> bool:
        if self._scheduler.finished or self._stop.cancelled or self._stop.evicted:
            return False
        return self._stop.halt is None or bool(self._steps.by_key)

    async def _drive(self) -> None:
        dropped_keys, self._scheduler.dropped = self._scheduler.dropped, []
        for key in dropped_keys:
            if key in self._steps.by_key:
                self._cut(key)
        unopened, self._scheduler.unopened = self._scheduler.unopened, {}
        for count, ask in enumerate(unopened.values(), 1):
            # It may have been dropped while this loop yielded below.
            if self._stop.halt is None and not self._stop.cancelled and self._scheduler.asks.get(ask.key) is ask:
                self._open(ask)
            if count % STEPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if self._steps.by_key and not self._steps.busy:
            self.capacity.leave()

    def _open(self, ask: Ask) -> None:
        if ask.key in self._steps.by_key:
            return
        history = self._retried.get(ask.key, [])
        if history:
            history = [record for record in history if record.position not in self.log.loaded.decisions.dead]
        exchanges = self._exchanges.before(ask) if self._exchanges else ()
        rested = bool(self._projection.resting) and self._projection.rested_at(ask)
        step = self._steps.by_key[ask.key] = ActiveStep(
            ask=ask, idle=ask.operation.idle, history=history, exchanges=exchanges, begun=rested
        )
        self._steps.busy += not step.idle
        step.task = asyncio.create_task(self._executor.execute(step), name=f"{self._run_id}:{ask.key}")

    # -- perform: steps are with their executor until one of them reports

    async def _perform(self) -> None:
        if self._projection.status is RunState.WAITING or (self._steps.by_key and not self._steps.busy):
            await self._projection.show_waiting()
        if not self._reports.moved:
            self._reports.waiting = asyncio.get_running_loop().create_future()
            await self._reports.waiting
            self._reports.waiting = None
        self._reports.moved = False
        self.turns += 1

    def began(self, step: ActiveStep) -> None:
        """Note that an attempt has begun."""
        if not (self._projection.resting and self._projection.reopen(step)):
            self._projection.announce(step.started_at)
        if step.idle:
            self._wake()

    def arrived(self, record: Record) -> None:
        """Accept a durable record."""
        self._reports.records[record.position] = record
        self._wake()

    def failed(self, step: ActiveStep, failure: BaseException) -> None:
        """Report that a step could not be executed."""
        if self._steps.by_key.get(step.ask.key) is step:
            self._remove(step.ask.key)
        self._reports.failures.append(failure)
        self._wake()

    def _wake(self) -> None:
        self._reports.moved = True
        if self._reports.waiting is not None and not self._reports.waiting.done():
            self._reports.waiting.set_result(None)

    # -- record

    async def _record(self) -> None:
        count = 0
        # Lines become durable in any order; the driver receives them in journal order, as in a replay.
        while (record := self._reports.records.pop(len(self._projection.records), None)) is not None:
            self._projection.add(record)
            await self._hand_out(record)
            self._reach("step.delivered")
            if (count := count + 1) % RECORDS_AT_ONCE == 0:
                self._projection.touch()
                await asyncio.sleep(0)
        if count:
            self._projection.touch()
        if self._reports.failures:
            self._raise_failures()

    async def _hand_out(self, record: Record) -> None:
        scheduler = self._scheduler
        if record.final and record.key in self._steps.by_key:
            self._remove(record.key)
        if scheduler.finished:
            return
        ask = scheduler.asks.get(record.key)
        if record.final and ask is not None and ask.fingerprint == record.operation:
            scheduler.deliver(record)
        else:
            replay.hand_out(scheduler, record, self.log.loaded)
        if scheduler.ready or scheduler.reads:
            await replay.satisfy(scheduler, self.storage_retry.get_blob)

    def _remove(self, key: str) -> ActiveStep:
        self._steps.busy -= not self._steps.by_key[key].idle
        return self._steps.by_key.pop(key)

    def _raise_failures(self) -> None:
        failures, self._reports.failures = self._reports.failures, []
        for failure in failures:
            if not isinstance(failure, Parked):
                raise failure
            self._stop.parked = self._stop.parked or failure
            self._halt_at_boundary("pause")

    # -- settle

    async def _settle(self) -> RunState:
        if self._stop.evicted:
            return self._projection.status
        await self._close_steps()
        with contextlib.suppress(errors.Fault) if self._stop.cancelled else contextlib.nullcontext():
            await self._record()
        if self._stop.cancelled:
            return await self.completion.cancel()
        if self._scheduler.finished:
            return await self.completion.end(self._scheduler)
        if self._stop.halt == "stop":
            return await self.completion.release()
        return await self.completion.pause(self._stop.parked)

    async def _give_up(self, fault: errors.Fault) -> RunState:
        await self._close_steps()
        if not isinstance(fault, errors.Unreadable):
            return await self.completion.park(fault)
        if not self._stop.cancelled:
            raise fault
        return await self.completion.cancel()

    async def _close_steps(self) -> None:
        # No other runner will attach itself, so steps that wait for one would wait forever.
        if self._executor.link.owner is None:
            self._executor.link.abandon()
        self._cut_all()
        while self._steps.closing:
            await asyncio.gather(*self._steps.closing, return_exceptions=True)
            self._steps.closing = [task for task in self._steps.closing if not task.done()]

    def _halt_at_boundary(self, halt: Halt) -> None:
        self._stop.halt = self._stop.halt or halt
        for key in [key for key, step in self._steps.by_key.items() if not step.performing]:
            self._cut(key)
        self._wake()

    def _cut_all(self) -> None:
        for key in list(self._steps.by_key):
            self._cut(key)

    def _cut(self, key: str) -> None:
        step = self._remove(key)
        task, step.task = step.task, None  # Its cancellation will hold frames that hold the step.
        if task is not None and not task.done():
            self._steps.closing.append(task)
            if step.committing:  # Its line may be durable already, so the write must finish.
                step.is_last = True
                return
            if step.performing:
                self.log.add_event(EventType.STEP_INTERRUPTED, key, {"attempt": step.attempt})
            task.cancel()

    def _storage_changed(self) -> None:
        if self.storage_retry.fault is not None:
            self.capacity.leave()
        self._projection.touch()
