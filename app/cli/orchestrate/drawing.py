"""Drawing: the progress of a run on stderr, by step of the workflow and item of its loops (workflow-dsl, progress
reporting).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from app import clock, printable
from app.cli import formats, terminal
from app.cli.orchestrate import keys

Items = Callable[[str], Awaitable[Sequence[Any]]]  # Returns the items of a loop, by its key.

_SECOND = 1.0
_WORDS = {"done": "Completed", "skipped": "Skipped", "failed": "Failed"}


class Drawing:
    """Draw the progress of a run: in place on a live terminal, otherwise a line for each change.

    Args:
        steps: Names of the workflow's steps, in order.
    """

    def __init__(self, steps: Sequence[str], items: Items, time: clock.Clock, *, live: bool) -> None:
        self._numbers = {name: number for number, name in enumerate(steps, 1)}
        self._items = items
        self._clock = time
        self._live = live
        self._known: dict[str, Sequence[Any]] = {}
        self._step: str | None = None
        self._loops: tuple[tuple[str, int], ...] = ()
        self._began = 0.0
        self._failures = 0
        self._drawn = 0

    async def show(self, event: Mapping[str, Any]) -> None:
        """Draw the change that an event reports."""
        key = event.get("key")
        if key is not None:
            await self._step_event(keys.read(key), event["type"], event.get("data") or {})
        elif event["type"] == "run.ended":
            self._finish("failed" if (event.get("data") or {}).get("error") else "done")

    @contextlib.asynccontextmanager
    async def drawn(self) -> AsyncIterator[None]:
        """Let the seconds advance within the block, and clear the terminal afterwards."""
        ticking = asyncio.create_task(self._tick()) if self._live else None
        try:
            yield
        finally:
            if ticking is not None:
                ticking.cancel()
            self._erase()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(_SECOND)
            self._draw()

    async def _step_event(self, key: keys.Key, type: str, facts: Mapping[str, Any]) -> None:
        if type == "step.started":
            await self._enter(key)
        elif not key.loops and key.part == "" and type in ("step.finished", "step.failed"):
            # A step that its condition skips has no event for its begin.
            await self._enter(key)
            self._finish("failed" if type == "step.failed" else str(facts.get("status", "done")))
        elif type == "step.failed" and not key.part.startswith("moved"):
            self._failures += 1
            if not key.loops:
                self._finish("failed")

    async def _enter(self, key: keys.Key) -> None:
        if key.outermost not in self._numbers:
            return
        if key.outermost != self._step:
            # The step before may have ended without an event, for example if it was skipped.
            self._finish("done")
            self._step = key.outermost
            self._loops = ()
            self._began = self._clock.monotonic()
            self._change([self._heading()])
        if key.loops != self._loops:
            for loop, _ in key.loops:
                if loop not in self._known:
                    self._known[loop] = await self._items(loop)
            fresh = [place for number, place in enumerate(key.loops) if self._loops[number : number + 1] != (place,)]
            self._loops = key.loops
            self._change([self._item(place) for place in fresh])

    def _finish(self, status: str) -> None:
        if self._step is None:
            return
        self._erase()
        word, inside = _WORDS.get(status, status.capitalize()), self._failures if status == "done" else 0
        failed = f", {printable.counted(inside, 'step')} failed" if inside else ""
        terminal.warn(f"{self._name()}: {word}{failed} ({self._seconds()}s)")
        self._step = None
        self._failures = 0
        self._loops = ()
        self._known = {}

    # -- lines

    def _name(self) -> str:
        return f"[{self._numbers[self._step or '']}/{len(self._numbers)}] {self._step}"

    def _heading(self) -> str:
        return f"{self._name()}: Running ({self._seconds()}s)..."

    def _item(self, place: tuple[str, int]) -> str:
        depth = self._loops.index(place) if place in self._loops else 0
        items = self._known.get(place[0], ())
        shown = formats.cell(items[place[1]]) if place[1] < len(items) else ""
        total = len(items) or "?"
        return f"{'   ' * depth}  └─ for_each: [{place[1] + 1}/{total}] Processing {shown}".rstrip()

    def _seconds(self) -> int:
        return round(self._clock.monotonic() - self._began)

    def _change(self, lines: list[str]) -> None:
        if self._live:
            self._draw()
        else:
            for line in lines:
                terminal.warn(line)

    def _draw(self) -> None:
        if self._step is not None:
            lines = [self._heading(), *map(self._item, self._loops)]
            terminal.draw(lines, over=self._drawn)
            self._drawn = len(lines)

    def _erase(self) -> None:
        if self._drawn:
            terminal.draw([], over=self._drawn)
            self._drawn = 0
