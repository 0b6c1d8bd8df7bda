"""Deliveries: pass answers to gates and values for other inputs to runs; accepted once their line is durable."""

# A gate's id is the run's id and a hash of step and attempt. The attempt rises only when the run asks anew
# (by a resume), so a late answer cannot decide a newer question; stops, kills and pauses keep the id.

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from app import errors
from app.domain import decisions, gates, inputs, plain, records
from app.domain.gates import Answer
from app.domain.inputs import Delivery
from app.engine import aio, evicted_runs, stores
from app.worker.active_run import ActiveRun
from app.worker.active_runs import ActiveRuns
from app.worker.inputs import Acceptance, InputRegister


class Deliveries:
    """Passes deliveries to the open inputs of runs."""

    def __init__(self, register: InputRegister, store: stores.RunStore, active: ActiveRuns) -> None:
        self._register = register
        self._store = store
        self._active = active
        self._loading = aio.BackgroundTasks()

    async def deliver(
        self, run_id: str, key: str, delivery: Answer | Delivery, attempt: int | None = None
    ) -> records.Record:
        """Deliver to an input, and wait for the line that makes it count; a later one waits for the first one's line.

        Raises:
            errors.NotFound, errors.Conflict, errors.RequestInvalid, errors.WriteFailed, errors.Unavailable: as
                `RunEngine.deliver`.
        """
        # Each iteration waits for a change and checks again: the run may be loaded, evicted or ended meanwhile.
        while (acceptance := self._accepted(run_id, key, delivery, attempt)) is None:
            if (repeated := await self._let_ask(run_id, key, delivery)) is not None:
                return repeated
        while (line := await self._written(run_id, key, acceptance)) is None:
            pass
        # A repeated delivery gets the same answer as the first one: the sender may not have received that answer.
        if not acceptance.first and not _is_repeated(line, delivery):
            raise _decided(delivery, key)
        return line

    async def let_ask(self, run_ids: Iterable[str]) -> None:
        """Load runs that were found waiting, one by one and without capacity, so that their gates expire in time."""
        for run_id in run_ids:
            with contextlib.suppress(errors.ControlRoomError, errors.StorageFault):
                await self.load(run_id)

    async def wake(self, run_id: str) -> None:
        """Load an unfinished run that only waits, without capacity; a loaded run repeats failed accesses at once.

        Raises:
            errors.ControlRoomError, errors.StorageFault: the run cannot be loaded now.
        """
        active_run = self._active.active_runs.get(run_id)
        if active_run is not None and active_run.runner is not None:
            active_run.runner.retry_now()
            return
        if active_run is None and not self._active.stopping:
            row = await self._store.summary(run_id)
            # While the row was read, the run may have become active.
            if run_id not in self._active.active_runs:
                self._active.admit(row)
        with contextlib.suppress(errors.JournalCorrupt, errors.NotFound):
            await self.load(run_id)

    async def load(self, run_id: str) -> None:
        """Load a run that waits in the queue, or an evicted one that could not be loaded before.

        Raises:
            errors.ControlRoomError, errors.StorageFault: the run cannot be loaded now.
        """
        active_run = self._active.active_runs.get(run_id)
        if active_run is not None and active_run.runner is None and active_run.evicted is not None:
            if active_run.failure is not None:
                self._active.wake(run_id)
                await self._active.load_now(active_run)
        elif active_run is not None and active_run.task is None:
            await self._let_in(active_run)

    async def wait_idle(self) -> None:
        """Wait until no run is being loaded for a delivery."""
        await self._loading.wait_idle()

    def _accepted(self, run_id: str, key: str, delivery: Answer | Delivery, attempt: int | None) -> Acceptance | None:
        active_run = self._active.active_runs.get(run_id)
        evicted = None if active_run is None else active_run.evicted
        resting = evicted if isinstance(evicted, evicted_runs.RestingRun) else None
        acceptance = self._register.deliver(run_id, key, delivery, attempt, resting)
        if acceptance is not None and resting is not None:
            self._active.wake(run_id)
        return acceptance

    async def _let_ask(self, run_id: str, key: str, delivery: Answer | Delivery) -> records.Record | None:
        """Load a run that may still ask, ahead of the queue, and wait until the run changes.

        Returns:
            The line of the same delivery, if it is already recorded.

        Raises:
            errors.NotFound, errors.Conflict, errors.Unavailable: the run does not ask.
        """
        # Read before any check, so that no change between the check and the wait is missed.
        number = self._active.changes.number(run_id)
        active_run = self._active.active_runs.get(run_id)
        if active_run is None or not await self._may_ask(active_run, key):
            return await self._recorded(run_id, key, delivery)
        if active_run.task is None and active_run.evicted is None:
            await self._let_in(active_run)
            return None
        await self._refuse_hindered(active_run, key)
        await self._active.changes.differs(run_id, number)
        return None

    async def _refuse_hindered(self, active_run: ActiveRun, key: str) -> None:
        """Refuse to wait for a run that waits for the data directory; try to load an evicted one again first.

        Raises:
            errors.WriteFailed, errors.Unreadable: the run cannot be written or read now.
        """
        try:
            # If another process holds the folder, the delivery is only delayed.
            if active_run.evicted is not None and isinstance(active_run.failure, errors.StorageFault):
                await self.load(active_run.run_id)
        except errors.Unreadable:
            raise
        except errors.StorageFault as fault:
            raise _unwritable(key) from fault
        obstacle = self._active.obstacle(active_run.run_id) if active_run.runner is not None else None
        if isinstance(obstacle, errors.Unreadable):
            raise obstacle
        if obstacle is not None:
            raise _unwritable(key) from obstacle

    async def _let_in(self, active_run: ActiveRun) -> None:
        await self._loading.carry_out(self._load_now(active_run), f"questions of {active_run.run_id}")

    async def _load_now(self, active_run: ActiveRun) -> None:
        # The run has no capacity; it joins the queue again before the first step that needs some.
        active = self._active
        async with active.locks.of(active_run.run_id):
            if (
                active.active_runs.get(active_run.run_id) is active_run
                and active_run.task is None
                and active_run.evicted is None
            ):
                await active.load_now(active_run)
                active.advance(active_run)

    async def _may_ask(self, active_run: ActiveRun, key: str) -> bool:
        if self._active.stopping:
            return False
        if active_run.log is not None and active_run.runner is not None:
            return _is_open(active_run.log.loaded.decisions, active_run.runner.view().records, key)
        found = await self._store.read(active_run.run_id)
        return _is_open(found.decisions, found.records, key)

    async def _recorded(self, run_id: str, key: str, delivery: Answer | Delivery) -> records.Record:
        found, kind = await self._store.read(run_id), delivery.of.kind
        line = _line(found.records, key)
        if line is not None and _fits(line, delivery):
            if _is_repeated(line, delivery):
                return line
            raise _decided(delivery, key)
        if not _is_open(found.decisions, found.records, key):
            message = f"the run {run_id} has no open {kind} {key!r:.80}"
            raise errors.NotFound(message, code=f"{kind}_not_found", key=key)
        if self._active.stopping:
            raise _stopping()
        message = f"the run {run_id} is not executed here; a `resume` takes it over"
        raise errors.WrongState(message, key=key, detail={"run_id": run_id, "status": found.decisions.status.value})

    async def _written(self, run_id: str, key: str, acceptance: Acceptance) -> records.Record | None:
        """Return the line of a delivery, or None once the run has changed."""
        attempt = acceptance.attempt
        # Read before the check, so that no change is missed.
        number = self._active.changes.number(run_id)
        active_run = self._active.active_runs.get(run_id)
        if active_run is None or active_run.runner is None:
            evicted = active_run is not None and active_run.evicted is not None
            if (line := _line((await self._store.read(run_id)).records, key, attempt)) is not None:
                return line
            if not evicted:
                raise self._unwritten(key)
        elif (line := _line(active_run.runner.view().records, key, attempt)) is not None:
            return line
        elif self._register.is_refused(run_id, key, acceptance):
            raise errors.WriteFailed("the delivery could not be written down", key=key)
        if active_run is not None:
            await self._refuse_hindered(active_run, key)
        await self._active.changes.differs(run_id, number)
        return None

    def _unwritten(self, key: str) -> errors.ControlRoomError:
        if self._active.stopping:
            return _stopping()
        return errors.Conflict("the run came to rest before the delivery was written", code="not_recorded", key=key)


def _is_open(found: decisions.Decisions, lines: Sequence[records.Record], key: str) -> bool:
    return not found.is_halted and found.awaits(key, {(line.key, line.attempt) for line in lines if line.key == key})


def _line(lines: Sequence[records.Record], key: str, attempt: int | None = None) -> records.Record | None:
    return next((line for line in reversed(lines) if line.key == key and attempt in (None, line.attempt)), None)


def _fits(line: records.Record, delivery: Answer | Delivery) -> bool:
    return gates.answer_in(line) is not None if isinstance(delivery, Answer) else inputs.is_delivered(line)


def _is_repeated(line: records.Record, delivery: Answer | Delivery) -> bool:
    # For a gate the use case decides this, because only it knows what the gate showed.
    if isinstance(delivery, Answer) or delivery.idempotency_key is None:
        return False
    return line.output_sha256 == plain.sha256(plain.content(delivery.output()))


def _decided(delivery: Answer | Delivery, key: str) -> errors.Conflict:
    kind = delivery.of.kind
    return errors.Conflict(f"the {kind} {key!r} is decided", code=f"{kind}_decided", key=key)


def _unwritable(key: str) -> errors.WriteFailed:
    return errors.WriteFailed("the delivery cannot be written down now", key=key)


def _stopping() -> errors.Unavailable:
    return errors.Unavailable("the service is stopping; ask it again after its next start", code="stopping")
