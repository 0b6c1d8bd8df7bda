"""Completion: ends, parks, pauses or releases a run, and updates its projections."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping

from app import errors
from app.domain import gates, plain
from app.domain.decisions import LINES_MISSING, DecisionKind
from app.domain.events import EventType
from app.domain.records import Record
from app.domain.runs import Ending, Superseded, Transition
from app.domain.states import RunState, StepState
from app.engine.driver_scheduler import DriverScheduler
from app.engine.missing_lines import MissingLines
from app.engine.run_equipment import Equipment, Parked
from app.engine.run_projection import RunProjection
from app.engine.storage_retry import StorageRetry
from app.engine.stores import RunLog

_log = logging.getLogger(__name__)

_CANCELLED = Ending(status=RunState.CANCELLED, reason="cancelled")


class Completion:
    """Brings one run to rest."""

    def __init__(
        self, log: RunLog, projection: RunProjection, storage_retry: StorageRetry, equipment: Equipment
    ) -> None:
        self._run_log = log
        self._projection = projection
        self._storage_retry = storage_retry
        self._masker = equipment.masker
        self._reach = equipment.probes.reach
        self._run_id = log.loaded.start.run_id
        # A pause that was in the journal when the run was loaded has its event already.
        self._pause_is_shown = log.loaded.decisions.paused is not None

    async def end(self, scheduler: DriverScheduler) -> RunState:
        """End the run with the ending of its driver, unless a cancel was written first."""
        ending, failure = _outcome(scheduler)
        ending = ending.with_cut_off(self._cut_off())
        causes = self._positions(failure.causes if isinstance(failure, errors.RunFailed) else ())
        beside = self._failed_beside(scheduler, causes)
        failed = (*ending.failed_steps, *(record.key for record in beside))
        error = self._masked(failure) if failure else None
        causes += [record.position for record in beside]
        return await self._end(dataclasses.replace(ending, failed_steps=failed), error, causes)

    async def cancel(self) -> RunState:
        """End the run as cancelled."""
        newer = self._run_log.loaded.decisions.superseded_by
        superseded_by = None if newer is None else Superseded(run_id=str(newer["run_id"]), key=str(newer["key"]))
        return await self._end(dataclasses.replace(_CANCELLED, superseded_by=superseded_by), None, [])

    async def pause(self, parked: Parked | None) -> RunState:
        """Pause the run until a person unpauses it; the journal already contains a pause that a person ordered."""
        if parked is None:
            decisions = self._run_log.loaded.decisions
            # A pause that was revoked before the run came to its boundary is neither an event nor a state.
            if not decisions.paused:
                return RunState.PAUSED
            return await self._show_pause(decisions.paused, decisions.pause_error)
        error = self._masked(parked.error)
        facts = {**parked.facts, "reason": parked.reason, "error": error}
        self.note_pause()
        await self._storage_retry.commit(lambda: self._run_log.decide(DecisionKind.PAUSED, facts))
        self._pause_is_shown = True
        return await self._show_pause(parked.reason, error)

    def note_pause(self) -> None:
        """Write the event of the present pause unless it was written; without a pause, the next one gets its own."""
        decided, was_shown = self._run_log.loaded.decisions, self._pause_is_shown
        self._pause_is_shown = decided.paused is not None
        if self._pause_is_shown and not was_shown:
            self._add_pause_event(decided.paused, decided.pause_error)

    async def park_for_lines(self, missing: MissingLines) -> RunState:
        """Park the run until a person decides what to do about missing journal lines."""
        error = missing.error(self._run_id)
        _log.error("run parked: %s", error.message, extra={"run_id": self._run_id, "code": error.code})
        self._run_log.add_event(EventType.RECOVERY_LINES_MISSING, None, error.detail)
        return await self.pause(Parked(LINES_MISSING, error))

    async def release(self) -> RunState:
        """Release the run because the service stops; steps that are cut off do not count as crashed."""
        # Without this line the next start would count the interrupted step as a crash, and three planned restarts would
        # park the run as a crash loop.
        try:
            await self._run_log.decide(DecisionKind.RELEASED, {})
            await self._run_log.flush()
        except errors.StorageFault as fault:
            _log.warning("not released: %s", fault.message, extra={"run_id": self._run_id})
        return RunState.RUNNING

    async def park(self, fault: errors.Fault) -> RunState:
        """Park the run because of a fault that another version or a repair may fix; the journal is left unchanged."""
        # If this version added a line to the journal, the version that began the run might not be able to continue it.
        error = self._masked(fault)
        _log.error("run parked: %s", error["message"], extra={"run_id": self._run_id, "code": fault.code})
        return await self._show_pause(fault.code, error)

    async def rest_again(self) -> RunState:
        """Update the projections of a run whose ending or pause is already in the journal."""
        decisions = self._run_log.loaded.decisions
        if decisions.ended is None:
            return await self._show_pause(decisions.paused, decisions.pause_error)
        await self._show_end(decisions.ended.status, decisions.ended.error, decisions.ended.ending)
        return decisions.ended.status

    async def declare_corrupt(self, error: errors.JournalCorrupt) -> RunState:
        """Show the run as failed because its journal is damaged; the journal is not changed."""
        self._run_log.add_event(EventType.RECOVERY_CORRUPT, None, error.detail)
        self._projection.settle(RunState.FAILED, None, error.to_json())
        await self._projection.move(Transition.end(self._run_id, RunState.FAILED, self._projection.now(), error.code))
        return RunState.FAILED

    async def _end(self, ending: Ending, error: Mapping[str, plain.Json] | None, causes: list[int]) -> RunState:
        self._reach("run.before_ended")
        ending_json = ending.to_json()
        # A pause that the end has overtaken; otherwise the next opening of the run would add it after the end.
        self.note_pause()
        facts = {"status": ending.status.value, "causes": causes, "error": error, "ending": ending_json}
        # Of `ended` and `cancel_requested` the first line wins. If a cancel was synced before this line, its caller has
        # been answered already, and the run must not end as done.
        if not await self._storage_retry.commit(lambda: self._run_log.decide(DecisionKind.ENDED, facts)):
            return await self.cancel()
        self._reach("run.after_ended")
        self._projection.end(ending.status, error, ending_json)
        await self._show_end(ending.status, error, ending_json)
        return ending.status

    async def _show_end(
        self, status: RunState, error: Mapping[str, plain.Json] | None, ending: Mapping[str, plain.Json] | None
    ) -> None:
        code = str(error["code"]) if error else None
        # The snapshots are written first, the index row last. A row may show an ended run as unfinished for a moment:
        # recovery then reads its journal. Recovery would never look at a finished row over outdated snapshots again.
        self._projection.touch()
        await self._storage_retry.commit(self._run_log.flush)
        end_line = self._run_log.loaded.decisions.ended
        at = end_line.at if end_line else self._projection.now()
        await self._projection.note(Transition.end(self._run_id, status, at, code, gates.end_reason(error, ending)))

    async def _show_pause(self, reason: str | None, error: Mapping[str, plain.Json] | None) -> RunState:
        code = str(error["code"]) if error else None
        self._projection.settle(RunState.PAUSED, reason, error)
        if not self._pause_is_shown:
            self._pause_is_shown = True
            self._add_pause_event(reason, error)
        await self._storage_retry.commit(self._run_log.flush)
        await self._projection.note(Transition.pause(self._run_id, self._projection.now(), code, reason))
        return RunState.PAUSED

    def _masked(self, error: errors.ControlRoomError | errors.Fault) -> dict[str, plain.Json]:
        # The message quotes the driver's request, which can contain secrets from the texts of the recipe.
        masked: dict[str, plain.Json] = self._masker.mask_cut(plain.plain(error.to_json()))
        return masked

    def _add_pause_event(self, reason: str | None, error: Mapping[str, plain.Json] | None) -> None:
        decided = self._run_log.loaded.decisions
        author = decided.paused_by if decided.paused is not None else None
        self._run_log.add_event(EventType.RUN_PAUSED, None, {"reason": reason, "error": error, "author": author})

    def _cut_off(self) -> tuple[str, ...]:
        keys = (record.key for record in self._projection.counted if record.finish is not None and record.done)
        return tuple(dict.fromkeys(keys))

    def _failed_beside(self, scheduler: DriverScheduler, causes: list[int]) -> list[Record]:
        """Return the failures that reached their branches only after the cause of the ending had cancelled these."""
        # The driver has not seen them. If a resume kept them, the run would fail again without another attempt.
        return [
            record
            for record in self._projection.records[causes[-1] + 1 if causes else len(self._projection.records) :]
            if record.final and record.status is StepState.FAILED and scheduler.was_cancelled(record.branch)
        ]

    def _positions(self, keys: tuple[str, ...]) -> list[int]:
        latest = {record.key: record.position for record in self._projection.records if record.final} if keys else {}
        return sorted(latest[key] for key in keys if key in latest)


def noter(log: RunLog) -> Callable[[str, Mapping[str, plain.Json]], None]:
    """Return a function that writes a driver's notes as events, each note once in the life of its run."""

    def note(key: str, facts: Mapping[str, plain.Json]) -> None:
        if key not in log.loaded.emitted:
            log.add_event(EventType.RECIPE_NOTE, key, facts)

    return note


def _outcome(scheduler: DriverScheduler) -> tuple[Ending, errors.ControlRoomError | None]:
    failure = scheduler.failure
    if failure is None:
        return scheduler.result or Ending(), None
    if not isinstance(failure, errors.ControlRoomError):
        raise errors.DriverFault(f"the recipe's driver failed: {type(failure).__name__}: {failure}") from failure
    reason = failure.reason if isinstance(failure, errors.RunFailed) else failure.code
    failed = failure.causes if isinstance(failure, errors.RunFailed) else ()
    return Ending(status=RunState.FAILED, reason=reason, failed_steps=failed), failure
