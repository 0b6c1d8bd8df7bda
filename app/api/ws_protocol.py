"""The WebSocket's protocol on the wire: oversized messages are never buffered, and stalled clients are disconnected."""

# `websockets` and `wsproto` both close the connection at a message that is too large, after buffering up to the limit.
# So frames are filtered first: whole messages within the limit pass, larger ones are dropped as they arrive, and a
# small message, which is answered with an error, replaces them.

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import datastructures, http11, server, typing

from app import errors
from app.api import connections, problems, refusals

FRAMES_AT_ONCE = 64  # Frames that are processed before other tasks of the loop get their turn.

_TEXT, _CONTROL = 0x1, 0x8
_FIN, _MASKED = 0x80, 0x80
_MOST_CONTROL_BYTES = 125
_MOST_SHOWN = 200
_TOO_LARGE, _NOT_TEXT = connections.NOT_TAKEN


class Protocol(WebSocketsSansIOProtocol):
    """Uvicorn's protocol behind a filter of frames, with a time-out for stalled clients."""

    def __init__(self, config: Any, *args: Any, gone: Callable[[], None] | None = None, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self.conn = _Handshakes(max_size=config.ws_max_size, logger=self.conn.logger)
        self._sieve = Sieve(config.ws_max_size)
        self._stall = connections.StallWatch(self.loop)
        self._gone = gone
        self._turn = False

    def data_received(self, data: bytes) -> None:
        """Take received data, after the handshake in portions and without messages that are too large."""
        if self.handshake_initiated:
            self._receive(data)
        else:
            super().data_received(data)
            if not self.handshake_initiated:
                self._refuse_head()

    async def send(self, message: Any) -> None:
        """Send a message; a refusal ends the handshake, which Uvicorn would otherwise log as a fault."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    async def receive(self) -> Any:
        """Return the next message, and resume reading when no other one waits."""
        message = await self.queue.get()
        self._read_or_hold()
        return message

    def pause_writing(self) -> None:
        """Stop reading from a client that receives too slowly."""
        super().pause_writing()
        self._stall.begin(self.transport)
        self._read_or_hold()

    def resume_writing(self) -> None:
        """Record that the client has caught up."""
        self._stall.end()
        super().resume_writing()
        self._read_or_hold()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the client has disconnected."""
        self._stall.end()
        if self._gone is not None:
            self._gone()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Part from the client; abort at once if it takes no data."""
        if self._stall.stalled:
            self.transport.abort()
        super().shutdown()

    def _refuse_head(self) -> None:
        # The head is whole when it comes here, so the library finds a body, or a line is longer than it reads. For a
        # body with a length it raises ValueError, for a chunked one NotImplementedError.
        failure = self.conn.handshake_exc
        if isinstance(failure and failure.__cause__, ValueError | NotImplementedError):
            problem = problems.of_status(400, "the request of a WebSocket has no body", code="malformed_request")
        else:
            detail = f"a line in the head of a WebSocket's request has at most {http11.MAX_LINE_LENGTH} bytes"
            problem = problems.of_status(431, detail, code="head_too_large")
        self.transport.write(problem.written())
        self.transport.close()

    def _receive(self, data: bytes = b"") -> None:
        if self.disconnected or self.transport.is_closing():
            return
        if passed := self._sieve.pass_on(data):
            super().data_received(passed)
        self._read_or_hold()

    def _receive_more(self) -> None:
        self._turn = False
        self._receive()

    def _read_or_hold(self) -> None:
        if self.disconnected or self.transport.is_closing():
            return
        hold = self._sieve.more or not self.queue.empty() or not self.writable.is_set()
        if hold and not self.read_paused:
            self.transport.pause_reading()
        elif self.read_paused and not hold:
            self.transport.resume_reading()
        self.read_paused = hold
        if self._sieve.more and self.queue.empty() and self.writable.is_set() and not self._turn:
            self._turn = True
            self.loop.call_soon(self._receive_more)


class _Handshakes(server.ServerProtocol):
    def reject(self, status: typing.StatusLike, text: str) -> http11.Response:
        problem = _rejected(status, text)
        answer = problem.response()
        sent = (*answer.raw_headers, problems.NO_SNIFFING, (b"connection", b"close"))
        headers = datastructures.Headers([(name.decode(), value.decode()) for name, value in sent])
        return http11.Response(problem.status, HTTPStatus(problem.status).phrase, headers, bytes(answer.body))


class Sieve:
    """Passes a client's frames on, one whole message at a time (RFC 6455, 5.2).

    A message that is too large is dropped as it arrives, no matter how it is split into frames, and a small message
    that reports this replaces it; the same holds for text that is not UTF-8. Invalid frames are passed on to be
    refused.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self._message: list[tuple[bytes, bytes, bytes]] = []
        self._held = 0
        self._dropping = False
        self._skip = 0
        self._last = False
        self.more = False

    def pass_on(self, data: bytes) -> bytes:
        """Return frames that may be read now; `more` is whether frames may remain."""
        self._pending += data
        passed = list(itertools.islice(self._frames(), FRAMES_AT_ONCE))
        self.more = len(passed) == FRAMES_AT_ONCE
        return b"".join(passed)

    def _frames(self) -> Iterator[bytes]:
        while self._pending:
            if self._skip:
                yield from self._skipped()
                continue
            header = _header(self._pending)
            if header is None:
                return
            size, length = header
            if _breaks_framing(self._pending, length):
                yield self._cut(len(self._pending))
            elif self._pending[0] & _CONTROL:
                if len(self._pending) < size + length:
                    return
                yield self._cut(size + length)
            elif self._dropping or self._held + length > self._max_bytes:
                self._last = bool(self._pending[0] & _FIN)
                self._dropping = True
                self._message.clear()
                self._skip = size + length
                yield b""
            elif len(self._pending) < size + length:
                return
            else:
                yield self._message_of(size, length)

    def _skipped(self) -> Iterator[bytes]:
        dropped = min(self._skip, len(self._pending))
        del self._pending[:dropped]
        self._skip -= dropped
        if not self._skip and self._last:
            yield self._instead(_TOO_LARGE)

    def _message_of(self, size: int, length: int) -> bytes:
        header, payload = self._cut(size), self._cut(length)
        self._message.append((header, header[-4:], payload))
        # Frames count with their headers, so that a flood of empty ones is limited, too.
        self._held += size + length
        if not header[0] & _FIN:
            return b""
        text = self._message[0][0][0] & 0x0F == _TEXT
        if text and not _is_text(b"".join(_unmasked(mask, part) for _, mask, part in self._message)):
            return self._instead(_NOT_TEXT)
        whole = b"".join(head + part for head, _, part in self._message)
        self._clear()
        return whole

    def _instead(self, said: str) -> bytes:
        self._clear()
        return bytes([_FIN | _TEXT, _MASKED | len(said)]) + bytes(4) + said.encode()

    def _clear(self) -> None:
        self._message.clear()
        self._held = 0
        self._dropping = self._last = False

    def _cut(self, size: int) -> bytes:
        part = bytes(self._pending[:size])
        del self._pending[:size]
        return part


def _rejected(status: int, text: str) -> problems.Problem:
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # Failures are answered before they come here, so this is a handshake that the end of the service cuts off.
        stopping = refusals.problem(errors.Unavailable("the service is stopping", code="stopping"))
        assert stopping is not None
        return stopping
    code = "malformed_request" if status == HTTPStatus.BAD_REQUEST else None
    return problems.of_status(status, text.strip()[:_MOST_SHOWN], code=code)


def _header(frame: bytearray) -> tuple[int, int] | None:
    """Return the sizes of a frame's header and payload; None while the header is incomplete."""
    if len(frame) < 2:
        return None
    short = frame[1] & 0x7F
    extra = {126: 2, 127: 8}.get(short, 0)
    size = 2 + extra + (4 if frame[1] & _MASKED else 0)
    if len(frame) < size:
        return None
    return size, int.from_bytes(frame[2 : 2 + extra]) if extra else short


def _breaks_framing(frame: bytearray, length: int) -> bool:
    return not frame[1] & _MASKED or (bool(frame[0] & _CONTROL) and length > _MOST_CONTROL_BYTES)


def _unmasked(mask: bytes, part: bytes) -> bytes:
    size = len(part)
    pattern = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(part) ^ int.from_bytes(pattern)).to_bytes(size)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
