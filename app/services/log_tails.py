"""Log tails: return parts of logs, and follow logs while they grow."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from app import clock, errors
from app.engine import aio, stores

PART_BYTES = 256 * 1024  # Most bytes of one read, however large the log is.
LOOK_SECONDS = 0.5  # Time between two reads of a followed log.
OVERLAP_BYTES = 1024  # Bytes before each piece that are read again, to notice that another log has replaced this one.
SILENCE_SECONDS = 15.0  # Longest time without text; then followers get a keep-alive.


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The next piece of a followed log."""

    kind: str  # `text`, `reset` if another log replaced it and is sent from its start, `end`, or `alive`.
    offset: int = 0  # Offset of the text, in bytes.
    following: int = 0  # Offset of the next piece.
    text: str = ""  # The text; bytes that are not UTF-8 are replaced.


class LogTails:
    """Reads and follows logs."""

    def __init__(self, *, store: stores.RunStore, clock: clock.Clock, stopping: asyncio.Event) -> None:
        self._store = store
        self._clock = clock
        self._stopping = stopping

    async def part(self, run_id: str, name: str, offset: int, most: int) -> stores.LogPart:
        """Return a part of a log; a negative offset counts from its end.

        Raises:
            errors.NotFound: the run or the log does not exist.
        """
        return await self._store.read_log_part(run_id, name, offset, min(most, PART_BYTES))

    async def span(self, run_id: str, name: str, first: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a log from one offset up to another, as far as they exist."""
        while first < end:
            part = await self._store.read_log_part(run_id, name, first, min(PART_BYTES, end - first))
            if not part.content:
                return
            yield part.content
            first += len(part.content)

    async def follow(
        self, run_id: str, name: str, begin: stores.LogPart, has_ended: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[Piece, None]:
        """Yield a log from an offset on while it grows, until its run has ended, no faster than its reader reads."""
        position, decoder = begin.offset, codecs.getincrementaldecoder("utf-8")("replace")
        sent, silent = b"", 0.0
        while True:
            # Checked before the read, so that text that comes with the end is sent, too.
            is_over = await has_ended()
            part = await self._read_part(run_id, name, position - len(sent))
            if part is None:
                break
            content = part.content[len(sent) :]
            # Another log has replaced this one, as in the next attempt of its step; it may be the longer one.
            if part.size_bytes < position or not part.content.startswith(sent):
                sent, position, silent = b"", 0, 0.0
                decoder.reset()
                yield Piece(kind="reset")
            elif content:
                began, position, silent = position, position + len(content), 0.0
                sent = (sent + content)[-OVERLAP_BYTES:]
                if text := decoder.decode(content):
                    yield Piece(kind="text", offset=began, following=position, text=text)
                # A fast reader must not keep the loop from other tasks.
                await asyncio.sleep(0)
            elif is_over:
                break
            else:
                silent += LOOK_SECONDS
                if silent >= SILENCE_SECONDS:
                    silent = 0.0
                    yield Piece(kind="alive")
                if await self._pause():
                    return
        yield Piece(kind="end", offset=position, following=position)

    async def _read_part(self, run_id: str, name: str, position: int) -> stores.LogPart | None:
        try:
            return await self._store.read_log_part(run_id, name, position, PART_BYTES)
        except errors.NotFound:
            # The run was deleted.
            return None

    async def _pause(self) -> bool:
        """Wait a while, and return whether the service stops."""
        await aio.wait_first(self._stopping.wait(), self._clock.sleep(LOOK_SECONDS))
        return self._stopping.is_set()
