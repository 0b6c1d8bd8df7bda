"""The connection to an agent of the Agent Client Protocol: messages as lines of JSON, and other lines passed over."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from app import clock
from app.domain import plain

MAX_LINE_BYTES = 16 * 1024 * 1024  # Longest message.
MOST_STRAY_LINES = 10_000  # Number of lines that are not messages after which the connection is given up.

_UPDATE = "session/update"


class Line:
    """A transport for the package's connection. It passes on session updates at once, so that none is late."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        clock: clock.Clock,
        reported: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._report = reported
        self._writer, self._other = writers
        self._turn = asyncio.Lock()
        self.received_at = clock.monotonic()  # Time of the last input.
        self.stray: list[str] = []  # Beginnings of the first lines that were not messages.
        self.stray_lines = 0  # Number of lines that were not messages.
        self.fault: str | None = None  # Why the connection was given up; None: the agent has closed its end.

    @classmethod
    async def over(
        cls,
        hears: socket.socket,
        says: socket.socket,
        clock: clock.Clock,
        reported: Callable[[str, Mapping[str, Any]], None],
    ) -> Line:
        """Make the line over our ends of two pairs of sockets; a single pair would not do.

        Programs that watch their output for its end would mistake our messages for it on a single pair.
        """
        reader, other = await asyncio.open_connection(sock=hears, limit=MAX_LINE_BYTES)
        try:
            _, writer = await asyncio.open_connection(sock=says)
        except BaseException:
            other.close()
            raise
        return cls(reader, (writer, other), clock, reported)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        async with self._turn:
            self._writer.write(json.dumps(message).encode("utf-8", "replace") + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request or answer; None when no more can come."""
        # Updates are passed on in the order of arrival, before the answer that follows them.
        while (line := await self._next()) is not None:
            message = _message(line)
            if message is None:
                self._stray(line)
            elif "method" not in message or "id" in message:
                return message
            elif message["method"] == _UPDATE:
                self._report_update(message.get("params"))
        return None

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        self._other.close()

    async def _next(self) -> bytes | None:
        if self.stray_lines > MOST_STRAY_LINES:
            self.fault = f"it wrote more than {MOST_STRAY_LINES} lines that are not messages"
        if self.fault is not None:
            return None
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as rest:
            if rest.partial.strip():
                self._stray(rest.partial)
            return None
        except asyncio.LimitOverrunError:
            # The next message cannot be distinguished from the rest of this line.
            self.fault = f"it wrote a line of more than {MAX_LINE_BYTES} bytes"
            return None
        except ConnectionError:
            return None
        self.received_at = self._clock.monotonic()
        return line

    def _stray(self, line: bytes) -> None:
        if line.strip():
            self.stray_lines += 1
            if len(self.stray) < 3:
                self.stray.append(plain.preview(line[:400].decode("utf-8", "replace")))

    def _report_update(self, params: object) -> None:
        match params:
            case {"sessionId": str(session_id), "update": dict(update)}:
                self._report(session_id, update)


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        # Programs write log lines to this stream; a limited number of them is skipped.
        return None
    match message:
        case {"method": str(), "id": str() | int()} | {"id": int(), "error": {"code": int(), "message": str()}}:
            return message
        case {"id": int(), "result": _}:
            return message
        case {"method": str()} if "id" not in message:
            return message
    return None
