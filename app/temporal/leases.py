"""Leases: open a run's journals for one write after another, for whichever process has to write.

The store lets one process at a time hold a run. A lease lasts as long as a read or write, never as long as the
performance of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from app import clock, errors
from app.engine import aio, stores

WAIT_SECONDS = 30.0
"""How long another process may hold a run before the attempt fails, which Temporal then repeats."""

_FIRST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 0.25


class Leases:
    """Holds runs for a short time."""

    def __init__(self, store: stores.RunStore, time: clock.Clock) -> None:
        self._store = store
        self._clock = time
        self._locks = aio.KeyedLock()

    @asynccontextmanager
    async def of(self, run_id: str) -> AsyncIterator[stores.RunLog]:
        """Hold a run during the block.

        Raises:
            errors.NotFound, errors.JournalCorrupt, errors.StorageFault: as `RunStore.open`.
            errors.Conflict: `run_busy`, another process holds the run for too long.
        """
        async with AsyncExitStack() as held:
            # Within this process callers wait in a queue; only other processes are polled.
            await held.enter_async_context(self._locks.of(run_id))
            log = await self._opened(run_id)
            held.push_async_callback(_set_aside, log)
            yield log

    async def _opened(self, run_id: str) -> stores.RunLog:
        began, wait = self._clock.monotonic(), _FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._store.open(run_id)
            except errors.Conflict as conflict:
                if conflict.code != "run_busy" or self._clock.monotonic() - began > WAIT_SECONDS:
                    raise
            await self._clock.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


async def _set_aside(log: stores.RunLog) -> None:
    # A cancelled caller must not leave a run locked.
    await asyncio.shield(asyncio.ensure_future(log.set_aside()))
