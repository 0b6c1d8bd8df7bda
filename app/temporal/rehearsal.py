"""Rehearsals: a run as its journal tells it, with the driver replayed to where it waits now."""

from __future__ import annotations

from dataclasses import dataclass

from app import errors
from app.domain.records import Record, retried
from app.domain.states import RunState
from app.engine import (
    completion,
    driver_context,
    driver_scheduler,
    equipment,
    ports,
    replay,
    run_projection,
    runner,
    space_retry,
    step_attempt,
    stores,
)
from app.temporal import messages


class Superseded(Exception):
    """The run needs a step no more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Rehearsal:
    """One run under a lease."""

    log: stores.RunLog
    """Its journals."""
    equipment: runner.Equipment
    """What performs its steps, with its secrets masked."""
    scheduler: driver_scheduler.DriverScheduler
    """Its driver, blocked where the journal ends."""
    completion: completion.Completion
    """Brings it to rest."""
    projection: run_projection.RunProjection
    """What is shown of it."""
    exchanges: replay.Exchanges | None
    """Conversations that a person had begun again."""

    def final_of(self, key: str) -> Record | None:
        """Return the living final line of a step, if there is one."""
        dead = self.log.loaded.decisions.dead
        found = (line for line in self.log.loaded.records if line.key == key and line.final)
        return next((line for line in found if line.position not in dead), None)

    def attempt(self, order: messages.StepOrder) -> step_attempt.StepAttempt:
        """Return the open step that an order is about.

        Raises:
            Superseded: the run has ended, is cancelled, or its branch was cancelled.
            errors.NondeterminismFault: the driver asks for something else.
        """
        decided = self.log.loaded.decisions
        if decided.ended is not None or decided.cancel_requested_at is not None:
            raise Superseded
        ask = self.scheduler.asks.get(order.key)
        if ask is None and (self.scheduler.was_cancelled(order.branch) or self.scheduler.finished):
            raise Superseded
        if ask is None or ask.fingerprint != order.operation:
            raise _differs(self.log.loaded.start.run_id, order, ask)
        living = (line for line in self.log.loaded.records if line.position not in decided.dead)
        return step_attempt.StepAttempt(
            ask=ask,
            idle=ask.operation.idle,
            history=retried(living).get(ask.key, []),
            exchanges=self.exchanges.before(ask) if self.exchanges else (),
            # Temporal waits between tries, so that one try is all that is made here.
            cut=True,
        )

    async def settle(self, parking: messages.Parking | None) -> RunState:
        """Bring the run to the rest that its journal asks for; `running` if it asks for none."""
        decided = self.log.loaded.decisions
        if decided.ended is not None:
            return await self.completion.rest_again()
        if decided.cancel_requested_at is not None:
            return await self.completion.cancel()
        if self.scheduler.finished:
            return await self.completion.end(self.scheduler)
        if parking is not None:
            error = errors.StepError(parking.message, code=parking.code, key=parking.key)
            return await self.completion.pause(equipment.Parked(parking.reason, error))
        if decided.paused is not None:
            return await self.completion.pause(None)
        return RunState.RUNNING


async def rehearse(
    log: stores.RunLog, driver: ports.Driver, equipment: runner.Equipment, *, strict: bool = True
) -> Rehearsal:
    """Replay the driver of a run over its journal; nothing is performed.

    Args:
        strict: Whether a driver that does not fit the journal is refused.

    Raises:
        errors.NondeterminismFault, errors.DriverFault: the driver does not fit.
    """
    start = equipment.copies.shared(log.loaded.start)
    equipment = equipment.hiding_for(driver, start.recipe)
    context = driver_context.DriverContext(start, completion.noter(log), equipment.masker)
    exchanges = replay.Exchanges(start.begun_again) if start.begun_again else None
    scheduler = driver_scheduler.DriverScheduler(lambda: driver.drive(context), exchanges.note if exchanges else None)
    projection = run_projection.RunProjection(log, context, equipment.clock, _unfollowed)
    durability = space_retry.SpaceRetry(log, equipment.clock, _unfollowed)
    made = Rehearsal(
        log=log,
        equipment=equipment,
        scheduler=scheduler,
        completion=completion.Completion(log, projection, durability, equipment),
        projection=projection,
        exchanges=exchanges,
    )
    try:
        await replay.replay(scheduler, log.loaded, log.get_blob)
    except (errors.NondeterminismFault, errors.DriverFault):
        if strict:
            raise
    return made


def _unfollowed() -> None:
    """Hear of a change that nobody follows here; followers read the events."""


def _differs(run_id: str, order: messages.StepOrder, ask: driver_scheduler.Ask | None) -> errors.NondeterminismFault:
    asked = "nothing" if ask is None else "another operation"
    return errors.NondeterminismFault(
        f"run {run_id}: its workflow asks for the step {order.key!r}, for which the driver here asks {asked}. Nothing "
        "was written; workers of the version that began the run continue it.",
        key=order.key,
        detail={"run_id": run_id, "asked": order.operation},
    )
