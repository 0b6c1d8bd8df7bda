"""Answers: a person's decision about a gate, accepted once its line is durable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from app import errors
from app.domain import decisions, records
from app.domain import gates as engine_gates
from app.engine import stores
from app.worker.active_run import ActiveRun
from app.worker.active_runs import ActiveRuns
from app.worker.background_tasks import BackgroundTasks
from app.worker.gate_register import GateRegister


class GateAnswers:
    """Pass answers on to the gates of runs."""

    def __init__(self, gates: GateRegister, store: stores.RunStore, active: ActiveRuns) -> None:
        self._gates = gates
        self._store = store
        self._active = active
        self._loading = BackgroundTasks()

    async def give(self, run_id: str, key: str, answer: engine_gates.Answer, attempt: int | None = None) -> None:
        """Answer a gate, and wait for the line that makes the answer count; whoever comes second waits for the first's.

        Raises:
            errors.NotFound, errors.Conflict, errors.RequestInvalid, errors.NoRoom, errors.Unavailable: as
                `RunEngine.decide`.
        """
        while (given := self._gates.answer(run_id, key, answer, attempt)) is None:
            await self._let_ask(run_id, key)
        asked, first = given
        while not await self._is_written(run_id, key, asked):
            pass
        if not first:
            raise _decided(key)

    async def let_ask(self, run_ids: Iterable[str]) -> None:
        """Load runs that were found waiting, one after the other and before they have a seat, so that the time of their
        gates is kept however busy the others are.
        """
        for run_id in run_ids:
            active_run = self._active.active_runs.get(run_id)
            if active_run is not None and active_run.task is None and active_run.evicted is None:
                with contextlib.suppress(errors.ControlRoomError, errors.StorageFault):
                    await self._let_in(active_run)

    async def settled(self) -> None:
        """Wait until no run is being loaded for its gates."""
        await self._loading.settled()

    async def _let_ask(self, run_id: str, key: str) -> None:
        """Wait until something has changed about a run that may still come to ask, loaded out of the queue for that.

        Raises:
            errors.NotFound, errors.Conflict, errors.Unavailable: it does not ask.
        """
        number = self._active.changes.number(run_id)
        active_run = self._active.active_runs.get(run_id)
        if active_run is None or not await self._may_ask(active_run, key):
            raise await self._refusal(run_id, key)
        if active_run.task is None and active_run.evicted is None:
            await self._let_in(active_run)
        else:
            await self._active.changes.differs(run_id, number)

    async def _let_in(self, active_run: ActiveRun) -> None:
        await self._loading.carry_out(self._take_up(active_run), f"questions of {active_run.run_id}")

    async def _take_up(self, active_run: ActiveRun) -> None:
        # It has no seat; for the first step that needs one it joins the queue again.
        active = self._active
        async with active.locks.of(active_run.run_id):
            if (
                active.active_runs.get(active_run.run_id) is active_run
                and active_run.task is None
                and active_run.evicted is None
            ):
                await active.take_up(active_run)
                active.go_on(active_run)

    async def _may_ask(self, active_run: ActiveRun, key: str) -> bool:
        if self._active.stopping:
            return False
        if active_run.log is not None and active_run.runner is not None:
            return _is_open(active_run.log.loaded.decisions, active_run.runner.view().records, key)
        found = await self._store.read(active_run.run_id)
        return _is_open(found.decisions, found.records, key)

    async def _refusal(self, run_id: str, key: str) -> errors.ControlRoomError:
        found = await self._store.read(run_id)
        if _is_recorded(found.records, key):
            return _decided(key)
        if not _is_open(found.decisions, found.records, key):
            return errors.NotFound(f"the run {run_id} has no open gate {key!r:.80}", code="gate_not_found", key=key)
        if self._active.stopping:
            return _stopping()
        told = f"the run {run_id} is not executed here; a `resume` takes it over"
        return errors.WrongState(told, key=key, detail={"run_id": run_id, "status": found.decisions.status.value})

    async def _is_written(self, run_id: str, key: str, attempt: int) -> bool:
        number = self._active.changes.number(run_id)
        active_run = self._active.active_runs.get(run_id)
        if active_run is None or active_run.runner is None:
            evicted = active_run is not None and active_run.evicted is not None
            if _is_recorded((await self._store.read(run_id)).records, key, attempt):
                return True
            if not evicted:
                raise self._unwritten(key)
        elif _is_recorded(active_run.runner.view().records, key, attempt):
            return True
        elif active_run.runner.view().reason == errors.StorageFault.default_code:
            raise errors.DiskFull("the answer cannot be written down now; it counts as soon as it can", key=key)
        await self._active.changes.differs(run_id, number)
        return False

    def _unwritten(self, key: str) -> errors.ControlRoomError:
        if self._active.stopping:
            return _stopping()
        return errors.Conflict("the run came to rest before the answer was written", code="not_recorded", key=key)


def _is_open(found: decisions.Decisions, lines: Sequence[records.Record], key: str) -> bool:
    resting = found.ended or found.paused or found.cancel_requested_at
    return not resting and key in found.asked and not _is_recorded(lines, key, found.highest_attempt.get(key))


def _is_recorded(lines: Sequence[records.Record], key: str, attempt: int | None = None) -> bool:
    return any(
        line.key == key and attempt in (None, line.attempt) and engine_gates.answer_in(line) is not None
        for line in lines
    )


def _decided(key: str) -> errors.Conflict:
    return errors.Conflict(f"the gate {key!r} is decided", code="gate_decided", key=key)


def _stopping() -> errors.Unavailable:
    return errors.Unavailable("the service is stopping; ask it again after its next start", code="stopping")
