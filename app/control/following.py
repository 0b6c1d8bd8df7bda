"""
Following: wait for a run's next change, and for its events as they are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from app import clock, errors
from app.control import patience
from app.engine import events, pool_port, stores

TICK_SECONDS = 1.0
"""Longest pause between two looks at a run: of one that another process writes, nothing is heard."""


class Follower:
    """
    Wait on behalf of polls and streams, until the service stops.
    """

    def __init__(self, *, store: stores.RunStore, engine: pool_port.RunEngine, clock: clock.Clock) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._released = asyncio.Event()

    @property
    def released(self) -> bool:
        """
        Tell whether nobody may wait any more.
        """
        return self._released.is_set()

    def release(self) -> None:
        """
        Wake everybody who waits, and let nobody wait again.
        """
        self._released.set()

    async def change(self, run_id: str, since: int, seconds: float) -> None:
        """
        Wait until a run's change number differs from `since`, the time is over, or the service stops.
        """
        await patience.first(
            self._engine.changed(run_id, since),
            self._clock.sleep(min(seconds, TICK_SECONDS)),
            self._released.wait(),
        )

    async def events(
        self, run_id: str, after: int, finished: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[events.Event]:
        """
        Yield a run's events behind `after`, as they are written, until the run has ended and all are told, or is gone.

        Args:
            finished: Tells whether the run has ended.
        """
        quiet_since_the_end, told = 0, None
        while quiet_since_the_end < 2:
            since = self._engine.change_number(run_id)
            try:
                over, written = await finished(), await self._store.read_events(run_id, after)
            except errors.NotFound:
                return
            for event in written:
                yield event
                after, told = event.seq, event.type
            if self.released or (over and told == events.EventType.RUN_ENDED):
                return
            if written:
                continue
            quiet_since_the_end = quiet_since_the_end + 1 if over else 0
            await self.change(run_id, since, TICK_SECONDS)
