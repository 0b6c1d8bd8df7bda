"""Run commands: write each command to the journal first, then notify the workflow."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from app import clock, errors
from app.domain import authors, decisions, runs, states
from app.domain.authors import Author
from app.domain.limits import RunLimits
from app.engine import marking, resuming, run_engine, stores, superseding
from app.temporal import messages
from app.temporal.steps import Steps

SendSignal = Callable[[str, str, list[Any]], Awaitable[None]]
"""Sends a signal to the workflow of a run, and starts the workflow if there is none."""

_wrong = run_engine.wrong_state

_log = logging.getLogger(__name__)


class RunCommands:
    """Cancels, pauses, unpauses, resumes, marks and limits runs."""

    def __init__(self, store: stores.RunStore, steps: Steps, time: clock.Clock, signal: SendSignal) -> None:
        self._store = store
        self._steps = steps
        steps.cancel_child = functools.partial(self.cancel, author=None)
        self._clock = time
        self._signal = signal

    async def cancel(self, run_id: str, author: Author | None) -> states.RunState:
        """Request the end of a run, and of the runs that it has started."""
        async with self._steps.leases.of(run_id) as log:
            written = await log.decide(decisions.DecisionKind.CANCEL_REQUESTED, authors.facts(author))
            if not written and log.loaded.decisions.ended is not None:
                raise _wrong(run_id, log.loaded.decisions.status, "cancel")
        # Also if the line existed before: the process that wrote it may have died before it notified the workflow.
        await self._signal_cancel(run_id, author)
        return states.RunState.CANCELLED

    async def supersede(self, run_id: str, newer: runs.RunStart, *, running: bool) -> None:
        """Cancel an earlier run of a newer run's concurrency key, in the name of the author who started the newer run.

        Args:
            running: Whether to cancel it even if it has begun; a run that has ended stays unchanged.
        """
        author = authors.named(newer.started_by)
        try:
            async with self._steps.leases.of(run_id) as log:
                # It may have ended or begun since its row was read.
                decided = log.loaded.decisions
                if decided.ended is not None or (decided.taken_since_resume and not running):
                    return
                facts = {**authors.facts(author), "superseded_by": superseding.newer_one(newer).to_json()}
                await log.decide(decisions.DecisionKind.CANCEL_REQUESTED, facts)
        except (errors.JournalCorrupt, errors.NotFound) as error:
            _log.error("not superseded: %s", error.message, extra={"run_id": run_id})
            return
        await self._signal_cancel(run_id, author)

    async def cancel_children(self, run_id: str, author: Author | None = None, *, is_cancelled: bool = True) -> None:
        """Request the end of every unfinished run that a run has started.

        Args:
            is_cancelled: Whether the run is cancelled; if not, only the runs for which its steps waited are.

        Raises:
            errors.Conflict, errors.StorageFault: one request could not be written now; all others were.
        """
        rows = [row async for row in stores.every_run(self._store, stores.RunQuery(parent_run_id=run_id))]
        # Each child is tried; if any request could not be written, the caller repeats the whole.
        left: errors.Conflict | errors.StorageFault | None = None
        for row in rows:
            if not states.RunState(row.status).finished:
                try:
                    if is_cancelled or runs.is_child((await self._store.read(row.run_id)).start):
                        await self.cancel(row.run_id, author)
                except errors.WrongState:
                    continue
                except (errors.JournalCorrupt, errors.NotFound) as error:
                    # A repetition would change nothing.
                    _log.error("not cancelled with its parent: %s", error.message, extra={"run_id": row.run_id})
                except (errors.Conflict, errors.StorageFault) as error:
                    left = error
        if left is not None:
            raise left

    async def pause(self, run_id: str, author: Author | None, *, interrupt: bool) -> states.RunState:
        """Stop a run at its next step boundary, or at once."""
        async with self._steps.leases.of(run_id) as log:
            decided = log.loaded.decisions
            again = interrupt and decided.paused is not None and decided.cancel_requested_at is None
            if decided.ended or decided.cancel_requested_at or (decided.paused and not again):
                raise _wrong(run_id, decided.status, "pause", run_engine.cancelling(decided))
            if not again:
                facts = {"reason": decisions.PAUSED_BY_PERSON, **authors.facts(author)}
                await log.decide(decisions.DecisionKind.PAUSED, facts)
        await self._signal(run_id, messages.PAUSE_SIGNAL, [interrupt])
        return states.RunState.PAUSED

    async def unpause(self, run_id: str, author: Author | None) -> states.RunState:
        """Continue a paused run."""
        facts = authors.facts(author)
        async with self._steps.leases.of(run_id) as log:
            decided, row = log.loaded.decisions, await self._store.summary(run_id)
            parked = decided.paused is None and row.status == states.RunState.PAUSED
            if decided.ended or decided.cancel_requested_at or not (decided.paused or parked):
                raise _wrong(run_id, row.status, "unpause", run_engine.cancelling(decided))
            # A run that is only shown as paused has no `paused` line that another line would have to revoke.
            if not parked:
                await log.decide(decisions.DecisionKind.UNPAUSED, facts)
            await resuming.queue(log, self._steps.drivers, self._now())
        await self._signal(run_id, messages.NEW_LINES_SIGNAL, [])
        return states.RunState.RUNNING

    async def resume(self, run_id: str, how: run_engine.Resume) -> states.RunState:
        """Continue an ended run."""
        async with self._steps.leases.of(run_id) as log:
            decided = log.loaded.decisions
            if decided.ended is None or decided.ended.status is states.RunState.DONE:
                raise _wrong(run_id, decided.status, "resume")
            if log.loaded.start.owner != "service":
                how = dataclasses.replace(how, overrides={**how.overrides, "owner": "service"})
            await resuming.resume(log, how, self._steps.drivers, self._steps.equipment)
        await self._signal(run_id, messages.NEW_LINES_SIGNAL, [])
        return states.RunState.PENDING

    async def mark(self, run_id: str, marks: run_engine.Marks, author: Author | None) -> runs.RunStart:
        """Change a run's labels and its pin."""
        async with self._steps.leases.of(run_id) as log:
            if await marking.mark(log, marks, author, lambda point: None):
                await resuming.show(log, log.loaded, self._steps.drivers)
            return log.loaded.start

    async def limit(self, run_id: str, limits: RunLimits, author: Author | None) -> None:
        """Apply new limits to an unfinished run."""
        async with self._steps.leases.of(run_id) as log:
            await marking.limit(log, limits, author, lambda point: None, self._steps.equipment.spending)
            paused = log.loaded.decisions.paused is not None
        if not paused:
            await self._signal(run_id, messages.NEW_LINES_SIGNAL, [])

    async def _signal_cancel(self, run_id: str, author: Author | None) -> None:
        await self._signal(run_id, messages.CANCEL_SIGNAL, [])
        await self.cancel_children(run_id, author)

    def _now(self) -> str:
        return clock.stamp(self._clock.now())
