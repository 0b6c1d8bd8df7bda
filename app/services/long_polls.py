"""Long polls: answer when their run or list has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from app import clock
from app.domain import views
from app.engine import aio
from app.services.event_streams import EventFollower
from app.services.run_reader import Ready, RunReader

if TYPE_CHECKING:
    from app.engine import run_engine

PAUSE_SECONDS = 0.1
"""Shortest time of a waiting poll while its run continues, so that many small changes are one answer."""

LOOK_SECONDS = 0.5  # Time between two reads of a list that a client waits for.
LARGEST_SHARE = 1 / 10  # Share of the time that repeated reads of a list may take for one client.

T = TypeVar("T")


class LongPolls:
    """Delays answers for clients that have the present one."""

    def __init__(
        self, *, reader: RunReader, follower: EventFollower, engine: run_engine.RunEngine, clock: clock.Clock
    ) -> None:
        self._reader = reader
        self._follower = follower
        self._engine = engine
        self._clock = clock

    async def answer(self, run_id: str, seconds: float, known: frozenset[str] = frozenset()) -> Ready:
        """Return a run's consolidated answer as soon as it differs from the known ones, or from the present one.

        A poll of an ended run returns at once, and so does one whose run ends. Answers that no client will get are not
        encoded.

        Args:
            seconds: Longest wait.
            known: Entity tags of answers that the caller has; empty: the present one.

        Raises:
            errors.NotFound: the run does not exist.
        """
        deadline = self._clock.monotonic() + seconds
        seen = self._seen(run_id, known)
        blind = not known and seen is not None
        last = await self._pause(run_id, seconds) if self._is_here(run_id) else None
        while True:
            if seen is not None:
                await self._news(run_id, seen, deadline)
            seen = self._engine.change_number(run_id)
            answer = await self._reader.ready(run_id, last, fresh=not known or self._is_over(deadline))
            known = known or frozenset({answer.etag})
            if blind or answer.finished or answer.etag not in known or self._is_over(deadline):
                return answer
            last = None

    async def repeat(
        self, last: T, read: Callable[[], Awaitable[T]], seconds: float, is_news: Callable[[T], bool]
    ) -> T:
        """Repeat a read until its result is news, the time is over or the service stops.

        Args:
            last: Result of the last read.
        """
        deadline = self._clock.monotonic() + seconds
        took = 0.0
        while not (is_news(last) or self._is_over(deadline)):
            # A search through very many runs takes long; the wait of one client must not keep a processor busy.
            pause = min(max(LOOK_SECONDS, took / LARGEST_SHARE), deadline - self._clock.monotonic())
            await aio.wait_first(self._follower.stopping.wait(), self._clock.sleep(pause))
            began = self._clock.monotonic()
            last = await read()
            took = self._clock.monotonic() - began
        return last

    def _seen(self, run_id: str, known: frozenset[str]) -> int | None:
        """Return the number of the change that the caller saw last; None if unknown."""
        if known:
            return self._reader.number(run_id, known)
        # The present answer of a run that is loaded here need not be encoded: after the next change, the answer differs
        # from it.
        return self._engine.change_number(run_id) if self._is_here(run_id) else None

    async def _pause(self, run_id: str, seconds: float) -> views.RunView | None:
        leaving = asyncio.ensure_future(self._engine.left(run_id))
        await aio.wait_first(leaving, self._clock.sleep(min(seconds, PAUSE_SECONDS)))
        return None if leaving.cancelled() else leaving.result()

    async def _news(self, run_id: str, seen: int, deadline: float) -> None:
        while self._engine.change_number(run_id) == seen and not self._is_over(deadline):
            await self._follower.change(run_id, seen, deadline - self._clock.monotonic())
            if not self._is_here(run_id):
                # Writes of another process are not announced here, so the run is read again and again.
                return

    def _is_here(self, run_id: str) -> bool:
        return self._engine.view(run_id) is not None or self._engine.standing(run_id) is not None

    def _is_over(self, deadline: float) -> bool:
        return self._follower.stopping.is_set() or self._clock.monotonic() >= deadline
