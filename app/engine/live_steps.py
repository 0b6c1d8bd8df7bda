"""Live steps: keeps, in memory only, the signs of life of a step while its performer is at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from app.domain.views import Stalled


@dataclass(slots=True, kw_only=True, eq=False)
class LiveStep:
    """The signs of life of one step."""

    output_at: datetime | None = None
    """When the newest output of the present attempt arrived; None before the first."""
    stalled: Stalled | None = None  # The present silence of the step, once reported.
    queue: BackendQueue | None = None  # Queue of the backend in which the step waits; None while it does not wait.
    refused_until: datetime | None = None
    """When the prompt is sent again after the service refused it as too early; None: the service did not refuse it."""
    between_tries: bool = False  # Whether a try of the prompt has failed, and the next one has not begun.


class BackendQueue:
    """Prompts that a backend answers one at a time, in order of arrival."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        """Name of the backend."""
        self._turn, self._head = asyncio.Lock(), asyncio.Lock()
        self._waiting: dict[LiveStep, None] = {}

    @property
    def until(self) -> datetime | None:
        """Return the time until which no prompt begins, if that is known."""
        return None

    @property
    def limit(self) -> str | None:
        """Return the setting that keeps every prompt from beginning now, with its value."""
        return None

    @asynccontextmanager
    async def waiting(self, step: LiveStep) -> AsyncIterator[None]:
        """Show a step as waiting until the block ends; the block begins once the step is at the head of the queue."""
        self._waiting[step] = None
        step.queue = self
        try:
            async with self._head:
                yield
        finally:
            del self._waiting[step]
            step.queue = None

    def turn(self, step: LiveStep) -> AbstractAsyncContextManager[None]:
        """Wait for the step's turn, and hold the turn during the block."""
        return self._held(step)

    @asynccontextmanager
    async def _held(self, step: LiveStep) -> AsyncIterator[None]:
        async with self.waiting(step):
            await self._turn.acquire()
        try:
            yield
        finally:
            self._turn.release()

    def place_of(self, step: LiveStep) -> tuple[int, int]:
        """Return the place of a waiting step, from 1, and the number of waiting steps."""
        return list(self._waiting).index(step) + 1, len(self._waiting)
