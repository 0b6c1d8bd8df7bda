"""Followers: connections that read a run's events, and note when each part arrived."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import httptools

from app import clock
from bench import children

_SIGN_OF_LIFE = b": ping\n\n"
_CLOCK = clock.SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event of a stream."""

    end: int
    """Length of the stream up to the end of the event."""
    at: float
    """When the event happened, in seconds since 1970."""
    type: str
    """Type of the event."""


class Follower(asyncio.Protocol):
    """One connection; `follow` opens it."""

    def __init__(self, request: bytes, keeps: bool) -> None:
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0
        self.length = 0
        """Bytes of the stream so far."""
        self.checksum = 0
        """Checksum of the stream, which allows followers to be compared."""
        self.arrivals: list[tuple[int, float]] = []
        """Length of the stream after each part, and when that part arrived."""
        self.parts: list[bytes] = []
        """Parts of the stream, if `keeps`."""
        self.keeps = keeps
        """Whether the stream is kept."""
        self.begun = asyncio.Event()
        """Set when its first event has arrived."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the stream has ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the stream."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read a part of the answer."""
        self._now = _CLOCK.now().timestamp()
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, if the stream has not ended."""
        if not self.over.done():
            self.over.set_exception(exc or ConnectionError("the server closed the connection"))

    def on_body(self, body: bytes) -> None:
        """Note a part of the stream and its time."""
        if body == _SIGN_OF_LIFE:
            return
        self.length += len(body)
        self.checksum = zlib.crc32(body, self.checksum)
        self.arrivals.append((self.length, self._now))
        if self.keeps:
            self.parts.append(body)
        self.begun.set()

    def on_message_complete(self) -> None:
        """Note the end of the stream."""
        if not self.over.done():
            self.over.set_result(None)
        self._transport.close()


async def follow(served: children.Served, target: str, *, keeps: bool = False) -> Follower:
    """Open a stream; if `keeps`, the follower keeps what arrives."""
    request = f"GET {target} HTTP/1.1\r\nHost: {served.host}:{served.port}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    _, follower = await loop.create_connection(lambda: Follower(request, keeps), served.host, served.port)
    return follower


def events(stream: bytes) -> Iterator[StreamEvent]:
    """Yield the events of a stream."""
    end = 0
    for part in stream.split(b"\n\n")[:-1]:
        end += len(part) + 2
        data = next(line for line in part.split(b"\n") if line.startswith(b"data: "))
        event = json.loads(data.removeprefix(b"data: "))
        yield StreamEvent(end=end, at=clock.instant(event["at"]).timestamp(), type=event["type"])
