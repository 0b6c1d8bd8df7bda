"""Run commands: cancel, pause, unpause, limit, resume and mark runs; each command is durable before it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from app import clock, errors
from app.domain import allowed_orders, authors, decisions, plain, runs, states
from app.domain.authors import Author
from app.domain.limits import RunLimits
from app.engine import aio, marking, ports, resuming, run_engine, run_equipment, runner, stores, superseding
from app.worker.active_run import ActiveRun
from app.worker.active_runs import ActiveRuns
from app.worker.capacity import ignored

_NOT_WRITTEN = "it cannot be written down now"
LEAVING_SECONDS = 5.0  # Longest wait for a run that is at rest; its files may wait for a disk.

_log = logging.getLogger(__name__)
_wrong = run_engine.wrong_state

T = TypeVar("T")


class RunCommands:
    """Carries out the orders of `run_engine.RunOrders`; once begun, one finishes even if its caller disconnects."""

    def __init__(
        self,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        active: ActiveRuns,
    ) -> None:
        self._store = store
        self._drivers = drivers
        self._equipment = equipment
        self._clock = equipment.clock
        self._reach = equipment.probes.reach
        self._spending = equipment.spending
        self._active = active
        self._under_way = aio.BackgroundTasks()
        self._later = aio.BackgroundTasks()

    async def cancel(self, run_id: str, author: Author | None = None) -> states.RunState:
        return await self._carry_out(run_id, self._cancel(run_id, author))

    async def pause(self, run_id: str, author: Author | None = None, *, interrupt: bool = False) -> states.RunState:
        return await self._carry_out(run_id, self._pause(run_id, author, interrupt))

    async def unpause(self, run_id: str, author: Author | None = None) -> states.RunState:
        state = await self._carry_out(run_id, self._unpause(run_id, author, may_leave=True))
        if state is None:
            # It leaves first and re-enters the queue: continued from here, it would begin ahead of its turn.
            if (active_run := self._active.active_runs.get(run_id)) is not None:
                await aio.wait_first(asyncio.shield(active_run.left), self._clock.sleep(LEAVING_SECONDS))
            state = await self._carry_out(run_id, self._unpause(run_id, author))
        return state or states.RunState.RUNNING

    async def limit(self, run_id: str, limits: RunLimits, author: Author | None = None) -> None:
        await self._carry_out(run_id, self._limit(run_id, limits, author))

    async def resume(self, run_id: str, how: run_engine.Resume) -> states.RunState:
        with errors.as_failed_write(_NOT_WRITTEN):
            await self._let_end(run_id)
        return await self._carry_out(run_id, self._resume_ended(run_id, how))

    async def mark(self, run_id: str, marks: run_engine.Marks, author: Author | None = None) -> runs.RunStart:
        return await self._carry_out(run_id, self._mark(run_id, marks, author))

    async def reload(self, run_id: str) -> None:
        if (active_run := self._active.active_runs.get(run_id)) is not None and active_run.runner is None:
            await self._under_way.carry_out(self._reload(run_id), f"reload {run_id}")

    async def cancel_children(self, run_id: str, author: Author | None = None) -> None:
        """Cancel every unfinished run that a run has started."""
        try:
            of_run = stores.RunQuery(parent_run_id=run_id)
            children = [child async for child in stores.every_run(self._store, of_run)]
        except errors.StorageFault as fault:
            _log.error("children not found: %s", fault.message, extra={"run_id": run_id, "code": fault.code})
            return
        await self.cancel_all({child.run_id for child in children if child.parent_run_id == run_id}, author)

    async def supersede(self, run_ids: Iterable[str], newer: runs.RunStart) -> None:
        """Cancel earlier runs of a newer run's concurrency key, in the name of its author."""
        await self.cancel_all(run_ids, authors.named(newer.started_by), superseding.newer_one(newer))

    async def cancel_all(
        self, run_ids: Iterable[str], author: Author | None = None, superseded_by: runs.Superseded | None = None
    ) -> None:
        """Cancel the given runs, except those that have ended."""
        for run_id in sorted(run_ids):
            try:
                await self._carry_out(run_id, self._cancel(run_id, author, superseded_by))
            except errors.WrongState:
                continue
            except errors.Unreadable:
                # The order remains valid; it is carried out once the folder can be read again.
                self._later.begin(self._cancel_when_readable(run_id, author, superseded_by), f"cancel {run_id}")
            except errors.ControlRoomError as error:
                _log.warning("not cancelled: %s", error.message, extra={"run_id": run_id, "code": error.code})

    async def wait_idle(self) -> None:
        """Wait until every command has finished; commands that wait for a file are cancelled."""
        self._later.give_up()
        await self._under_way.wait_idle()

    async def _cancel_when_readable(
        self, run_id: str, author: Author | None, superseded_by: runs.Superseded | None
    ) -> None:
        await self._store.until_readable(run_id)
        await self.cancel_all({run_id}, author, superseded_by)

    async def _carry_out(self, run_id: str, command: Coroutine[Any, Any, T]) -> T:
        return await self._under_way.carry_out(self._in_turn(run_id, command), f"command about {run_id}")

    async def _in_turn(self, run_id: str, command: Coroutine[Any, Any, T]) -> T:
        with errors.as_failed_write(_NOT_WRITTEN):
            async with self._active.locks.of(run_id):
                return await command

    # -- cancel

    async def _cancel(
        self, run_id: str, author: Author | None, superseded_by: runs.Superseded | None = None
    ) -> states.RunState:
        active_run = self._active.active_runs.get(run_id)
        if active_run is None:
            active_run = self._admitted(await self._unfinished(run_id, "cancel"))
        log = await self._active.load_now(active_run)
        try:
            await self._write_cancel(log, author, superseded_by)
            active_run.sent_on = True
            await self._pass_on(run_id, active_run, author)
        finally:
            # A run that was loaded for the command continues, even if the command could not be written.
            await self._proceed(active_run)
        return states.RunState.CANCELLED

    async def _pass_on(self, run_id: str, active_run: ActiveRun, author: Author | None) -> None:
        # Before the run can end: after a crash, no record would lead from an ended run to its children.
        try:
            await self.cancel_children(run_id, author)
        finally:
            _runner(active_run).cancel()

    async def _write_cancel(
        self, log: stores.RunLog, author: Author | None, superseded_by: runs.Superseded | None
    ) -> None:
        self._reach("pool.before_cancel")
        facts = authors.facts(author)
        if superseded_by is not None:
            facts["superseded_by"] = superseded_by.to_json()
        is_first = await _decide(log, decisions.DecisionKind.CANCEL_REQUESTED, facts)
        self._reach("pool.after_cancel")
        if not is_first and log.loaded.decisions.ended is not None:
            raise _wrong(log.loaded.start.run_id, log.loaded.decisions.status, "cancel")

    # -- pause, unpause

    async def _pause(self, run_id: str, author: Author | None, interrupt: bool) -> states.RunState:
        active_run = self._active.active_runs.get(run_id)
        if active_run is None:
            summary = await self._unfinished(run_id, "pause")
            if summary.status == states.RunState.PAUSED:
                raise _wrong(run_id, summary.status, "pause")
            if summary.owner == "foreign":
                raise _wrong(run_id, summary.status, "pause", allowed_orders.FOREIGN)
            active_run = self._admitted(summary)
        log = await self._active.load_now(active_run)
        try:
            # A second order interrupts the steps that the first order lets finish.
            if not (interrupt and _is_pausing(log, active_run)):
                await self._write_pause(log, author)
            active_run.interrupts = interrupt and active_run.evicted is not None
            _runner(active_run).pause(interrupt=interrupt)
        finally:
            await self._proceed(active_run)
        return states.RunState.PAUSED

    async def _write_pause(self, log: stores.RunLog, author: Author | None) -> None:
        decided = log.loaded.decisions
        if decided.is_halted:
            raise _wrong(log.loaded.start.run_id, decided.status, "pause", run_engine.cancelling(decided))
        self._reach("pool.before_pause")
        facts = {"reason": decisions.PAUSED_BY_PERSON, **authors.facts(author)}
        if not await _decide(log, decisions.DecisionKind.PAUSED, facts):
            raise _wrong(log.loaded.start.run_id, decided.status, "pause")
        self._reach("pool.after_pause")

    async def _unpause(self, run_id: str, author: Author | None, *, may_leave: bool = False) -> states.RunState | None:
        if (summary := await self._inactive(run_id, "unpause")) is not None:
            return await self._unpause_inactive(summary, author)
        active_run = self._active.active_runs[run_id]
        if may_leave and active_run.is_halted_unbegun:
            return None
        log = await self._active.load_now(active_run)
        shown = _runner(active_run).view().status
        try:
            # A run that a fault parked has no `paused` line to revoke: loading it continues it.
            if log.loaded.decisions.paused is not None or shown is not states.RunState.PAUSED:
                await self._write_unpause(log, author, shown, _runner(active_run).completion.note_pause)
            active_run.sent_on = True
        finally:
            await self._proceed(active_run)
        return states.RunState.RUNNING

    async def _unpause_inactive(self, summary: stores.RunSummary, author: Author | None) -> states.RunState:
        run_id = summary.run_id
        if summary.owner != "service":
            if summary.status != states.RunState.PAUSED:
                raise _wrong(run_id, summary.status, "unpause")
            # No process continues it, so the command takes it over.
            return await self._resume(summary, run_engine.Resume(author=author))
        async with self._active.opened(run_id) as log:
            if log.loaded.missing is not None and summary.error_code != decisions.LINES_MISSING:
                # A caller that waits for the run must learn of the missing lines before the run continues.
                await log.move(runs.Transition.pause(run_id, self._now(), decisions.LINES_MISSING))
                raise errors.WrongState(log.loaded.missing.error(run_id).message, detail={"status": "paused"})
            parked = summary.status == states.RunState.PAUSED or run_id in self._active.parked
            if log.loaded.decisions.paused is not None or not parked:
                await self._write_unpause(log, author, summary.status)
            await resuming.queue(log, self._drivers, self._now())
        return self._queue(summary)

    async def _write_unpause(
        self, log: stores.RunLog, author: Author | None, shown: str, note_pause: Callable[[], None] = ignored
    ) -> None:
        decided = log.loaded.decisions
        if decided.paused is None or decided.ended or decided.cancel_requested_at:
            state = shown if decided.ended is None else decided.status
            raise _wrong(log.loaded.start.run_id, state, "unpause", run_engine.cancelling(decided))
        self._reach("pool.before_unpause")
        # The pause that this revokes may not have come to its boundary.
        note_pause()
        await _decide(log, decisions.DecisionKind.UNPAUSED, authors.facts(author))
        note_pause()
        self._reach("pool.after_unpause")

    # -- limit

    async def _limit(self, run_id: str, limits: RunLimits, author: Author | None) -> states.RunState:
        if (summary := await self._inactive(run_id, "limit")) is not None:
            if summary.owner == "foreign":
                raise _wrong(run_id, summary.status, "limit", allowed_orders.FOREIGN)
            async with self._active.opened(run_id) as log:
                await marking.limit(log, limits, author, self._reach, self._spending)
                self._active.changes.note(run_id)
            return states.RunState(summary.status)
        active_run = self._active.active_runs[run_id]
        log = await self._active.load_now(active_run)
        try:
            await marking.limit(log, limits, author, self._reach, self._spending)
            _runner(active_run).touch()
        finally:
            await self._proceed(active_run)
        return self._active.state(run_id)

    # -- resume

    async def _let_end(self, run_id: str) -> None:
        # Its ending may be durable but not yet visible, or recovery may have queued it because its row lagged behind.
        active_run = self._active.active_runs.get(run_id)
        if active_run is None:
            return
        loaded = active_run.log.loaded if active_run.log is not None else await self._store.read(run_id)
        if loaded.decisions.ended is None:
            return
        async with self._active.locks.of(run_id):
            if not active_run.left.done():
                await self._active.load_now(active_run)
                await self._proceed(active_run)
        await asyncio.shield(active_run.left)

    async def _resume_ended(self, run_id: str, how: run_engine.Resume) -> states.RunState:
        return await self._resume(await self._store.summary(run_id), how)

    async def _resume(self, summary: stores.RunSummary, how: run_engine.Resume) -> states.RunState:
        run_id = summary.run_id
        state = states.RunState(summary.status)
        # It belonged to another process or a command line that is gone: no process continues it.
        lost = not state.finished and summary.owner != "service"
        if run_id in self._active.active_runs or state is states.RunState.DONE or not (state.finished or lost):
            raise _wrong(run_id, state, "resume")
        self._refuse_while_stopping()
        async with self._active.opened(run_id) as log:
            self._refuse_done(run_id, log.loaded.decisions.ended)
            taken_over = {} if summary.owner == "service" else {"owner": "service"}
            whole = dataclasses.replace(how, overrides={**how.overrides, **taken_over})
            await resuming.resume(log, whole, self._drivers, self._equipment)
        return self._queue(summary)

    def _refuse_done(self, run_id: str, end_line: decisions.Ended | None) -> None:
        if end_line is not None and end_line.status is states.RunState.DONE:
            raise _wrong(run_id, end_line.status, "resume")

    # -- labels and pins

    async def _mark(self, run_id: str, marks: run_engine.Marks, author: Author | None) -> runs.RunStart:
        active_run = self._active.active_runs.get(run_id)
        if active_run is None:
            self._refuse_while_stopping()
            async with self._active.opened(run_id) as log:
                if await marking.mark(log, marks, author, self._reach):
                    await resuming.show(log, log.loaded, self._drivers)
                    self._active.changes.note(run_id)
                return log.loaded.start
        log = await self._active.load_now(active_run)
        try:
            if await marking.mark(log, marks, author, self._reach, _runner(active_run).view().records):
                _runner(active_run).touch()
            return log.loaded.start
        finally:
            await self._proceed(active_run)

    # -- helpers

    async def _reload(self, run_id: str) -> None:
        async with self._active.locks.of(run_id):
            active_run = self._active.active_runs.get(run_id)
            if active_run is None or active_run.runner is not None:
                return
            with contextlib.suppress(errors.ControlRoomError, errors.StorageFault):
                await self._active.load_now(active_run)
                await self._proceed(active_run)

    async def _proceed(self, active_run: ActiveRun) -> None:
        """Let a run that was loaded for a command continue: at its place in the queue if it was there, else at once."""
        displaced, active_run.displaced = active_run.displaced, False
        if not displaced or active_run.log is None or self._active.stopping or active_run.is_halted:
            self._active.advance(active_run)
            return
        # Otherwise it would begin the steps that need no capacity, without the key and workspace that it waits for.
        await self._active.unload(active_run)
        self._active.capacity.rejoin(active_run.request)

    async def _inactive(self, run_id: str, order: str) -> stores.RunSummary | None:
        """Return the row of an unfinished run that is not active; None if it is active."""
        if run_id in self._active.active_runs:
            return None
        summary = await self._unfinished(run_id, order)
        # The run may have been queued while its row was read.
        return None if run_id in self._active.active_runs else summary

    def _admitted(self, summary: stores.RunSummary) -> ActiveRun:
        # The run may have been queued while its row was read.
        return self._active.active_runs.get(summary.run_id) or self._active.admit(summary)

    async def _unfinished(self, run_id: str, order: str) -> stores.RunSummary:
        summary = await self._store.summary(run_id)
        if states.RunState(summary.status).finished:
            raise _wrong(run_id, summary.status, order)
        self._refuse_while_stopping()
        return summary

    def _refuse_while_stopping(self) -> None:
        if self._active.stopping:
            raise errors.Conflict("the service is stopping; ask it again after its next start", code="stopping")

    def _queue(self, summary: stores.RunSummary) -> states.RunState:
        self._active.queue(summary)
        return self._active.state(summary.run_id)

    def _now(self) -> str:
        return clock.stamp(self._clock.now())


async def _decide(log: stores.RunLog, kind: decisions.DecisionKind, facts: Mapping[str, plain.Json]) -> bool:
    # A command may be the first write after a failed one; without further writes, only the command repairs the file.
    try:
        return await log.decide(kind, facts)
    except errors.StorageFault:
        await log.heal()
    return await log.decide(kind, facts)


def _is_pausing(log: stores.RunLog, active_run: ActiveRun) -> bool:
    decided = log.loaded.decisions
    return decided.paused is not None and not decided.cancel_requested_at and bool(_runner(active_run).view().open)


def _runner(active_run: ActiveRun) -> runner.Runner:
    assert active_run.runner is not None
    return active_run.runner
