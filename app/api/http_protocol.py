"""HTTP on the wire: Uvicorn's protocol with limits that apply before the parser, and with time-outs."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

from app.api import connections, problems

# A header of 40 MB blocked the event loop for 12 seconds: httptools delivers a head only when it is complete, and
# Uvicorn has no limit for it. A proxy in front would be a second program to install.
#
# A subclass of Uvicorn's protocol feeds the parser slices of 4 KiB and counts the bytes and headers of a head between
# them. It also limits the time for heads and bodies, and the connections.
#
# Cost: 25 more calls for each request (169 instead of 144 from the bytes of a `GET` with six headers to the bytes of
# its answer), 6 µs of CPU. That is a twelfth of a poll in W6, and a thousandth of W4 at one client. The subclass uses
# private parts of Uvicorn; the tests of raw HTTP show whether a new version still has them.
SLICE_BYTES = 4096  # Bytes that the parser gets between two checks of the limits.
SLICES_AT_ONCE = 4  # Slices that are parsed before other tasks of the loop get their turn.

LINGER_SECONDS = 2.0
"""Time for which a refused client may continue to send, so that it reads the answer instead of getting a reset."""

_ABSOLUTE = re.compile(rb"https?://(?P<authority>[^/?#@]*)(?P<rest>[/?].*)?", re.IGNORECASE)
_VERSIONS = ("1.0", "1.1")
_PROTOCOL = re.compile(rb" *HTTP/")
_UNKNOWN = "unknown"
_NOTHING, _HEAD, _BODY = "nothing", "head", "body"


class TooManyHeaders(Exception):
    """The parser has found more headers than a request may have."""


class NotHttp(Exception):
    """A request that the parser accepts, with another version, or a target that is not a path or absolute address."""


class HeldFlow(FlowControl):
    """Uvicorn's flow control, which stops reading while unparsed data is held."""

    held = False

    def resume_reading(self) -> None:
        """Resume reading, unless unparsed data is held."""
        if not self.held:
            super().resume_reading()


class Protocol(httptools_impl.HttpToolsProtocol):
    """Parses requests slice by slice, and refuses too large, too slow or too many ones with a problem."""

    def __init__(self, config: Any, *args: Any, counted: connections.Connections, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._counted = counted
        self._limits = counted.limits
        self._address = _UNKNOWN
        self._leave: Callable[[], None] = _nothing
        self._no_space: str | None = None
        self._held, self._window = bytearray(), bytearray()
        self._sought = 0
        self._quiet = self._found = self._begun = 0
        self._in_head = self._in_body = self._moved = self._parting = False
        self._stage = (_HEAD, 0)
        self._timer: asyncio.TimerHandle | None = None
        self._stall = connections.StallWatch(self.loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a connection; one beyond the limit is refused at its first request."""
        super().connection_made(transport)
        self.flow = self._flow = HeldFlow(transport)
        self._address = self.client[0] if self.client else _UNKNOWN
        # Counted before the head is read, so that idle connections count, too.
        self._no_space = self._counted.enter(self._address)
        if self._no_space is None:
            self._leave = functools.partial(self._counted.leave, self._address)
            self._wait(self._limits.head_seconds)
        elif self._counted.enter_refused():
            self._leave = self._counted.leave_refused
            self._wait(LINGER_SECONDS)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._trust()
        self._stall.end()
        self._count_out()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, in portions."""
        if self._parting:
            return
        if self._no_space is not None:
            self._refuse(503, "too_many_connections", self._no_space, {"Retry-After": "1"})
            return
        self._unset_keepalive_if_required()
        if self._held or len(data) > SLICE_BYTES:
            self._held += data
            self._go_on()
        else:
            self._parse(data)
            self._watch_time()

    def on_message_begin(self) -> None:
        """Begin to count the headers of a request."""
        self._found = 0
        self._begun += 1
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or trailer, unless it exceeds the limit."""
        self._found += 1
        if self._found > self._limits.headers:
            raise TooManyHeaders
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Record that the head is complete."""
        if self.parser.get_http_version() not in _VERSIONS or not self._is_http():
            raise NotHttp
        if not self.url.startswith(b"/"):
            self._apply_authority()
        super().on_headers_complete()
        # Not earlier: an invalid target ends the request here, and no request has a body yet.
        self._moved = self._in_body = True
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        """Record that the body grows."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the request is complete."""
        self._moved = True
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with data that the client has sent meanwhile."""
        super().on_response_complete()
        if self._held:
            self.loop.call_soon(self._go_on)
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._stall.begin(self.transport)

    def pause_writing(self) -> None:
        """Watch a client that reads more slowly than its answer is written."""
        super().pause_writing()
        self._stall.begin(self.transport)

    def resume_writing(self) -> None:
        """Record that the client has caught up."""
        self._stall.end()
        super().resume_writing()

    def shutdown(self) -> None:
        """Part from the client; abort at once if it takes no data."""
        if self._stall.stalled or self._parting:
            self.transport.abort()
        super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Part from an idle client; abort at once if it has not even taken its last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over; the WebSocket's protocol reports when it is closed."""
        self._trust()
        self._stall.end()
        self._held.clear()
        made: Any = self.config.ws_protocol_class
        self.ws_protocol_class = cast(Any, functools.partial(made, gone=self._count_out))
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Refuse a head that is not HTTP, or has too many headers."""
        if self._found > self._limits.headers:
            self._refuse(431, "too_many_headers", f"a request has at most {self._limits.headers} headers")
        else:
            self._refuse(400, "malformed_request", "the request is not HTTP/1.1")

    def _should_upgrade(self) -> bool:
        return self.parser.get_http_version() != "1.0" and super()._should_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        # Uvicorn would log a line for each; the client gets the answer to a request without an upgrade.
        return

    # -- parsing

    def _is_http(self) -> bool:
        # The parser also accepts requests of RTSP and ICE, without reporting that.
        line = self.parser.get_method() + b" " + self.url
        place = self._window.find(line, self._sought)
        self._sought = place + len(line)
        return place >= 0 and _PROTOCOL.match(self._window, self._sought) is not None

    def _apply_authority(self) -> None:
        # An authority in the target takes precedence over the Host header (RFC 9112, 3.2.2).
        found = _ABSOLUTE.fullmatch(self.url)
        if found is None:
            raise NotHttp
        self.url = b"/" + (found["rest"] or b"").removeprefix(b"/")
        others = [header for header in self.headers if header[0] != b"host"]
        self.headers[:] = [*others, (b"host", found["authority"])]

    def _go_on(self) -> None:
        for _ in range(SLICES_AT_ONCE):
            if not self._held or self.pipeline or self._parting or self.transport.is_closing():
                break
            part = bytes(self._held[:SLICE_BYTES])
            del self._held[:SLICE_BYTES]
            self._parse(part)
        self._hold_or_read()
        self._watch_time()

    def _hold_or_read(self) -> None:
        if self._parting or self.transport.is_closing():
            self._held.clear()
        if self._held:
            self._flow.pause_reading()
            self._flow.held = True
            if not self.pipeline:
                self.loop.call_soon(self._go_on)
        elif self._flow.held:
            self._flow.held = False
            latest = self._latest()
            # The rest of a body that was not wanted is read and dropped, else nothing behind it would be read.
            waits = latest is not None and not latest.response_complete and len(latest.body) > HIGH_WATER_LIMIT
            if not self.pipeline and not waits:
                self._flow.resume_reading()

    def _parse(self, part: bytes) -> None:
        if not self._in_head:
            self._window.clear()
            self._sought = 0
        self._window += part
        room = self._limits.head_bytes - self._quiet
        self._moved = False
        super().data_received(part[:room])
        # Bytes that belong neither to the end of a head nor to a body: heads, trailers, extensions of chunks.
        self._quiet = 0 if self._moved else self._quiet + len(part)
        if self._quiet > self._limits.head_bytes:
            self._refuse(431, "head_too_large", f"the head of a request has at most {self._limits.head_bytes} bytes")
        elif len(part) > room and not self._parting:
            self._parse(part[room:])

    # -- time

    def _watch_time(self) -> None:
        if self._parting:
            return
        waits_for = _BODY if self._in_body else _HEAD if self._in_head or self._quiet else _NOTHING
        stage = (_NOTHING if self.pipeline else waits_for, self._begun)
        if stage == self._stage:
            return
        self._stage = stage
        self._trust()
        if stage[0] is _HEAD:
            self._wait(self._limits.head_seconds)
        elif stage[0] is _BODY:
            self._wait(self._limits.body_seconds)

    def _wait(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _trust(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self._parting or self._no_space is not None:
            self.transport.abort()
        elif self._in_body:
            seconds = self._limits.body_seconds
            self._refuse(408, "body_too_slow", f"a request's body must be complete within {seconds:g} s of its head")
        elif self._begun or self._quiet:
            seconds = self._limits.head_seconds
            self._refuse(408, "head_too_slow", f"the head of a request must be complete within {seconds:g} s")
        else:
            self.transport.close()

    # -- parting

    def _refuse(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        if self._parting or self.transport.is_closing():
            return
        self._parting = True
        self._held.clear()
        self._trust()
        self._counted.warnings.warn(code, detail, self._address)
        if self._answers_before():
            # The refusal of a later request must not appear inside the response to an earlier one.
            self.cycle.keep_alive = False
            return
        if self._in_body and self.cycle.response_complete:
            self.transport.close()
            return
        if (latest := self._latest()) is not None:
            latest.disconnected = True
            latest.message_event.set()
        self.transport.write(problems.of_status(status, detail, code=code, headers=headers or {}).written())
        # Half closed, and still read for a while: closing with unread bytes would send a reset, and the client would
        # not see the refusal.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._flow.held = False
        self._flow.resume_reading()
        self._wait(LINGER_SECONDS)

    def _answers_before(self) -> bool:
        latest = self._latest()
        return latest is not None and not latest.response_complete and not self._in_body

    def _latest(self) -> httptools_impl.RequestResponseCycle | None:
        # It is None before the first request, despite its type.
        return self.cycle

    def _count_out(self) -> None:
        self._leave()
        self._leave = _nothing


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of Uvicorn's log adds to our own warnings, which are limited."""
    return record.msg != "Invalid HTTP request received."


def _nothing() -> None:
    return
