"""The watch over keys of open connections: ends a stream when the key of its caller becomes invalid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app.api import problems
from app.engine import aio

_LOOK_SECONDS = 1.0
_ENDED = "the key was revoked or has expired while the request was answered"


class Ended(Exception):
    """The key of a connection became invalid, and the connection was ended."""


class Connection:
    """A connection that ends with the key of its caller.

    A stream can outlive its key by hours, so the key is checked with each message in either direction. It is also
    checked once a second, so that a stream without messages ends as well.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, counts: Callable[[], bool]) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._is_socket = scope["type"] == "websocket"
        # An accepted order is answered, even the one that revoked the key.
        self._is_order = scope.get("method", "GET") != "GET"
        self._counts = counts
        self._begun = self._over = False
        is_long_poll = not self._is_order and b"wait=" in scope["query_string"]
        self._watch = asyncio.create_task(self._end_when_invalid()) if is_long_poll else None

    async def receive(self) -> Message:
        """Return the client's next message; for a WebSocket whose key has become invalid, return a disconnect."""
        message = await self._receive()
        if message["type"] == "websocket.receive" and not self._counts():
            await self._end()
            return {"type": "websocket.disconnect", "code": problems.POLICY}
        return message

    async def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            Ended, WebSocketDisconnect: the key is not valid any more.
        """
        # A revoked key ends reads, even in the middle of a stream.
        if not (self._is_order or (self._counts() and not self._over)):
            await self._end()
            raise WebSocketDisconnect(problems.POLICY) if self._is_socket else Ended
        self._begun = True
        await self._send(message)
        is_open = message["type"] == "websocket.accept" or (message.get("more_body") and not self._is_order)
        if is_open and self._watch is None:
            self._watch = asyncio.create_task(self._end_when_invalid())

    async def close(self) -> None:
        """Stop the watch."""
        if self._watch is not None:
            await aio.end(self._watch)

    async def _end_when_invalid(self) -> None:
        # Keys expire by the clock, and other processes revoke them, so there is no event to wait for.
        while self._counts():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        await self._end()

    async def _end(self) -> None:
        if self._over:
            return
        self._over = True
        if not self._begun:
            await problems.refuse(problems.unauthorized(_ENDED), self._scope, self._receive, self._send)
        elif self._is_socket:
            await self._send({"type": "websocket.close", "code": problems.POLICY, "reason": "unauthorized"})
        else:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
