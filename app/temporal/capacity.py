"""Step capacity: limits how many steps a worker performs at a time, over all queues that it serves."""

# The SDK counts each queue separately, and reserves a place before it polls a queue. So a shared number of places would
# be held by polls of empty queues. Here a poll reserves nothing; a task beyond the limit goes back to its queue.

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)


class NoCapacity(Exception):
    """The worker already performs its largest number of steps."""


class StepCapacity(CustomSlotSupplier):
    """Keeps the worker from polling queues of steps while its capacity is taken."""

    def __init__(self, limit: int) -> None:
        """Args:
        limit: Most steps that this worker performs at a time.
        """
        self._limit = limit
        self._count = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold capacity for a step during the block.

        Raises:
            NoCapacity: there is none.
        """
        if self._count >= self._limit:
            raise NoCapacity
        self._note(1)
        try:
            yield
        finally:
            self._note(-1)

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait until there is capacity."""
        await self._is_free.wait()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Return None: every task comes from its queue."""
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Do nothing: the step itself is counted."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Do nothing."""

    def _note(self, change: int) -> None:
        self._count += change
        if self._count < self._limit:
            self._is_free.set()
        else:
            self._is_free.clear()
