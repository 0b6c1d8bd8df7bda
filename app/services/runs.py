"""Orders to runs: start, stop, continue and delete them, for every interface."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from app import clock, errors
from app.domain import allowed_orders, authors, decisions, operations, plain, runs, states, views
from app.engine import aio, ports, run_engine, stores
from app.services import awaiting, conversation_binding, faults, requests, run_reader, voting
from app.services.conversation_binding import ConversationBinding
from app.services.recipe_versions import RecipeVersion
from app.services.requests import Marked, Moved, ResumeRequest, Started, StartRequest
from app.services.run_queries import RunQueries
from app.services.starting import Starter

if TYPE_CHECKING:
    from app.services.forking import Forks
    from app.services.previews import Previews
    from app.services.resumptions import Resumptions

Listener: TypeAlias = Callable[[runs.RunStart], None]  # Called with each new run; it must not wait.


class RunStartedListeners:
    """Notifies listeners of runs that begin."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._of_sessions: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Notify a listener of every run from now on, including runs that other processes begin and announce."""
        self._listeners.append(listener)

    def listen_to_sessions(self, listener: Listener) -> None:
        """Notify a listener, from now on, of runs that may belong to a conversation or a session plan."""
        self._of_sessions.append(listener)

    def forget(self, listener: Listener) -> None:
        """Stop notifying a listener."""
        for listeners in (self._listeners, self._of_sessions):
            if listener in listeners:
                listeners.remove(listener)

    def notify(self, start: runs.RunStart, *, elsewhere: bool = False) -> None:
        """Notify the listeners of a run.

        Args:
            elsewhere: Whether another process has begun or resumed it: then only listeners to every run are notified.
        """
        for listener in (*self._listeners, *(self._of_sessions if not elsewhere and _may_belong(start) else ())):
            listener(start)

    @property
    def has_any(self) -> bool:
        """Return whether a listener to every run exists."""
        return bool(self._listeners)


class Runs(RunQueries):
    """Starts, shows, follows, stops and deletes runs."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        starter: Starter,
        binding: ConversationBinding,
        drivers: Mapping[str, ports.Driver],
        clock: clock.Clock,
        started_listeners: RunStartedListeners | None = None,
    ) -> None:
        super().__init__(store=store, engine=engine, drivers=drivers, clock=clock)
        self._starter = starter
        self._conversation_binding = binding
        self.started_listeners = started_listeners or RunStartedListeners()
        """Listeners to every run that begins or is resumed."""

    async def start(
        self,
        request: StartRequest,
        own: RecipeVersion | None = None,
        author: authors.Author | None = None,
        asked_by: str | None = None,
    ) -> Started:
        """Accept a run and queue it; a repeated request with the same key finds its run.

        Args:
            own: Recipe to execute if no recipe file defines it.
            author: Author of the start; None: Control Room itself.
            asked_by: Run whose agent or command makes the request, if it names no parent.

        Raises:
            errors.RequestInvalid, errors.Unroutable: the request cannot become a run.
            errors.Conflict: `idempotency_conflict`, `recipe_busy` with the unfinished run's id, or `session_locked`
                with the `holder` of the conversation that the run is to continue with.
            errors.WriteFailed: the disk is full or failing.
        """
        if request.idempotency_key is not None:
            repeated = await self._store.find_repeated(request.idempotency_key, request.sha256())
            if repeated is not None:
                return await self._found(repeated)
        parent = await self._above(request, asked_by)
        start = await self._starter.prepare(request, parent, own)
        if author is not None:
            start = dataclasses.replace(start, started_by=author.to_json())
        if parent is None and start.approvals is not None:
            await voting.refuse_unapprovable(start, self._starter.rules.approvers)
        try:
            start, created = await self._starter.create(start, functools.partial(self._create, request))
        except (errors.Fault, errors.Conflict):
            with faults.as_errors():
                raise
        if created.existed:
            return await self._found(created.run_id)
        status = await self._engine.submit(created.run_id, created.summary)
        self.started_listeners.notify(start)
        return Started(run_id=created.run_id, status=status, existed=False)

    async def _create(self, request: StartRequest, start: runs.RunStart) -> stores.Created:
        # The engine expects the run before its folder exists; otherwise a recovery that lists folders now would mistake
        # it for the run of an earlier process.
        self._engine.expect(start.run_id)
        if _converses(start):
            return await self._conversation_binding.create(start, request)
        return await self._store.create(start, exclusive=request.exclusive)

    async def note_begun_elsewhere(self, run_id: str) -> None:
        """Notify followers of conversations of a run that another process has begun or resumed.

        Raises:
            errors.NotFound, errors.StorageFault: the run does not exist, or cannot be read.
        """
        if self.started_listeners.has_any:
            self.started_listeners.notify((await self.reader.view(run_id)).start, elsewhere=True)

    async def start_child(self, call: ports.Call) -> str:
        """Start the run that a `ChildRun` requests, or find that of an earlier attempt, and return its id.

        Raises:
            errors.ControlRoomError: the child cannot be started.
        """
        started = await self._child(call)
        # A process that died between the child's folder and the parent's line has left the child unqueued.
        if started.existed and not started.status.finished:
            await self._engine.submit(started.run_id)
        elif started.existed and call.run.resumed:
            await self.resumptions.reached(started, call.run.run_id, self.resume)
        return started.run_id

    async def _child(self, call: ports.Call) -> Started:
        assert isinstance(call.operation, operations.ChildRun)
        again = 0
        if call.recorded:
            parent = await self._store.read(call.run.run_id)
            again = requests.times_again(parent.records, parent.decisions.dead, call.key)
        request = requests.of_child(call.run, call.key, call.operation, again)
        try:
            return await self.start(request)
        except errors.Conflict as error:
            if error.code != "idempotency_conflict" or not call.run.resumed:
                raise
            # The resume changed what the step asks for; the earlier child keeps its request.
            return await self.start(requests.of_other_child(request))

    async def check(self, request: StartRequest) -> int:
        """Refuse flaws of a request that do not depend on its recipe, and return the number of runs above.

        Raises:
            errors.RequestInvalid: as `Starter.check`, or `unknown_parent`.
        """
        parent = await self._above(request)
        return self._starter.check(request, parent)

    async def cancel(self, run_id: str, author: authors.Author | None = None) -> Moved:
        """Request the end of a run.

        Raises:
            errors.NotFound, errors.WrongState: the run does not exist, or has ended.
            errors.WriteFailed: the request could not be made durable.
        """
        run_reader.check_run_id(run_id)
        with faults.as_errors():
            await self._engine.cancel(run_id, author)
        # A client may read the run right after this answer, so open steps get a moment to be interrupted.
        await aio.wait_first(self._engine.ended(run_id), self._clock.sleep(run_reader.ENDING_SECONDS))
        return await self.reader.moved(run_id)

    async def pause(self, run_id: str, author: authors.Author | None = None, *, interrupt: bool = False) -> Moved:
        """Stop a run at its next step boundary, or at once.

        Args:
            interrupt: Interrupt the steps in flight; they leave no record and run again as their next attempt.

        Raises:
            errors.NotFound, errors.WrongState, errors.WriteFailed: as `cancel`, or it is paused already.
        """
        run_reader.check_run_id(run_id)
        with faults.as_errors():
            await self._engine.pause(run_id, author, interrupt=interrupt)
        if interrupt or not self.reader.is_in_flight(run_id):
            # Only its files are waited for.
            await aio.wait_first(self._engine.left(run_id), self._clock.sleep(run_reader.ENDING_SECONDS))
        return await self.reader.moved(run_id)

    async def unpause(self, run_id: str, author: authors.Author | None = None) -> Moved:
        """Let a paused run continue.

        Raises:
            errors.NotFound, errors.WrongState, errors.WriteFailed: as `cancel`, or it is not paused.
            errors.Conflict: `budget_exhausted`; its next call still does not fit.
        """
        run_reader.check_run_id(run_id)
        await self._refuse_exhausted(run_id)
        with faults.as_errors():
            await self._engine.unpause(run_id, author)
        return await self.reader.moved(run_id)

    async def _refuse_exhausted(self, run_id: str) -> None:
        if (await self._store.summary(run_id)).reason != decisions.BUDGET_EXHAUSTED or self._engine.spending is None:
            return
        with faults.as_errors():
            loaded = await self._store.read(run_id)
        error = loaded.decisions.pause_error
        if error is not None and not await self._engine.spending.has_room(loaded):
            message, key = str(error.get("message")), str(error.get("key"))
            raise errors.Conflict(message, code=decisions.BUDGET_EXHAUSTED, key=key)

    async def resume(self, run_id: str, request: ResumeRequest, author: authors.Author | None = None) -> Moved:
        """Send a failed or cancelled run on, with those that it waits for and that have ended so, or take over an
        unfinished one that another process or directory left.

        Raises:
            errors.NotFound, errors.WrongState, errors.WriteFailed: as `cancel`, or it is neither of these.
            errors.RequestInvalid: the step, the arguments or the recipe do not fit; `no_conversation`.
            errors.Conflict: `session_locked`, the `holder` speaks in the run's conversation; `gate_denied`;
                `approval_outdated`.
        """
        view = await self.resumable(run_id)
        below = await self.resumptions.below(run_id, request)
        overrides = await self._starter.renewed(view.start, request)
        if request.new_conversation:
            overrides = {**overrides, "begun_again": conversation_binding.begun_again(view)}
        how = run_engine.Resume(from_key=request.from_key, overrides=overrides, author=author)
        for child in below:
            # It would only report their former ends again.
            await self._resume(child, await self.reader.view(child), run_engine.Resume(author=author))
        await self._resume(run_id, view, how)
        return await self.reader.moved(run_id)

    async def _resume(self, run_id: str, view: views.RunView, how: run_engine.Resume) -> None:
        with faults.as_errors():
            await self._conversation_binding.resume(run_id, view, how)
        self.started_listeners.notify(view.start)

    async def resumable(self, run_id: str) -> views.RunView:
        """Return a run whose state lets it be resumed.

        Raises:
            errors.NotFound, errors.WrongState: there is no such run, or it has another state.
            errors.Conflict: `session_locked`, as `resume`.
        """
        view = await self.reader.view(run_id)
        # A run that another process left is continued without having ended.
        left_behind = not view.status.finished and (await self._store.summary(run_id)).owner != "service"
        if not left_behind and view.status not in (states.RunState.FAILED, states.RunState.CANCELLED):
            why = allowed_orders.refusals(view)["resume"]
            message = f"run {run_id} is {view.status}; only a failed or cancelled run is resumed, and {why}"
            raise errors.WrongState(message, detail={"run_id": run_id, "status": view.status.value})
        await self._conversation_binding.check(run_id, view)
        return view

    async def refuse_locked(self, args: Mapping[str, plain.Json]) -> None:
        """Refuse arguments that name a conversation which a run owns now.

        Raises:
            errors.Conflict, errors.InputRefused: as `start`.
        """
        named = args.get(conversation_binding.ARGUMENT)
        if isinstance(named, str):
            await self._conversation_binding.refuse_held(named)

    async def continues_as_it_was(self, run_id: str, request: ResumeRequest) -> bool:
        """Return whether a resume only lets a process execute a run again, where there is no service: it is of the
        service, has not ended, and no order has paused it.
        """
        row = await self._store.summary(run_id)
        if row.owner != "service" or states.RunState(row.status).finished or request != ResumeRequest():
            return False
        return (await self._store.read(run_id)).decisions.paused is None

    async def parked_below(self, run_id: str) -> list[stores.RunSummary]:
        """Return the runs below a run which are paused at a limit or budget."""
        return await awaiting.parked_below(self._store, run_id)

    async def waiting_above(self, run_id: str) -> list[str]:
        """Return the unfinished runs that wait for a run, directly or through others, the topmost first."""
        return await awaiting.above(self._store, self._drivers, run_id)

    @functools.cached_property
    def forks(self) -> Forks:
        """Return the use cases of forks, which the start of a run does not load."""
        from app.services.forking import Forks

        return Forks(
            self._store, self._engine, self._starter, self._drivers, self.started_listeners.notify, self._above
        )

    @functools.cached_property
    def previews(self) -> Previews:
        """Return the use cases of previews."""
        from app.services.previews import Previews

        return Previews(self.forks, self.resumptions, self._starter, self._drivers, self.resumable)

    @functools.cached_property
    def resumptions(self) -> Resumptions:
        """Return what plans resumes."""
        from app.services.resumptions import Resumptions

        return Resumptions(self._store, self._starter, self._drivers, self.resumable)

    async def mark(self, run_id: str, marks: run_engine.Marks, author: authors.Author | None = None) -> Marked:
        """Change a run's labels and pin, in any state.

        Raises:
            errors.NotFound, errors.WriteFailed: as `cancel`.
            errors.RequestInvalid: a label is malformed, or there would be too many.
        """
        run_reader.check_run_id(run_id)
        requests.check_labels(marks.labels)
        with faults.as_errors():
            start = await self._engine.mark(run_id, marks, author)
        return Marked(run_id=run_id, labels=start.labels, pinned=start.pinned)

    async def delete(self, run_id: str, author: authors.Author | None = None, *, spare_pinned: bool = False) -> None:
        """Delete a finished run, or one that a plan has left behind.

        Args:
            spare_pinned: Whether a pinned run is refused.

        Raises:
            errors.Conflict, errors.NotFound, errors.WrongState: it is pinned, does not exist, or has not ended.
        """
        if clock.is_internal(run_id):
            await self._delete_left(run_id, author)
            return
        run_reader.check_run_id(run_id)
        # In turn, so that no other order of this process has the run open, and none changes it after the checks.
        async with self._engine.turn(run_id):
            if not (status := (await self.reader.moved(run_id)).status).finished:
                message = f"run {run_id} is {status}; only a finished run is deleted"
                raise errors.WrongState(message, detail={"run_id": run_id, "status": status.value})
            await self._delete(run_id, author, spare_pinned)
        self.reader.forget(run_id)

    async def _delete_left(self, run_id: str, author: authors.Author | None) -> None:
        run_reader.check_form(run_id)
        if not states.RunState((await self._store.summary(run_id)).status).finished:
            run_reader.check_run_id(run_id)
        await self._delete(run_id, author)

    async def _delete(self, run_id: str, author: authors.Author | None, spare_pinned: bool = False) -> None:
        with faults.as_errors():
            row = await self._store.summary(run_id)
            if not (spare_pinned and row.pinned):
                await self._store.audit.append(author, "run.deleted", run_id, {"recipe_id": row.recipe_id})
            await self._store.delete(run_id, spare_pinned=spare_pinned)

    async def _found(self, run_id: str) -> Started:
        return Started(run_id=run_id, status=await self.reader.status(run_id), existed=True)

    async def _above(self, request: StartRequest, asked_by: str | None = None) -> runs.RunStart | None:
        # An agent that makes a request without naming its run, and waits for the new run, would wait for itself: for
        # its own reserved amounts, its workspace or its concurrency key.
        run_id = request.parent_run_id or asked_by
        if run_id is None:
            return None
        try:
            return await self.reader.start(run_id)
        except errors.NotFound as error:
            if request.parent_run_id is None or request.runs_above is not None:
                return None
            flaw = errors.Flaw(path="$.parent_run_id", code="unknown_parent", message=error.message)
            raise errors.RequestInvalid(error.message, code="unknown_parent", flaws=[flaw]) from error


def _converses(start: runs.RunStart) -> bool:
    return conversation_binding.ARGUMENT in start.args or start.dialect == conversation_binding.DIALECT


def _may_belong(start: runs.RunStart) -> bool:
    # Runs of a session plan's tasks, and of the plan itself, have idempotency keys.
    return start.session_plan_task_id is not None or start.idempotency_key is not None or _converses(start)
