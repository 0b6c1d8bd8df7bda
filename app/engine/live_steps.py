"""Live steps: what a step shows while its performer is at work, kept in memory alone."""

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
    """When the newest output of its present attempt came; None before the first."""
    stalled: Stalled | None = None  # Its present silence, once it was reported.
    queue: BackendQueue | None = None  # Queue of its backend that it waits in; None while it does not.
    refused_until: datetime | None = None
    """When its prompt is sent again after the service refused it as too early; None: it was not refused."""


class BackendQueue:
    """Prompts that a backend answers one at a time, in order of arrival."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        """Name of the backend."""
        self._turn, self._head = asyncio.Lock(), asyncio.Lock()
        self._waiting: dict[LiveStep, None] = {}

    @property
    def until(self) -> datetime | None:
        """Return until when no prompt begins, if that is known."""
        return None

    @property
    def limit(self) -> str | None:
        """Return the setting that lets no prompt begin now, with its value."""
        return None

    @asynccontextmanager
    async def waiting(self, step: LiveStep) -> AsyncIterator[None]:
        """Show a step as waiting during the block; one step at a time is at the head."""
        self._waiting[step] = None
        step.queue = self
        try:
            async with self._head:
                yield
        finally:
            del self._waiting[step]
            step.queue = None

    def turn(self, step: LiveStep) -> AbstractAsyncContextManager[None]:
        """Wait for the step's turn, and keep it during the block."""
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
        """Return the place of a step that waits, from 1, and how many wait."""
        return list(self._waiting).index(step) + 1, len(self._waiting)
