"""Connections: limits their number and unparsed input, and closes stalled ones."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app import settings, telemetry

STALLED_SECONDS = 30.0  # Time within which a client must take some of the waiting data.

MOST_REFUSED = 64
"""Connections beyond the limit that still get an answer; further ones are closed without one."""

NOT_TAKEN: Mapping[str, tuple[str, str]] = {
    "\0too large": ("message_too_large", "the message is larger than this service takes"),
    "\0not text": ("not_text", "the message is not UTF-8"),
}
"""Placeholders for WebSocket messages that were refused on the wire, with the code and message of their errors."""

_LOG = logging.getLogger("control_room.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of each connection, and of their number."""

    head_bytes: int  # Longest head of a request: request line and headers, or trailers.
    headers: int  # Most headers of a request, trailers included.
    head_seconds: float  # Longest time from the first byte of a head to its last.
    body_seconds: float  # Longest time from the end of a head to the end of the body.
    connections: int  # Most connections.
    connections_per_address: int  # Maximum number of connections from one address.


def limits(server: settings.ServerSettings) -> Limits:
    """Return the limits from the settings; connections take at most half of the files that may be open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        head_bytes=server.max_head_bytes,
        headers=server.max_headers,
        head_seconds=server.head_seconds,
        body_seconds=server.body_seconds,
        # The other half is for journals, programs and outgoing connections.
        connections=max(1, min(server.max_connections, files // 2)),
        connections_per_address=server.max_connections_per_address,
    )


class Connections:
    """Counts connections, in total and by address."""

    def __init__(self, limits: Limits, warnings: Warnings) -> None:
        self.limits = limits
        self.warnings = warnings
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._refused = 0

    def enter(self, address: str) -> str | None:
        """Count a connection and return None, or return the reason if the limit is reached."""
        if self._total >= self.limits.connections:
            return f"at most {self.limits.connections} connections are served at a time"
        if self._by_address[address] >= self.limits.connections_per_address:
            return f"at most {self.limits.connections_per_address} connections are served from one address at a time"
        self._by_address[address] += 1
        self._total += 1
        return None

    def leave(self, address: str) -> None:
        """Stop counting a connection."""
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def enter_refused(self) -> bool:
        """Count a connection beyond the limit; return whether it stays open until the client has read the answer."""
        if self._refused >= MOST_REFUSED:
            return False
        self._refused += 1
        return True

    def leave_refused(self) -> None:
        """Stop counting a connection beyond the limit."""
        self._refused -= 1


class Warnings:
    """Logs refusals, only once in a while for each kind."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._repeats = telemetry.Repeats(now)

    def warn(self, code: str, message: str, address: str) -> None:
        """Write a warning, or count it for the next one of its kind."""
        left_out = self._repeats.left_out(code)
        if left_out is not None:
            _LOG.warning("refused: %s", message, extra={"code": code, "client": address, "left_out": left_out})


class StallWatch:
    """Aborts a connection whose client takes none of the waiting data."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stalled(self) -> bool:
        """Return whether data waits for the client."""
        return self._timer is not None

    def begin(self, transport: asyncio.WriteTransport) -> None:
        """Start to watch; the connection is aborted when the client has taken no data for a while."""
        self.end()
        waiting = transport.get_write_buffer_size()
        self._timer = self._loop.call_later(STALLED_SECONDS, self._abort_if_stalled, transport, waiting)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort_if_stalled(self, transport: asyncio.WriteTransport, left: int) -> None:
        if transport.get_write_buffer_size() >= left:
            transport.abort()
        else:
            self.begin(transport)
