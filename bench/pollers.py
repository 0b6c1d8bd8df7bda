"""Pollers: connections that repeat the same request as soon as it is answered, at as little cost as Python allows."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from bench import children

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_WARM_UP_SECONDS = 0.2


class _Poller(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, status: int) -> None:
        self._request = request
        self._expected = b"HTTP/1.1 %d " % status
        self._head = b""
        self._lacking = 0
        self._stopped = False
        self.answered = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._lacking:
            self._lacking -= len(data)
        else:
            self._head += data
            head, found, body = self._head.partition(_HEAD_END)
            if not found:
                return
            self._lacking = _length(head) - len(body)
            self._head = b""
            if not head.startswith(self._expected):
                self._end(ConnectionError(f"a poll was answered with {head[:40]!r}"))
                return
        if not self._lacking:
            self.answered += 1
            if not self._stopped:
                self._transport.write(self._request)
            else:
                self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))

    def stop(self) -> None:
        """Send no more requests after the present answer."""
        self._stopped = True

    def _end(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(error) if error else self.over.set_result(None)
            self._transport.close()


async def per_second(served: children.Served, target: str, *, clients: int, seconds: float, etag: str = "") -> float:
    """Poll an address with several clients at a time for a while, and return the number of answers per second.

    Args:
        etag: Sent as If-None-Match; every answer must be a 304 then, else a 200.

    Raises:
        ConnectionError: an answer had another status.
    """
    known = f"If-None-Match: {etag}\r\n" if etag else ""
    request = f"GET {target} HTTP/1.1\r\nHost: {served.host}:{served.port}\r\n{known}\r\n".encode()
    loop = asyncio.get_running_loop()
    pollers = [
        (await loop.create_connection(lambda: _Poller(request, 304 if etag else 200), served.host, served.port))[1]
        for _ in range(clients)
    ]
    await asyncio.sleep(_WARM_UP_SECONDS)
    before, began = sum(poller.answered for poller in pollers), time.perf_counter()
    await asyncio.sleep(seconds)
    answered, took = sum(poller.answered for poller in pollers) - before, time.perf_counter() - began
    for poller in pollers:
        poller.stop()
    await asyncio.gather(*(poller.over for poller in pollers))
    return answered / took


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(_LENGTH):
            return int(line.removeprefix(_LENGTH))
    return 0
