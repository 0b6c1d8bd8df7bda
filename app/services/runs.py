"""Runs: start, show, follow, stop and delete them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from app import clock, errors
from app.domain import events, operations, plain, receipts, records, runs, states, views
from app.engine import ports, run_engine, stores
from app.services import aio, conversation_binding, event_streams, faults, run_reader
from app.services.conversation_binding import ConversationBinding
from app.services.event_streams import EventFollower
from app.services.long_polls import LongPolls
from app.services.progress import Progress, RunListed
from app.services.recipe_versions import RecipeVersion
from app.services.requests import Moved, ResumeRequest, Started, StartRequest
from app.services.run_reader import Ready, RunReader
from app.services.starting import Starter

Listener: TypeAlias = Callable[[runs.RunStart], None]
"""Is told what begins; it may not wait."""


class RunStartedListeners:
    """Hand on what begins."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Notify a listener from now on."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Stop notifying a listener."""
        self._listeners.remove(listener)

    def tell(self, start: runs.RunStart) -> None:
        """Notify all listeners."""
        for listener in tuple(self._listeners):
            listener(start)


T = TypeVar("T")


class Runs:
    """Start, show, follow, stop and delete runs."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        starter: Starter,
        joining: ConversationBinding,
        dialects: Mapping[str, ports.Driver],
        clock: clock.Clock,
        started_listeners: RunStartedListeners | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._starter = starter
        self._joining = joining
        self._clock = clock
        self._started_listeners = started_listeners or RunStartedListeners()
        self._reader = RunReader(store=store, engine=engine, dialects=dialects, clock=clock)
        self._progress = Progress(store, engine)
        self._follower = EventFollower(store=store, engine=engine, clock=clock)
        self._waiter = LongPolls(reader=self._reader, follower=self._follower, engine=engine, clock=clock)

    async def start(self, request: StartRequest, own: RecipeVersion | None = None) -> Started:
        """Accept a run and queue it; a repetition of a request with the same key finds the run that it made.

        Args:
            own: What is executed where no recipe file tells it.

        Raises:
            errors.RequestInvalid, errors.Unroutable: the request cannot become a run.
            errors.Conflict: `idempotency_conflict`, `recipe_busy` with the unfinished run's id, or `session_locked`
                with the `holder` of the conversation that the run is to continue with.
            errors.DiskFull: the disk is full or failing.
        """
        repeated = await self._find_repeated(request)
        if repeated is not None:
            return await self._found(repeated)
        start = await self._starter.prepared(request, await self._parent(request), own)
        self._engine.expect(start.run_id)
        with faults.as_errors():
            created = await self._joining.create(start, request)
        if created.existed:
            return await self._found(created.run_id)
        status = await self._engine.submit(created.run_id)
        self._started_listeners.tell(start)
        return Started(run_id=created.run_id, status=status, existed=False)

    async def start_child(self, call: ports.Call) -> str:
        """Start the run that a `ChildRun` requests, or find the one of an earlier attempt; return its id.

        Raises:
            errors.ControlRoomError: the child cannot be started.
        """
        started = await self.start(_child_request(call))
        if started.existed and not started.status.finished:
            await self._engine.submit(started.run_id)
        return started.run_id

    async def check(self, request: StartRequest) -> int:
        """Refuse what is wrong with a request whatever it is that the run would execute; return how many runs are
        above.

        Raises:
            errors.RequestInvalid: as `Starter.check`, or `unknown_parent`.
        """
        return self._starter.check(request, await self._parent(request))

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return runs, newest first."""
        return await self._store.list_runs(query)

    async def page(self, query: stores.RunQuery) -> tuple[list[RunListed], bool]:
        """Return a page of runs with their progress, newest first, and whether more follow."""
        found = await self._store.list_runs(dataclasses.replace(query, limit=query.limit + 1))
        return await self._progress.rows(found[: query.limit]), len(found) > query.limit

    async def ready(self, run_id: str) -> Ready:
        """Return a run's consolidated answer as bytes.

        Raises:
            errors.NotFound: there is no such run.
        """
        return await self._reader.ready(run_id)

    async def wait(self, run_id: str, seconds: float, known: frozenset[str] = frozenset()) -> Ready:
        """Return a run's consolidated answer as soon as it differs from those known, or from the present one.

        An ended run is not waited for; while one continues, quick changes are answered together.

        Args:
            seconds: Longest wait.
            known: Entity tags that the caller has; empty: the present one.

        Raises:
            errors.NotFound: there is no such run.
        """
        return await self._waiter.answer(run_id, seconds, known)

    async def view(self, run_id: str) -> views.RunView:
        """Return a run as it is.

        Raises:
            errors.NotFound, errors.JournalCorrupt: there is no such run, or it is damaged.
        """
        return await self._reader.view(run_id)

    async def steps(self, run_id: str) -> Sequence[records.Record]:
        """Return all journal lines in order, those of dead and repeated tries included.

        Raises:
            errors.NotFound, errors.JournalCorrupt: there is no such run, or it is damaged.
        """
        return (await self._reader.view(run_id)).records

    async def steps_page(
        self, run_id: str, *, after: int = -1, limit: int | None = None
    ) -> tuple[Sequence[records.Record], bool]:
        """Return a page of the journal, and whether more lines follow.

        Args:
            after: Position of the line before the first.
            limit: Most lines; None: all.

        Raises:
            errors.NotFound, errors.JournalCorrupt: there is no such run, or it is damaged.
        """
        lines = await self.steps(run_id)
        end = len(lines) if limit is None else after + 1 + limit
        return lines[after + 1 : end], end < len(lines)

    async def slot(self, run_id: str, name: str) -> dict[str, plain.Json]:
        """Return a slot: a pointer's facts, or an artifact with its text.

        Raises:
            errors.NotFound: there is no such run, or `slot_not_found`.
        """
        return await self._reader.slot(run_id, name)

    async def look(self, found: T, look: Callable[[], Awaitable[T]], seconds: float, is_news: Callable[[T], bool]) -> T:
        """Wait until a list is news to its reader, or the time is over; see `Waiter.look`."""
        return await self._waiter.look(found, look, seconds, is_news)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[events.Event, None]:
        """Return a run's events numbered above `after`, those to come included; they end with the run.

        Raises:
            errors.NotFound: there is no such run.
        """
        await self._reader.status(run_id)
        return self._follower.events(run_id, after, lambda: self._has_ended(run_id))

    async def stream(self, run_id: str, after: int = 0) -> AsyncGenerator[event_streams.Batch, None]:
        """Return the same in portions that are shared by all who follow; an empty one is a sign of life.

        Raises:
            errors.NotFound: there is no such run.
        """
        await self._reader.status(run_id)
        return self._follower.batches(run_id, after, lambda: self._has_ended(run_id))

    async def logs(self, run_id: str) -> list[str]:
        """Return the names of a run's logs.

        Raises:
            errors.NotFound: there is no such run.
        """
        run_reader.check_run_id(run_id)
        return await self._store.list_logs(run_id)

    async def log(self, run_id: str, name: str) -> bytes:
        """Return a log.

        Raises:
            errors.NotFound: there is no such run or log.
        """
        run_reader.check_run_id(run_id)
        if name.startswith(".") or any(character in name for character in "/\\\0"):
            raise errors.NotFound(f"there is no log {name!r:.80}", code="log_not_found")
        return await self._store.read_log(run_id, name)

    async def receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return the receipt of a tool execution, and whether it is still as its run has written it.

        Raises:
            errors.NotFound: there is none of that id.
        """
        found, alteration = await self._store.find_receipt(receipt_id), None
        try:
            await self._store.prove_receipt(receipt_id)
        except errors.Conflict as altered:
            alteration = altered.message
        return found | {"intact": alteration is None, "alteration": alteration}

    async def receipts(self, query: receipts.ReceiptQuery) -> tuple[list[receipts.ListedReceipt], bool]:
        """Return a page of receipts, and whether more follow."""
        found = await self._store.list_receipts(dataclasses.replace(query, limit=query.limit + 1))
        return found[: query.limit], len(found) > query.limit

    async def cancel(self, run_id: str) -> Moved:
        """Ask for a run's end.

        Raises:
            errors.NotFound, errors.WrongState: there is no such run, or it has ended.
            errors.DiskFull: the request could not be made durable.
        """
        run_reader.check_run_id(run_id)
        with faults.as_errors():
            await self._engine.cancel(run_id)
        # A client may look at once after this answer, so open steps get a moment to be cut off.
        await aio.wait_first(self._engine.ended(run_id), self._clock.sleep(run_reader.SETTLING_SECONDS))
        return await self._reader.moved(run_id)

    async def pause(self, run_id: str, *, interrupt: bool = False) -> Moved:
        """Stop a run at its next step boundary, or at once.

        Args:
            interrupt: Cut the steps in flight off; they leave no record and run again as their next attempt.

        Raises:
            errors.NotFound, errors.WrongState, errors.DiskFull: as `cancel`, or it is paused already.
        """
        run_reader.check_run_id(run_id)
        with faults.as_errors():
            await self._engine.pause(run_id, interrupt=interrupt)
        if interrupt or not self._reader.is_in_flight(run_id):
            # Nothing is waited for but its files.
            await aio.wait_first(self._engine.left(run_id), self._clock.sleep(run_reader.SETTLING_SECONDS))
        return await self._reader.moved(run_id)

    async def unpause(self, run_id: str) -> Moved:
        """Let a paused run continue.

        Raises:
            errors.NotFound, errors.WrongState, errors.DiskFull: as `cancel`, or it is not paused.
        """
        run_reader.check_run_id(run_id)
        with faults.as_errors():
            await self._engine.unpause(run_id)
        return await self._reader.moved(run_id)

    async def resume(self, run_id: str, request: ResumeRequest) -> Moved:
        """Send a failed or cancelled run on, or take over an unfinished one that another process or directory left.

        Raises:
            errors.NotFound, errors.WrongState, errors.DiskFull: as `cancel`, or it is neither of these.
            errors.RequestInvalid: the step, the arguments or the recipe do not fit; `no_conversation`.
            errors.Conflict: `session_locked`, the `holder` speaks in the run's conversation.
        """
        view = await self._reader.view(run_id)
        left_behind = not view.status.finished and (await self._store.summary(run_id)).owner != "service"
        if not left_behind and view.status not in (states.RunState.FAILED, states.RunState.CANCELLED):
            raise errors.WrongState(
                f"run {run_id} is {view.status}; only a failed or cancelled run is resumed",
                detail={"run_id": run_id, "status": view.status.value},
            )
        overrides = await self._starter.renewed(view.start, request)
        if request.new_conversation:
            overrides = {**overrides, "begun_again": conversation_binding.begun_again(view)}
        how = run_engine.Resume(from_key=request.from_key, overrides=overrides)
        with faults.as_errors():
            await self._joining.resume(run_id, view, how)
        self._started_listeners.tell(view.start)
        return await self._reader.moved(run_id)

    async def delete(self, run_id: str) -> None:
        """Delete a finished run.

        Raises:
            errors.NotFound, errors.WrongState: there is no such run, or it has not ended.
        """
        run_reader.check_run_id(run_id)
        status = (await self._reader.moved(run_id)).status
        if not status.finished:
            message = f"run {run_id} is {status}; only a finished run is deleted"
            raise errors.WrongState(message, detail={"run_id": run_id, "status": status.value})
        with faults.as_errors():
            await self._store.delete(run_id)
        self._reader.forget(run_id)

    def forget(self, run_id: str) -> None:
        """Drop what is kept in memory of a run at rest."""
        self._reader.forget(run_id)

    def release(self) -> None:
        """Wake every waiting poll and stream, because the service stops."""
        self._follower.release()

    async def released(self) -> None:
        """Wait until the service stops."""
        await self._follower.until_released()

    async def _find_repeated(self, request: StartRequest) -> str | None:
        if request.idempotency_key is None:
            return None
        return await self._store.find_repeated(request.idempotency_key, request.sha256())

    async def _found(self, run_id: str) -> Started:
        return Started(run_id=run_id, status=await self._reader.status(run_id), existed=True)

    async def _parent(self, request: StartRequest) -> runs.RunStart | None:
        if request.parent_run_id is None:
            return None
        try:
            return await self._reader.start(request.parent_run_id)
        except errors.NotFound as error:
            if request.runs_above is not None:
                return None
            flaw = errors.Flaw(path="$.parent_run_id", code="unknown_parent", message=error.message)
            raise errors.RequestInvalid(error.message, code="unknown_parent", flaws=[flaw]) from error

    async def _has_ended(self, run_id: str) -> bool:
        return (await self._reader.status(run_id)).finished


def _child_request(call: ports.Call) -> StartRequest:
    operation, parent = call.operation, call.run
    assert isinstance(operation, operations.ChildRun)
    return StartRequest(
        recipe_id=operation.recipe_id,
        args=operation.args,
        description=operation.description or None,
        working_dir=parent.working_dir,
        priority=parent.priority,
        parent_run_id=parent.run_id,
        owner=parent.owner,
        idempotency_key=f"child:{parent.run_id}:{plain.sha256(call.key.encode())[:32]}",
    )
