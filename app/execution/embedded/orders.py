"""
Orders: what people decide about a run, each durable before it is answered.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from app import clock, errors
from app.engine import (
    decisions,
    events,
    plain,
    pool_port,
    ports,
    resumption,
    review,
    runner,
    runs,
    states,
    stores,
    views,
)
from app.execution.embedded.house import House
from app.execution.embedded.stays import Stay

_MOST_CHILDREN = 1000

_log = logging.getLogger(__name__)


class Orders:
    """
    Give orders about runs; an order once begun is carried out, even if whoever gave it goes away.
    """

    def __init__(
        self,
        store: stores.RunStore,
        dialects: Mapping[str, ports.Dialect],
        equipment: runner.Equipment,
        house: House,
    ) -> None:
        self._store = store
        self._dialects = dialects
        self._clock = equipment.clock
        self._reach = equipment.probes.reach
        self._house = house
        self._given: set[asyncio.Task[states.RunState]] = set()

    async def cancel(self, run_id: str) -> states.RunState:
        """
        End a run, whatever it is doing.
        """
        return await self._carry_out(run_id, self._cancel(run_id))

    async def pause(self, run_id: str) -> states.RunState:
        """
        Stop a run at its next step boundary.
        """
        return await self._carry_out(run_id, self._pause(run_id))

    async def unpause(self, run_id: str) -> states.RunState:
        """
        Let a paused or parked run go on.
        """
        return await self._carry_out(run_id, self._unpause(run_id))

    async def resume(self, run_id: str, how: pool_port.Resume) -> states.RunState:
        """
        Send an ended run on.
        """
        with _no_room():
            await self._let_end(run_id)
        return await self._carry_out(run_id, self._resume(run_id, how))

    async def cancel_children(self, run_id: str) -> None:
        """
        Cancel every unfinished run that a run has started.
        """
        children = await self._store.list_runs(stores.RunQuery(parent_run_id=run_id, limit=_MOST_CHILDREN))
        await self.cancel_all({child.run_id for child in children if child.parent_run_id == run_id})

    async def cancel_all(self, run_ids: set[str]) -> None:
        """
        Cancel those of the runs that have not ended.
        """
        for run_id in sorted(run_ids):
            try:
                await self.cancel(run_id)
            except errors.WrongState:
                continue
            except errors.ControlRoomError as error:
                _log.warning("not cancelled: %s", error.message, extra={"run_id": run_id, "code": error.code})

    async def settled(self) -> None:
        """
        Wait until every order given is carried out.
        """
        while self._given:
            await asyncio.wait(self._given)

    async def _carry_out(self, run_id: str, order: Coroutine[Any, Any, states.RunState]) -> states.RunState:
        task = asyncio.create_task(self._in_turn(run_id, order), name=f"order {run_id}")
        self._given.add(task)
        task.add_done_callback(self._given.discard)
        return await asyncio.shield(task)

    async def _in_turn(self, run_id: str, order: Coroutine[Any, Any, states.RunState]) -> states.RunState:
        with _no_room():
            async with self._house.turns.of(run_id):
                return await order

    # -- cancel

    async def _cancel(self, run_id: str) -> states.RunState:
        stay = self._house.stays.get(run_id) or self._house.admit(await self._unfinished(run_id))
        log = await self._house.take_up(stay)
        try:
            await self._write_cancel(log)
            stay.sent_on = True
            await self._pass_on(run_id, stay)
        finally:
            self._house.go_on(stay)
        return states.RunState.CANCELLED

    async def _pass_on(self, run_id: str, stay: Stay) -> None:
        # Before the run can end, since after a crash nobody would think of the children of a run that has.
        try:
            await self.cancel_children(run_id)
        finally:
            _runner(stay).cancel()

    async def _write_cancel(self, log: stores.RunLog) -> None:
        self._reach("pool.before_cancel")
        written = await _decide(log, decisions.DecisionKind.CANCEL_REQUESTED, {})
        self._reach("pool.after_cancel")
        if written:
            log.add_event(events.EventType.RUN_CANCEL_REQUESTED)
        elif log.loaded.decisions.ended is not None:
            raise _wrong(log.loaded.start.run_id, log.loaded.decisions.status, "cancelled")

    # -- pause, unpause

    async def _pause(self, run_id: str) -> states.RunState:
        stay = self._house.stays.get(run_id)
        if stay is None:
            raise _wrong(run_id, (await self._unfinished(run_id)).status, "paused")
        log = await self._house.take_up(stay)
        try:
            await self._write_pause(log)
            _runner(stay).pause()
        finally:
            self._house.go_on(stay)
        return states.RunState.PAUSED

    async def _write_pause(self, log: stores.RunLog) -> None:
        found = log.loaded.decisions
        if found.ended or found.paused or found.cancel_requested_at:
            raise _wrong(log.loaded.start.run_id, found.status, "paused")
        self._reach("pool.before_pause")
        if not await _decide(log, decisions.DecisionKind.PAUSED, {"reason": decisions.PAUSED_BY_PERSON}):
            raise _wrong(log.loaded.start.run_id, found.status, "paused")
        self._reach("pool.after_pause")

    async def _unpause(self, run_id: str) -> states.RunState:
        stay = self._house.stays.get(run_id)
        if stay is None:
            return await self._unpause_resting(await self._unfinished(run_id))
        log = await self._house.take_up(stay)
        parked = log.loaded.decisions.paused is None and _runner(stay).view().status is states.RunState.PAUSED
        try:
            if not parked:
                await self._write_unpause(log)
            stay.sent_on = True
        finally:
            self._house.go_on(stay)
        return states.RunState.RUNNING

    async def _unpause_resting(self, summary: stores.RunSummary) -> states.RunState:
        run_id = summary.run_id
        if summary.owner != "service":
            raise _wrong(run_id, summary.status, "unpaused: it is another's, resume takes it over")
        async with self._opened(run_id) as log:
            parked = summary.status == states.RunState.PAUSED or run_id in self._house.parked
            if log.loaded.decisions.paused is not None or not parked:
                await self._write_unpause(log)
            await log.move(runs.Transition.queue(run_id, self._now()))
            await self._show(log, log.loaded)
        return self._queue(summary)

    async def _write_unpause(self, log: stores.RunLog) -> None:
        found = log.loaded.decisions
        if found.paused is None or found.ended or found.cancel_requested_at:
            raise _wrong(log.loaded.start.run_id, found.status, "unpaused")
        self._reach("pool.before_unpause")
        await _decide(log, decisions.DecisionKind.UNPAUSED, {})
        self._reach("pool.after_unpause")
        log.add_event(events.EventType.RUN_UNPAUSED)

    # -- resume

    async def _let_end(self, run_id: str) -> None:
        # Its ending may be written and not yet be shown, or be found again by a recovery whose row lagged behind.
        stay = self._house.stays.get(run_id)
        if stay is None:
            return
        found = stay.log.loaded if stay.log is not None else await self._store.read(run_id)
        if found.decisions.ended is None:
            return
        async with self._house.turns.of(run_id):
            if not stay.left.done():
                await self._house.take_up(stay)
                self._house.go_on(stay)
        await asyncio.shield(stay.left)

    async def _resume(self, run_id: str, how: pool_port.Resume) -> states.RunState:
        summary = await self._store.summary(run_id)
        state = states.RunState(summary.status)
        lost = not state.finished and summary.owner != "service"
        if run_id in self._house.stays or state is states.RunState.DONE or not (state.finished or lost):
            raise _wrong(run_id, state, "resumed")
        self._refuse_while_stopping()
        async with self._opened(run_id) as log:
            taken_over = {} if summary.owner == "service" else {"owner": "service"}
            await self._write_resume(log, dataclasses.replace(how, overrides={**how.overrides, **taken_over}))
        return self._queue(summary)

    async def _write_resume(self, log: stores.RunLog, how: pool_port.Resume) -> None:
        found = log.loaded
        if found.decisions.ended is not None and found.decisions.ended.status is states.RunState.DONE:
            raise _wrong(found.start.run_id, states.RunState.DONE, "resumed")
        dead = resumption.dead_positions(found, how.from_key)
        sent_on = _sent_on(found, dead, how.overrides)
        if how.overrides:
            await self._make_sure_it_replays(sent_on, log)
        spans: plain.Json = decisions.ranges(dead)
        self._reach("pool.before_resume")
        await self._decide_resume(log, {"dead": spans, "overrides": dict(how.overrides)})
        self._reach("pool.after_resume")
        log.add_event(events.EventType.RUN_RESUMED, None, {"dead": spans})
        await self._show(log, dataclasses.replace(sent_on, decisions=log.loaded.decisions))

    async def _decide_resume(self, log: stores.RunLog, facts: dict[str, plain.Json]) -> None:
        run_id, ended = log.loaded.start.run_id, log.loaded.decisions.ended
        await log.move(runs.Transition.queue(run_id, self._now()))
        try:
            await log.decide(decisions.DecisionKind.RESUMED, facts)
        except errors.StorageFault:
            if ended is not None:
                code = ended.error["code"] if ended.error else None
                await log.move(runs.Transition.end(run_id, ended.status, ended.at, code))
            raise

    async def _make_sure_it_replays(self, sent_on: stores.Loaded, log: stores.RunLog) -> None:
        dialect = self._dialects.get(sent_on.start.dialect)
        if dialect is None:
            raise errors.RequestInvalid(f"nothing here speaks {sent_on.start.dialect!r}", code="unknown_dialect")
        try:
            await review.replays(sent_on, dialect, log.get_blob)
        except (errors.NondeterminismFault, errors.DriverFault) as fault:
            raise errors.RequestInvalid(
                f"the steps that the run keeps do not fit: {fault.message}",
                code="recipe_differs",
                key=fault.key,
                detail=fault.detail,
            ) from fault

    # -- small change

    async def _unfinished(self, run_id: str) -> stores.RunSummary:
        summary = await self._store.summary(run_id)
        if states.RunState(summary.status).finished:
            raise _wrong(run_id, summary.status, "changed any more")
        self._refuse_while_stopping()
        return summary

    def _refuse_while_stopping(self) -> None:
        if self._house.stopping:
            raise errors.Conflict("the service is stopping; ask it again after its next start", code="stopping")

    @asynccontextmanager
    async def _opened(self, run_id: str) -> AsyncIterator[stores.RunLog]:
        log = await self._store.open(run_id)
        try:
            yield log
        finally:
            await log.close()

    async def _show(self, log: stores.RunLog, loaded: stores.Loaded) -> None:
        view = await review.review(loaded, self._dialects.get(loaded.start.dialect), log.get_blob)
        log.refresh(lambda: {"run.json": views.manifest(view), "cache.json": views.cache(view)})

    def _queue(self, summary: stores.RunSummary) -> states.RunState:
        self._house.queue(summary)
        return self._house.state(summary.run_id)

    def _now(self) -> str:
        return clock.stamp(self._clock.now())


async def _decide(log: stores.RunLog, kind: decisions.DecisionKind, facts: Mapping[str, plain.Json]) -> bool:
    # An order may be the first write after a failed one; while nothing else is written, nobody else heals the file.
    try:
        return await log.decide(kind, facts)
    except errors.StorageFault:
        await log.heal()
    return await log.decide(kind, facts)


@contextmanager
def _no_room() -> Iterator[None]:
    try:
        yield
    except errors.StorageFault as fault:
        raise errors.NoRoom(f"it cannot be written down now: {fault.message}", detail=fault.detail) from fault


def _runner(stay: Stay) -> runner.Runner:
    assert stay.runner is not None
    return stay.runner


def _sent_on(loaded: stores.Loaded, dead: set[int], overrides: Mapping[str, plain.Json]) -> stores.Loaded:
    return dataclasses.replace(
        loaded,
        start=loaded.start.overridden(overrides),
        decisions=dataclasses.replace(loaded.decisions, dead=loaded.decisions.dead | dead),
    )


def _wrong(run_id: str, state: str, asked: str) -> errors.WrongState:
    return errors.WrongState(f"the run {run_id} is {state} and cannot be {asked}", detail={"status": str(state)})
