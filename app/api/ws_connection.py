"""A WebSocket connection: answers one client's messages in order, and sends the messages of its conversations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from app import clock, errors
from app.api import refusals, request_models, ws_access, ws_messages
from app.domain import access, plain, runs, states
from app.engine import aio
from app.services import conversation_binding, conversation_messages, conversations

SERVICE_RESTART = 1012
"""Code with which a connection is closed when the service stops: the client should reconnect."""

MOST_RUNS = 64  # Runs that one client can follow at a time.
REMEMBERED = 1024  # Runs and conversations that are remembered for one client.
FAREWELL_SECONDS = 1.0  # Longest wait for a client to accept the closing of its connection.

_LOG = logging.getLogger("control_room.api")


class Connection:
    """Serves one client until it disconnects or the service stops."""

    def __init__(
        self,
        socket: WebSocket,
        service: conversations.ConversationService,
        ids: clock.Ids,
        max_bytes: int,
        caller: access.Caller,
    ) -> None:
        self._socket = socket
        self._conversation_service = service
        self._ids = ids
        self._max_bytes = max_bytes
        self._author = caller.author
        self._access = ws_access.WsAccess(caller, service)
        self._sending = asyncio.Lock()
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._beginning = 0
        self._sent: OrderedDict[str, int] = OrderedDict()
        self._sessions: OrderedDict[str, None] = OrderedDict()

    async def serve(self) -> None:
        """Answer messages in their order; an error in one is reported, and the next one is read."""
        with self._conversation_service.heard_by(self._begun):
            try:
                await aio.wait_first(self._receive_all(), self._conversation_service.released())
            finally:
                await aio.end(*self._streams.values())
        await self._part()

    async def _part(self) -> None:
        if WebSocketState.DISCONNECTED in (self._socket.client_state, self._socket.application_state):
            return
        with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._socket.close(
                    SERVICE_RESTART, "the service is stopping; subscribe again after it has restarted"
                )

    # -- from the client

    async def _receive_all(self) -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while (received := await self._socket.receive())["type"] == "websocket.receive":
                text = received.get("text")
                await self._answer(received.get("bytes", b"") if text is None else text)
                # Messages that have already arrived are taken without waiting; other tasks get their turn in between.
                await asyncio.sleep(0)

    async def _answer(self, content: str | bytes) -> None:
        message: ws_messages.Received | None = None
        try:
            if len(content) <= request_models.CHECKED_AT_ONCE:
                message = ws_messages.read(content, self._max_bytes)
            else:
                message = await asyncio.to_thread(ws_messages.read, content, self._max_bytes)
            await self._obey(message)
        except WebSocketDisconnect:
            raise
        except (Exception, errors.Fault) as error:  # noqa: BLE001 - sent to the client, and logged if it is unknown
            await self._send(self._refusal(await self._access.disclosed(error), message))

    async def _obey(self, message: ws_messages.Received) -> None:
        match message:
            case ws_messages.GetAvailableRecipes():
                found = self._access.menu(await self._conversation_service.available())
                await self._send(conversation_messages.Message(type="available_recipes", fields={"recipes": found}))
            case ws_messages.StartRecipe():
                await self._start_recipe(message)
            case ws_messages.Prompt():
                await self._prompt(message)
            case ws_messages.ExitRecipe():
                await self._access.may_exit(message.session_id)
                await self._conversation_service.exit(message.session_id, self._author)
            case ws_messages.Subscribe():
                await self._subscribe(message)

    async def _start_recipe(self, message: ws_messages.StartRecipe) -> None:
        await self._access.may_begin(message.recipe_id, message.session_id, message.args)
        with self._place():
            begun = await self._conversation_service.start_recipe(
                recipe_id=message.recipe_id,
                agent_session_id=message.session_id,
                working_dir=message.working_directory,
                args=_with_choices(message.args, backend=message.backend, model=message.model),
                idempotency_key=message.idempotency_key,
                author=self._author,
            )
            await self._follow_begun(begun, message.recipe_id)

    async def _prompt(self, message: ws_messages.Prompt) -> None:
        await self._access.may_begin(None, message.session_id)
        chosen = {"backend": message.backend, "model": message.model, "system_prompt": message.system_prompt}
        with self._place():
            begun = await self._conversation_service.prompt(
                text=message.text,
                agent_session_id=message.session_id,
                working_dir=message.working_directory,
                args=_with_choices({}, **chosen),
                idempotency_key=message.idempotency_key,
                author=self._author,
            )
            await self._follow_begun(begun, None)

    async def _follow_begun(self, begun: conversations.Begun, recipe_id: str | None) -> None:
        if begun.status is states.RunState.PENDING:
            fields = {"session_id": begun.agent_session_id, "recipe_id": recipe_id}
            await self._send(conversation_messages.Message(type="run_pending", fields=fields, run_id=begun.run_id))
        self._remember(begun.agent_session_id)
        if begun.run_id not in self._streams:
            self._start_stream(begun.run_id, self._stream_run(begun.run_id, 0))

    async def _subscribe(self, message: ws_messages.Subscribe) -> None:
        found = await self._conversation_service.runs_of(message.session_id, message.run_id)
        await self._access.may_see(message.session_id, found)
        self._refuse_without_place()
        self._remember(message.session_id)
        for run_id in found:
            # A second subscription replaces the first; otherwise each message would be sent twice.
            if (stream := self._streams.pop(run_id, None)) is not None:
                stream.cancel()
        self._start_stream(found[-1], self._stream_all(found, message.after_seq))

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        # Reserved before a run begins: a run that cannot be followed must not begin.
        self._refuse_without_place()
        self._beginning = 1
        try:
            yield
        finally:
            self._beginning = 0

    def _refuse_without_place(self) -> None:
        if not self._has_place():
            raise errors.Conflict(f"at most {MOST_RUNS} runs can be followed at a time", code="too_many_subscriptions")

    def _has_place(self) -> bool:
        return len(self._streams) + self._beginning < MOST_RUNS

    # -- to the client

    def _begun(self, start: runs.RunStart) -> None:
        if not self._access.sees(start):
            return
        known = conversation_binding.conversation(start) in self._sessions or start.run_id in self._sent
        if known and start.run_id not in self._streams and self._has_place():
            self._start_stream(start.run_id, self._stream_run(start.run_id, self._sent.get(start.run_id, 0)))

    def _start_stream(self, run_id: str, stream: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(stream, name=f"stream of {run_id}")
        self._streams[run_id] = task
        task.add_done_callback(lambda done: self._forget(run_id, done))

    def _forget(self, run_id: str, done: asyncio.Task[None]) -> None:
        if self._streams.get(run_id) is done:
            del self._streams[run_id]
        if (error := aio.failure(done)) is not None:
            _LOG.error("the stream of a run failed", exc_info=error, extra={"run_id": run_id})

    async def _stream_all(self, run_ids: list[str], after: int) -> None:
        for run_id in run_ids:
            await self._stream_run(run_id, after)
            after = 0

    async def _stream_run(self, run_id: str, after: int) -> None:
        try:
            async with aclosing(self._conversation_service.stream(run_id, after)) as messages:
                async for message in messages:
                    await self._send(message)
                    self._note(message)
        except WebSocketDisconnect:
            return
        except (Exception, errors.Fault) as error:  # noqa: BLE001 - as in `_answer`
            with contextlib.suppress(WebSocketDisconnect):
                code, explanation = self._explained(error)
                fields = {"code": code, "message": explanation}
                await self._send(conversation_messages.Message(type="error", fields=fields, run_id=run_id))

    def _note(self, message: conversation_messages.Message) -> None:
        if message.run_id is not None and message.seq is not None:
            self._sent[message.run_id] = message.seq
            self._sent.move_to_end(message.run_id)
            if len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)
        self._remember(message.fields.get("session_id"))

    def _remember(self, agent_session_id: plain.Json) -> None:
        if isinstance(agent_session_id, str):
            self._sessions[agent_session_id] = None
            self._sessions.move_to_end(agent_session_id)
            if len(self._sessions) > REMEMBERED:
                self._sessions.popitem(last=False)

    async def _send(self, message: conversation_messages.Message) -> None:
        text = plain.encode(plain.plain(message.to_json())).decode()
        async with self._sending:
            await self._socket.send_text(text)

    # -- refusals

    def _refusal(self, error: BaseException, message: ws_messages.Received | None) -> conversation_messages.Message:
        code, explanation = self._explained(error)
        session_id = getattr(message, "session_id", None)
        if code == "session_locked" and isinstance(error, errors.Conflict):
            holder = error.detail.get("holder")
            return conversation_messages.Message(
                type="session_locked", fields={"session_id": session_id}, run_id=holder
            )
        if isinstance(message, ws_messages.StartRecipe):
            return conversation_messages.recipe_error(session_id, code, explanation)
        return conversation_messages.Message(type="error", fields={"code": code, "message": explanation})

    def _explained(self, error: BaseException) -> tuple[str, str]:
        if isinstance(error, errors.ControlRoomError | errors.Fault) and refusals.problem(error) is not None:
            return error.code, error.message
        incident = self._ids.token("inc_")
        _LOG.error("a message failed", exc_info=error, extra={"incident_id": incident})
        return "internal_error", f"internal error; see the service's log for {incident}"


def _with_choices(args: dict[str, Any], **chosen: str | None) -> dict[str, Any]:
    given = {name: value for name, value in chosen.items() if value is not None}
    twice = [name for name in given if name in args and args[name] != given[name]]
    if twice:
        raise errors.RequestInvalid(f"$.{twice[0]}: differs from the value in args", code="message_invalid")
    return {**args, **given}
