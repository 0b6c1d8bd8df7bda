"""A small HTTP client: one connection that stays open, one request after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass


class Refused(Exception):
    """The server did not answer with a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """An address where a POST starts a run and is answered when the run has ended."""

    port: int
    """Port on loopback."""
    target: str
    """Target of the request."""
    body: bytes = b""
    """JSON of the request."""


class Connection:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, target: str, body: bytes) -> bytes:
        """Send a POST of JSON and return the answer's body.

        Raises:
            Refused: the status does not report success.
            EOFError: the connection was closed.
        """
        kind = "Content-Type: application/json\r\n" if body else ""
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{kind}"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, headers = await self._head()
        content = await self._body(headers)
        if not status.startswith("2"):
            raise Refused(f"{target} answered {status}: {content[:200].decode(errors='replace')}")
        return content

    async def _head(self) -> tuple[str, Mapping[str, str]]:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return first.split(" ", 2)[1], {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        parts = []
        while size := int((await self._reader.readline()).partition(b";")[0], 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readline()
        return b"".join(parts)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """Open a connection to a port of loopback, and close it at the end of the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
