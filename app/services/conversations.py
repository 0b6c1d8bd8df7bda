"""Conversations: start recipes and prompts with agents, and follow them message by message."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass

from app import clock, errors
from app.domain import access, agent_sessions, library, plain, records, runs, states, views
from app.domain.authors import Author
from app.engine import conversation_claims, stores
from app.flows import prompt
from app.services.conversation_binding import DIALECT, conversation
from app.services.conversation_messages import Message, Narrator
from app.services.recipe_versions import Entry, RecipeVersion
from app.services.recipes import Catalogue
from app.services.requests import StartRequest
from app.services.runs import Listener, Runs, RunStartedListeners

NEWEST_KEPT = 4096  # Conversations whose newest run is kept in memory; for others, the claims name it.

_DESCRIPTION_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Result of a requested recipe or prompt."""

    run_id: str  # The run.
    agent_session_id: str  # Conversation in which it begins.
    status: states.RunState  # Its state: `pending` if it must wait.


class ConversationService:
    """Starts, stops and follows runs by their conversations."""

    def __init__(
        self,
        *,
        runs: Runs,
        store: stores.RunStore,
        sessions: agent_sessions.AgentSessions,
        catalogue: Catalogue,
        started_listeners: RunStartedListeners,
        ids: clock.Ids,
    ) -> None:
        self._runs = runs
        self._store = store
        self._sessions = sessions
        self._catalogue = catalogue
        self._started_listeners = started_listeners
        self._ids = ids
        self._newest: OrderedDict[str, str] = OrderedDict()
        self._prompt = RecipeVersion(catalogue.adapted(prompt.RECIPE), library.Library(), prompt.Prompt())
        started_listeners.listen_to_sessions(self._note)

    async def available(self) -> list[dict[str, plain.Json]]:
        """Return the recipes that can be started here, with the facts that a menu shows."""
        await self._catalogue.refresh()
        return [_shown(entry) for entry in self._catalogue.all() if entry.dialect == DIALECT and entry.usable]

    async def start_recipe(
        self,
        *,
        recipe_id: str,
        agent_session_id: str | None,
        working_dir: str | None,
        args: Mapping[str, plain.Json],
        idempotency_key: str | None,
        author: Author | None = None,
    ) -> Begun:
        """Start a recipe in a new conversation or in an existing one.

        Raises:
            errors.RequestInvalid: as for any run, `wrong_dialect`, or `message_invalid` for two conversations.
            errors.Conflict: `session_locked`, `idempotency_conflict`.
            errors.WriteFailed: the disk is full or failing.
        """
        await self._catalogue.refresh()
        entry = self._catalogue.find(recipe_id)
        if entry.dialect != DIALECT:
            message = f"{recipe_id} is a recipe of the dialect {entry.dialect}; here those of {DIALECT} are started"
            flaw = errors.Flaw(path="$.recipe_id", code="wrong_dialect", message=message)
            raise errors.RequestInvalid(message, code="wrong_dialect", flaws=[flaw])
        if agent_session_id not in (None, args.get(conversation_claims.ARGUMENT, agent_session_id)):
            raise errors.RequestInvalid("$.session_id: differs from the value in args", code="message_invalid")
        own = {conversation_claims.ARGUMENT: agent_session_id} if agent_session_id is not None else {}
        request = StartRequest(
            recipe_id=recipe_id, args={**args, **own}, working_dir=working_dir, idempotency_key=idempotency_key
        )
        return await self._begin(request, author=author)

    async def prompt(
        self,
        *,
        text: str,
        agent_session_id: str | None,
        working_dir: str | None,
        args: Mapping[str, plain.Json],
        idempotency_key: str | None,
        author: Author | None = None,
    ) -> Begun:
        """Send a prompt to an agent, in a new or an existing conversation; the reply is kept in a run of its own.

        Raises:
            errors.RequestInvalid, errors.Conflict, errors.WriteFailed: as `start_recipe`.
        """
        own = {
            "text": text,
            conversation_claims.ARGUMENT: agent_session_id or self._new_session_id(idempotency_key),
            "session_created": agent_session_id is not None,
        }
        request = StartRequest(
            recipe_id=prompt.NAME,
            description=" ".join(text.split())[:_DESCRIPTION_CHARACTERS],
            args={**args, **own},
            working_dir=working_dir,
            idempotency_key=idempotency_key,
        )
        return await self._begin(request, self._prompt, author)

    async def exit(self, agent_session_id: str, author: Author | None = None) -> str:
        """Cancel the run of a conversation, and return its id.

        Raises:
            errors.NotFound: `unknown_agent_session`.
            errors.Conflict: `session_idle`.
        """
        run_id = await self._newest_run(agent_session_id)
        try:
            await self._runs.cancel(run_id, author)
        except errors.WrongState as error:
            message = f"no run is active in the conversation {agent_session_id:.80}"
            raise errors.WrongState(message, code="session_idle", detail={"run_id": run_id}) from error
        return run_id

    async def runs_of(self, agent_session_id: str, run_id: str | None = None) -> list[str]:
        """Return the newest run of a conversation, after the run that the caller names if that is another one.

        Raises:
            errors.NotFound: `unknown_agent_session`, or the run does not exist.
        """
        if run_id is None:
            return [await self._newest_run(agent_session_id)]
        if conversation((await self._runs.reader.view(run_id)).start) is None:
            raise errors.NotFound(f"run {run_id} has no conversation", code="unknown_agent_session")
        newest = await self._find_newest(agent_session_id)
        return [run_id] if newest in (None, run_id) else [run_id, newest]

    async def newest(self, agent_session_id: str) -> str | None:
        """Return the run that used a conversation last, even if it was deleted; None if none has used it yet."""
        # Whose conversation it is depends on that run, so a deleted one must not open it to other scopes.
        return await self._find_last_user(agent_session_id)

    async def is_within(self, run_id: str, scope: access.Scope) -> bool:
        """Return whether a run exists and is within a scope."""
        return await self._runs.is_within(run_id, scope)

    async def stream(self, run_id: str, after: int = 0) -> AsyncGenerator[Message, None]:
        """Yield the messages of a run's events numbered above `after`, as they are written, until the run has ended.

        If the run has ended before, at least the last message is sent again.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        start = (await self._runs.reader.view(run_id)).start
        narrator = Narrator(run_id, conversation(start), start.conversation, plain_prompt=start.dialect == prompt.NAME)
        async with aclosing(await self._runs.stream(run_id)) as batches:
            async for batch in batches:
                # From the first event on, since the content of a message depends on earlier events.
                for event in batch.events:
                    for message in narrator.messages_of(event):
                        if event.seq > after and (whole := await self._whole(message)) is not None:
                            yield whole
        if narrator.over and narrator.seq <= after:
            yield narrator.rest()

    @contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """Notify a listener of each accepted or resumed run during the block."""
        self._started_listeners.listen(listener)
        try:
            yield
        finally:
            self._started_listeners.forget(listener)

    async def released(self) -> None:
        """Wait until the service stops."""
        await self._runs.stopping.wait()

    # -- beginning

    async def _begin(
        self, request: StartRequest, own: RecipeVersion | None = None, author: Author | None = None
    ) -> Begun:
        given = request.args.get(conversation_claims.ARGUMENT)
        # The arguments of a client have not been checked yet; a value of another type is refused with them.
        named = given if isinstance(given, str) else None
        newest = await self._find_newest(named) if named is not None else None
        before = None if newest is None else await self._runs.reader.view(newest)
        # After the newest run was found, which may be the repeated one.
        if (repeated := await self._repeated(request)) is not None:
            run_id, status = repeated.start.run_id, repeated.status
        else:
            # A recipe is announced before its first prompt has claimed the conversation.
            if before is not None and named is not None and _speaks(before, named):
                raise agent_sessions.locked(named, before.start.run_id)
            session = await self._find_session(named) if named is not None and before is None else None
            whole = _completed(request, before.start if before else None, session)
            started = await self._runs.start(whole, own, author)
            run_id, status = started.run_id, started.status
        return Begun(run_id=run_id, agent_session_id=named or runs.agent_session_id(run_id, 0), status=status)

    async def _repeated(self, request: StartRequest) -> views.RunView | None:
        """Return the run that the same request began, even if other runs have used the conversation since."""
        if request.idempotency_key is None:
            return None
        try:
            run_id = await self._store.find_repeated(request.idempotency_key, request.sha256())
        except errors.Conflict as conflict:
            # The first request was completed with values of the run before it, which its hash contains.
            run_id = str(conflict.detail["run_id"])
        found = None if run_id is None else await self._runs.reader.view(run_id)
        return found if found is not None and _repeats(request, found.start) else None

    def _note(self, start: runs.RunStart) -> None:
        if conversation_claims.ARGUMENT not in start.args and start.dialect != DIALECT:
            return
        agent_session_id = conversation(start)
        if agent_session_id is not None:
            self._newest[agent_session_id] = start.run_id
            self._newest.move_to_end(agent_session_id)
        if len(self._newest) > NEWEST_KEPT:
            self._newest.popitem(last=False)

    def _new_session_id(self, idempotency_key: str | None) -> str:
        # A repeated request must name the same conversation.
        seed = self._ids.token("conv_") if idempotency_key is None else f"prompt {idempotency_key}"
        return runs.agent_session_id(seed, 0)

    # -- finding

    async def _newest_run(self, agent_session_id: str) -> str:
        run_id = await self._find_newest(agent_session_id)
        if run_id is None:
            message = f"no run has used the conversation {agent_session_id:.80}"
            raise errors.NotFound(message, code="unknown_agent_session")
        return run_id

    async def _find_newest(self, agent_session_id: str) -> str | None:
        found = await self._find_last_user(agent_session_id)
        return found if found is not None and await self._status(found) is not None else None

    async def _find_last_user(self, agent_session_id: str) -> str | None:
        begun, claimant = self._newest.get(agent_session_id), await self._sessions.claimant(agent_session_id)
        if begun is None or claimant is None:
            return begun or claimant or await self._waiting(agent_session_id)
        # The newest run may still be queued, and then has no claim yet.
        return claimant if begun != claimant and await self._has_ended(begun) else begun

    async def _find_session(self, agent_session_id: str) -> agent_sessions.AgentSession | None:
        # A run in a damaged conversation reports the damage itself, with the way out.
        with suppress(errors.AgentFailed):
            return await self._sessions.find(agent_session_id)
        return None

    async def _has_ended(self, run_id: str) -> bool:
        status = await self._status(run_id)
        return status is None or status.finished

    async def _status(self, run_id: str) -> states.RunState | None:
        """Return the state of a run; None if it was deleted."""
        try:
            return states.RunState((await self._store.summary(run_id)).status)
        except errors.NotFound:
            return None

    async def _waiting(self, agent_session_id: str) -> str | None:
        pending = stores.RunQuery(status=states.RunState.PENDING.value)
        async for row in stores.every_run(self._store, pending):
            if row.dialect == DIALECT and runs.agent_session_id(row.run_id, 0) == agent_session_id:
                return row.run_id
        return None

    # -- messages

    async def _whole(self, message: Message) -> Message | None:
        """Return a message with its reply; None if a repair of the run has cut that off."""
        if message.position is None:
            return message
        assert message.run_id is not None
        lines, _ = await self._runs.steps_page(message.run_id, after=message.position - 1, limit=1)
        if not lines:
            return None
        record = lines[0]
        text = record.output if record.blob is None else await self._store.read_blob(message.run_id, record.blob)
        return message.with_reply(text, _asked(record))


def _asked(record: records.Record) -> str | None:
    # Of a prompt that is too long for a journal line only the hash is known.
    body = (record.line.get("operation") or {}).get("body") or {}
    parts = [part for part in body.get("prompt") or () if isinstance(part, str)]
    return "\n".join(parts) if parts else None


def _speaks(view: views.RunView, agent_session_id: str) -> bool:
    named = (view.board.progress.machine or {}).get("sessionId")
    present = view.start.conversation(named) if isinstance(named, str) else conversation(view.start)
    return not view.status.finished and agent_session_id == present


def _repeats(request: StartRequest, found: runs.RunStart) -> bool:
    # Compares only what the request names: the first request got its other values from the run before it.
    named = conversation_claims.ARGUMENT
    in_same = request.recipe_id == found.recipe_id and request.args.get(named) == found.args.get(named)
    return in_same and request.args.items() <= found.args.items()


def _completed(
    request: StartRequest, before: runs.RunStart | None, session: agent_sessions.AgentSession | None
) -> StartRequest:
    """Return a request, completed with the backend and folder of its conversation if it names none.

    Args:
        before: Newest run of the conversation, if it has one.
        session: Record of a conversation whose runs were deleted, if there is one.
    """
    backend = before.args.get("backend") if before is not None else session and session.backend
    found = before or session
    usual = {} if backend is None else {"backend": backend}
    working_dir = request.working_dir if found is None else request.working_dir or found.working_dir
    return dataclasses.replace(request, args={**usual, **request.args}, working_dir=working_dir)


def _shown(entry: Entry) -> dict[str, plain.Json]:
    recipe = entry.recipe
    assert recipe is not None
    document = recipe.document
    return {
        "recipe_id": entry.recipe_id,
        "label": recipe.label,
        "description": document["description"],
        "initial_step": document["initialStep"],
        "first_prompt": plain.preview(document["steps"][document["initialStep"]]["prompt"]),
        "steps": list(document["steps"]),
        "model": document.get("model"),
        "args_schema": plain.plain(recipe.args_schema),
        "layer": entry.layer,
    }
