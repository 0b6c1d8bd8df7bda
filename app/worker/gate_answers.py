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

    def __init__(self, gates: GateRegister, store: stores.RunStore, house: ActiveRuns) -> None:
        self._gates = gates
        self._store = store
        self._house = house
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
            stay = self._house.stays.get(run_id)
            if stay is not None and stay.task is None and stay.asleep is None:
                with contextlib.suppress(errors.ControlRoomError, errors.StorageFault):
                    await self._let_in(stay)

    async def settled(self) -> None:
        """Wait until no run is being loaded for its gates."""
        await self._loading.settled()

    async def _let_ask(self, run_id: str, key: str) -> None:
        """Wait until something has changed about a run that may still come to ask, loaded out of the queue for that.

        Raises:
            errors.NotFound, errors.Conflict, errors.Unavailable: it does not ask.
        """
        number = self._house.changes.number(run_id)
        stay = self._house.stays.get(run_id)
        if stay is None or not await self._may_ask(stay, key):
            raise await self._refusal(run_id, key)
        if stay.task is None and stay.asleep is None:
            await self._let_in(stay)
        else:
            await self._house.changes.differs(run_id, number)

    async def _let_in(self, stay: ActiveRun) -> None:
        await self._loading.carry_out(self._take_up(stay), f"questions of {stay.run_id}")

    async def _take_up(self, stay: ActiveRun) -> None:
        # It has no seat; for the first step that needs one it joins the queue again.
        house = self._house
        async with house.turns.of(stay.run_id):
            if house.stays.get(stay.run_id) is stay and stay.task is None and stay.asleep is None:
                await house.take_up(stay)
                house.go_on(stay)

    async def _may_ask(self, stay: ActiveRun, key: str) -> bool:
        if self._house.stopping:
            return False
        if stay.log is not None and stay.runner is not None:
            return _is_open(stay.log.loaded.decisions, stay.runner.view().records, key)
        found = await self._store.read(stay.run_id)
        return _is_open(found.decisions, found.records, key)

    async def _refusal(self, run_id: str, key: str) -> errors.ControlRoomError:
        found = await self._store.read(run_id)
        if _is_recorded(found.records, key):
            return _decided(key)
        if not _is_open(found.decisions, found.records, key):
            return errors.NotFound(f"the run {run_id} has no open gate {key!r:.80}", code="gate_not_found", key=key)
        if self._house.stopping:
            return _stopping()
        told = f"the run {run_id} is not executed here; a `resume` takes it over"
        return errors.WrongState(told, key=key, detail={"run_id": run_id, "status": found.decisions.status.value})

    async def _is_written(self, run_id: str, key: str, attempt: int) -> bool:
        number = self._house.changes.number(run_id)
        stay = self._house.stays.get(run_id)
        if stay is None or stay.runner is None:
            asleep = stay is not None and stay.asleep is not None
            if _is_recorded((await self._store.read(run_id)).records, key, attempt):
                return True
            if not asleep:
                raise self._unwritten(key)
        elif _is_recorded(stay.runner.view().records, key, attempt):
            return True
        elif stay.runner.view().reason == errors.StorageFault.default_code:
            raise errors.NoRoom("the answer cannot be written down now; it counts as soon as it can", key=key)
        await self._house.changes.differs(run_id, number)
        return False

    def _unwritten(self, key: str) -> errors.ControlRoomError:
        if self._house.stopping:
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
