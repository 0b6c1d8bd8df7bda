"""A small HTTP client: one connection that stays open, one request after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import httptools


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the server."""

    status: int
    """HTTP status."""
    headers: Mapping[bytes, bytes]
    """Headers, with names in lower case."""
    body: bytes
    """The whole body."""

    @property
    def etag(self) -> str:
        """Return the entity tag, or an empty value if there is none."""
        return self.headers.get(b"etag", b"").decode()

    def json(self) -> Any:
        """Return the body, parsed."""
        return json.loads(self.body)


class _Reply:
    """An answer that is arriving."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.arrived = asyncio.Event()
        self.complete = False


class Connection(asyncio.Protocol):
    """A connection to a server; `connect` opens one."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._reply = _Reply()
        self._parser = httptools.HttpResponseParser(self)

    async def get(self, target: str, *, etag: str = "") -> Answer:
        """Send a GET, with If-None-Match if an entity tag is given."""
        return await self.request("GET", target, headers=f"If-None-Match: {etag}\r\n" if etag else "")

    async def post(self, target: str, body: object) -> Answer:
        """Send a POST of JSON."""
        content = json.dumps(body).encode()
        return await self.request("POST", target, headers="Content-Type: application/json\r\n", body=content)

    async def request(self, method: str, target: str, *, headers: str = "", body: bytes = b"") -> Answer:
        """Send a request and wait for the whole answer.

        Args:
            headers: Further header lines, each with its line end.

        Raises:
            ConnectionError: the server closed the connection.
        """
        reply = self._send(method, target, headers, body)
        while not reply.complete:
            await self._more(reply)
        return Answer(status=reply.status, headers=reply.headers, body=b"".join(reply.parts))

    async def stream(self, target: str, *, headers: str = "") -> AsyncIterator[bytes]:
        """Send a GET and yield the parts of the answer's body as they arrive, until the answer ends.

        Raises:
            ConnectionError: the server refused the request, or closed the connection too early.
        """
        reply = self._send("GET", target, headers, b"")
        while not reply.complete or reply.parts:
            if not reply.parts:
                await self._more(reply)
            if reply.status not in (0, 200):
                raise ConnectionError(f"{target} answered {reply.status}")
            parts, reply.parts = reply.parts, []
            if parts:
                yield b"".join(parts)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, method: str, target: str, headers: str, body: bytes) -> _Reply:
        assert self._transport is not None
        self._reply = _Reply()
        self._parser = httptools.HttpResponseParser(self)
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\n{headers}{length}\r\n"
        self._transport.write(head.encode() + body)
        return self._reply

    async def _more(self, reply: _Reply) -> None:
        await reply.arrived.wait()
        reply.arrived.clear()
        assert self._transport is not None
        if self._transport.is_closing() and not reply.complete:
            raise ConnectionError("the server closed the connection")

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read a part of the answer."""
        self._parser.feed_data(data)
        self._reply.arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the caller that waits for the answer."""
        self._reply.arrived.set()

    # -- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self._reply.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Keep the status."""
        self._reply.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._reply.parts.append(body)

    def on_message_complete(self) -> None:
        """Note that the answer is whole."""
        self._reply.complete = True


async def connect(host: str, port: int) -> Connection:
    """Open a connection."""
    _, connection = await asyncio.get_running_loop().create_connection(lambda: Connection(f"{host}:{port}"), host, port)
    return connection
