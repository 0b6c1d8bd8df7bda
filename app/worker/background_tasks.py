"""Errands: work that goes on though whoever asked for it may go away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Keep what is under way, so that it is neither cut off nor forgotten."""

    def __init__(self, failed: Callable[[BaseException], None] | None = None) -> None:
        self._failed = failed
        self._under_way: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin something."""
        background_task = asyncio.create_task(work, name=name)
        self._under_way.add(background_task)
        background_task.add_done_callback(self._over)
        return background_task

    async def carry_out(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Begin something and wait for it; it goes on if the waiting is cut off."""
        return await asyncio.shield(self.begin(work, name))

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def give_up(self) -> None:
        """Cut off what is under way."""
        for background_task in list(self._under_way):
            background_task.cancel()

    def _over(self, background_task: asyncio.Task[Any]) -> None:
        self._under_way.discard(background_task)
        if (
            self._failed is not None
            and not background_task.cancelled()
            and (error := background_task.exception()) is not None
        ):
            self._failed(error)
