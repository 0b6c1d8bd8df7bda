"""The watch over keys of open connections: a stream ends with the key of its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app.api import problems
from app.engine import aio

_LOOK_SECONDS = 1.0
POLICY = 1008  # Close code of a WebSocket whose caller may not use it.
_ENDED = "the key was revoked or has expired while the request was answered"


class Ended(Exception):
    """The key of a connection does not count any more, and the connection was ended."""


class Connection:
    """A connection that ends with the key of its caller.

    A stream can outlive its key by hours, so the key is looked at with each message, either way. It is also looked at
    once a second, so that a stream without messages ends as well.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, counts: Callable[[], bool]) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._is_socket = scope["type"] == "websocket"
        # An order that was taken is answered, also the one that has revoked the key.
        self._is_order = scope.get("method", "GET") != "GET"
        self._counts = counts
        self._begun = self._over = False
        is_long_poll = not self._is_order and b"wait=" in scope["query_string"]
        self._watch = asyncio.create_task(self._look()) if is_long_poll else None

    async def receive(self) -> Message:
        """Return the next message of the client; of a WebSocket whose key has ended, that it was closed."""
        message = await self._receive()
        if message["type"] == "websocket.receive" and not self._counts():
            await self._end()
            return {"type": "websocket.disconnect", "code": POLICY}
        return message

    async def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            Ended, WebSocketDisconnect: the key does not count any more.
        """
        # A revoked key ends what it reads, also in the middle of a stream.
        if not (self._is_order or (self._counts() and not self._over)):
            await self._end()
            raise WebSocketDisconnect(POLICY) if self._is_socket else Ended
        self._begun = True
        await self._send(message)
        is_open = message["type"] == "websocket.accept" or (message.get("more_body") and not self._is_order)
        if is_open and self._watch is None:
            self._watch = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Look no more."""
        if self._watch is not None:
            await aio.end(self._watch)

    async def _look(self) -> None:
        # Keys expire by the clock, and other processes revoke them: there is nothing to wait for.
        while self._counts():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        await self._end()

    async def _end(self) -> None:
        if self._over:
            return
        self._over = True
        if self._is_socket:
            await self._send({"type": "websocket.close", "code": POLICY, "reason": "unauthorized"})
        elif self._begun:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await problems.of_status(401, _ENDED).response()(self._scope, self._receive, self._send)
