"""Replayed runs: runs loaded from their journals, with drivers that are replayed up to the open steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from app import errors
from app.domain.records import Record, retried
from app.domain.states import RunState
from app.engine import (
    active_step,
    completion,
    driver_context,
    driver_scheduler,
    ports,
    replay,
    run_equipment,
    run_projection,
    storage_retry,
    stores,
)
from app.temporal import messages

MOST_KEPT = 64  # Most runs whose drivers a process keeps.


class Superseded(Exception):
    """The run does not need a step any more."""


class _PresentLog:
    """The log of a run's present lease, for objects that outlive leases."""

    def __init__(self, log: stores.RunLog) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


@dataclass(slots=True, kw_only=True, eq=False)
class ReplayedRun:
    """One run with its driver, as far as its journal was read; `carry_on` continues it under a new lease."""

    log: stores.RunLog  # Its journals.
    equipment: run_equipment.Equipment  # Performs its steps, with its secrets masked.
    scheduler: driver_scheduler.DriverScheduler  # Its driver, blocked at the end of the journal.
    completion: completion.Completion  # Brings it to rest.
    projection: run_projection.RunProjection  # Its visible state.
    exchanges: replay.Exchanges | None  # Conversations that a person had begun again.
    lines: dict[str, list[Record]] = field(default_factory=dict)  # Its journal lines by step.
    count: int = 0  # Number of its lines.
    seal: tuple[object, ...] = ()  # Chain fields of the last line, which seal it to the earlier ones.
    folder_checked_for: int = 0  # How often the run had been taken up when its working folder was last checked.
    stood: tuple[object, ...] = ()  # State of the run when its driver was begun.

    def fits(self, log: stores.RunLog) -> bool:
        """Return whether the log differs only by additional lines from those that the driver received."""
        found = log.loaded.records
        if len(found) < self.count or _standing(log) != self.stood:
            return False
        return not self.count or _seal(found[self.count - 1]) == self.seal

    async def carry_on(self, log: stores.RunLog) -> None:
        """Give the driver the new lines.

        Raises:
            errors.NondeterminismFault, errors.DriverFault: the driver does not fit.
        """
        cast(_PresentLog, self.log).log = log
        new = log.loaded.records[self.count :]
        self.note(new)
        for record in new:
            self.projection.add(record)
        await replay.hand_out_all(self.scheduler, new, log.loaded, log.get_blob)

    def note(self, lines: Sequence[Record]) -> None:
        """Add lines to those of their steps."""
        for record in lines:
            self.lines.setdefault(record.key, []).append(record)
            self.seal = _seal(record)
        self.count += len(lines)

    def living(self, key: str) -> list[Record]:
        """Return the lines of a step that replay does not skip."""
        dead = self.log.loaded.decisions.dead
        return [line for line in self.lines.get(key, ()) if line.position not in dead]

    def final_of(self, key: str) -> Record | None:
        """Return the living final line of a step, if there is one."""
        return next((line for line in self.living(key) if line.final), None)

    def active_step_of(self, order: messages.StepOrder) -> active_step.ActiveStep:
        """Return the open step of an order.

        Raises:
            Superseded: the run has ended or is cancelled, or its branch was cancelled.
            errors.NondeterminismFault: the driver requests another operation.
        """
        decided = self.log.loaded.decisions
        if decided.ended is not None or decided.cancel_requested_at is not None:
            raise Superseded
        ask = self.scheduler.asks.get(order.key)
        # The branch of the step was cancelled meanwhile, which its workflow does not know yet.
        if ask is None and (self.scheduler.was_cancelled(order.branch) or self.scheduler.finished):
            raise Superseded
        if ask is None or ask.fingerprint != order.operation:
            raise _differs(self.log.loaded.start.run_id, order, ask)
        return active_step.ActiveStep(
            ask=ask,
            idle=ask.operation.idle,
            history=retried(self.living(ask.key)).get(ask.key, []),
            exchanges=self.exchanges.before(ask) if self.exchanges else (),
            # Temporal waits between attempts, so only one is made here.
            is_last=True,
        )

    async def complete(self, parking: messages.Parking | None) -> RunState:
        """Bring the run to the rest that its journal requires, and return its state; `running` if it requires none."""
        decided = self.log.loaded.decisions
        if decided.ended is not None:
            return await self.completion.rest_again()
        if decided.cancel_requested_at is not None:
            return await self.completion.cancel()
        if self.scheduler.finished:
            return await self.completion.end(self.scheduler)
        if parking is not None:
            error = errors.StepError(parking.message, code=parking.code, key=parking.key, detail=parking.detail)
            return await self.completion.pause(run_equipment.Parked(parking.reason, error))
        if decided.paused is not None:
            return await self.completion.pause(None)
        return RunState.RUNNING


async def replay_run(
    log: stores.RunLog, driver: ports.Driver, equipment: run_equipment.Equipment, *, strict: bool = True
) -> ReplayedRun:
    """Replay the driver of a run over its journal, without performing anything.

    Args:
        strict: Whether to refuse a driver that does not fit the journal.

    Raises:
        errors.NondeterminismFault, errors.DriverFault: the driver does not fit.
    """
    present = cast(stores.RunLog, _PresentLog(log))
    start = equipment.interner.shared(log.loaded.start)
    equipment = equipment.hiding_for(driver, start.recipe)
    context = driver_context.DriverContext(start, completion.noter(present), equipment.masker)
    exchanges = replay.Exchanges(start.begun_again) if start.begun_again else None
    scheduler = driver_scheduler.DriverScheduler(lambda: driver.drive(context), exchanges.note if exchanges else None)
    projection = run_projection.RunProjection(present, context, equipment.clock, _unfollowed)
    retry = storage_retry.StorageRetry(present, equipment.clock, _unfollowed)
    made = ReplayedRun(
        log=present,
        equipment=equipment,
        scheduler=scheduler,
        completion=completion.Completion(present, projection, retry, equipment),
        projection=projection,
        exchanges=exchanges,
        stood=_standing(log),
    )
    made.note(log.loaded.records)
    try:
        await replay.replay(scheduler, log.loaded, log.get_blob)
    except (errors.NondeterminismFault, errors.DriverFault):
        if strict:
            raise
    return made


class ReplayedRuns:
    """The runs that this process continued last, with drivers blocked at the ends of their journals."""

    def __init__(self, equipment: run_equipment.Equipment, most: int = MOST_KEPT) -> None:
        self._equipment = equipment
        self._most = most
        self._kept: OrderedDict[str, ReplayedRun] = OrderedDict()

    async def of(self, log: stores.RunLog, driver: ports.Driver) -> ReplayedRun:
        """Return a run whose driver has received the whole journal; only new requests remain.

        Raises:
            errors.NondeterminismFault, errors.DriverFault: the driver does not fit.
        """
        run_id = log.loaded.start.run_id
        kept = self._kept.pop(run_id, None)
        # A driver cannot be reset. If it received lines that are dead by now, or was begun in another state, it is
        # replaced by a replay from the first line.
        if kept is None or not kept.fits(log):
            kept = await replay_run(log, driver, self._equipment)
        else:
            await kept.carry_on(log)
        self._kept[run_id] = kept
        if len(self._kept) > self._most:
            # The least recent one is dropped: it is replayed from its journal when needed again.
            self._kept.popitem(last=False)[1].scheduler.close()
        return kept

    def forget(self, run_id: str) -> None:
        """Drop a run that is at rest."""
        kept = self._kept.pop(run_id, None)
        if kept is not None:
            kept.scheduler.close()


def _seal(record: Record) -> tuple[object, ...]:
    return record.line["prev"], record.line["crc32"]


def _standing(log: stores.RunLog) -> tuple[object, ...]:
    decided = log.loaded.decisions
    return decided.status, decided.paused, decided.cancel_requested_at, decided.dead, dict(decided.overrides)


def _unfollowed() -> None:
    """Ignore a change: it has no followers here, since these read the events."""


def _differs(run_id: str, order: messages.StepOrder, ask: driver_scheduler.Ask | None) -> errors.NondeterminismFault:
    asked = "nothing" if ask is None else "another operation"
    return errors.NondeterminismFault(
        f"run {run_id}: its workflow asks for the step {order.key!r}, for which the driver here asks {asked}. Nothing "
        "was written; workers of the version that began the run continue it.",
        key=order.key,
        detail={"run_id": run_id, "asked": order.operation},
    )
