"""Live output: masks what a step writes while it is performed, and appends it to the step's log."""

from __future__ import annotations

import asyncio
import codecs
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app import clock, errors
from app.domain import plain
from app.engine.live_steps import LiveStep

MOST_CHARACTERS = 32 * 1024 * 1024
"""Most characters of output of one attempt that are appended; the rest is left out, which the log states."""

PAUSE_SECONDS = 0.25  # Shortest time between two writes to one log.

_MOST_HELD = 64 * 1024
_MOST_PENDING = 1024 * 1024
_LEFT_OUT = "[output left out here: it came faster than it could be kept]\n"
_FULL = "\n[the rest of the output is left out]\n"
_CLOCK = clock.SystemClock()

_log = logging.getLogger(__name__)

AppendLog: TypeAlias = Callable[[str, str, bool], Awaitable[bool]]
"""Appends a text to a log (name, text, whether the log begins anew); False while the run's folder cannot be written.

Then the text is held.
"""


async def not_kept(_name: str, _text: str, _anew: bool) -> bool:
    """Discard the text, for runs without a folder."""
    return True


class LiveOutput:
    """One output of one attempt. The step never waits for it; after a failed write, the rest is discarded."""

    # Thousands of attempts are under way at the same time, and most of them write nothing for long.
    __slots__ = (
        "_append", "_decoder", "_held", "_is_over", "_is_torn", "_masker", "_name", "_pending", "_size", "_step",
        "_turn", "_writing", "_written",
    )  # fmt: skip

    def __init__(self, step: LiveStep, append: AppendLog, name: str, masker: plain.Masker) -> None:
        self._step = step
        self._append = append
        self._name = name
        self._masker = masker
        self._decoder: codecs.IncrementalDecoder | None = None
        self._pending: list[str] = []
        self._held = ""
        self._size = self._written = 0
        self._is_over = self._is_torn = False
        self._turn: asyncio.Lock | None = None
        self._writing: asyncio.Task[None] | None = None

    def hear(self, text: str) -> None:
        """Add a piece of output."""
        self._step.output_at = _CLOCK.now()
        if self._size > _MOST_PENDING:
            self._leave_out(_MOST_HELD)
        if self._is_torn:
            # The rest of a torn line may contain the end of a secret.
            _, newline, text = text.partition("\n")
            self._is_torn = not newline
        if self._is_over or not text:
            return
        self._pending.append(text)
        self._size += len(text)
        if self._writing is None:
            self._turn = self._turn or asyncio.Lock()
            self._writing = asyncio.get_running_loop().create_task(self._write_on(), name=f"output {self._name}")

    def hear_bytes(self, content: bytes, skipped_bytes: int = 0) -> None:
        """Add a piece of output that may end within a character.

        Args:
            skipped_bytes: Number of bytes left out before this piece.
        """
        if self._decoder is None or skipped_bytes:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if skipped_bytes:
            self._leave_out()
        self.hear(self._decoder.decode(content))

    async def close(self) -> None:
        """Write the remaining output."""
        if self._turn is None:
            self._is_over = True
            return
        async with self._turn:
            if self._writing is not None:
                self._writing.cancel()
            await self._write(at_end=True)
            self._is_over = True

    async def _write_on(self) -> None:
        turn = self._turn
        assert turn is not None
        try:
            while self._pending and not self._is_over:
                async with turn:
                    await self._write(at_end=False)
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._writing = None

    async def _write(self, *, at_end: bool) -> None:
        text = self._held + "".join(self._pending)
        end = len(text) if at_end else self._end_of_whole(text)
        self._pending, self._held, self._size = [], text[end:], len(text) - end
        if self._is_over or not end:
            return
        masked = str(self._masker.mask(text[:end]))
        if self._written + len(masked) > MOST_CHARACTERS:
            masked, self._is_over = masked[: MOST_CHARACTERS - self._written] + _FULL, True
        try:
            # Once begun, the append completes even if its step is cancelled: otherwise the next write would append
            # part of the text again.
            # The log may be that of an earlier attempt or visit.
            if await asyncio.shield(asyncio.ensure_future(self._append(self._name, masked, not self._written))):
                self._written += len(masked)
            else:
                self._held, self._size = text[:end] + self._held, self._size + end
        except (errors.StorageFault, errors.InterruptionFault) as fault:
            _log.warning("the output %s is not kept any more: %s", self._name, fault)
            self._is_over = True

    def _leave_out(self, most: int | None = None) -> None:
        """Keep the complete unwritten lines and drop the other text, up to the next line."""
        text = (self._held + "".join(self._pending))[:most]
        whole_lines = text[: text.rfind("\n") + 1] + _LEFT_OUT
        self._pending, self._held, self._size, self._is_torn = [whole_lines], "", len(whole_lines), True

    def _end_of_whole(self, text: str) -> int:
        """Return where a text can be cut without cutting a secret: after a line or, in a long line, between secrets."""
        end = text.rfind("\n") + 1
        return self._masker.safe_end(text) if len(text) - end > _MOST_HELD else end
