"""Replies that come when a test lets them, so that nothing rests on how long a machine takes for what is done
meanwhile.
"""

from __future__ import annotations

import asyncio

import pytest

from app import clock

DELAY_SECONDS = 3_599.0
"""Delay of a scripted reply that is held: no test waits that long."""


class Held:
    """Replies whose delay does not pass by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released = asyncio.Event()
        self._sleep = clock.SystemClock.sleep
        monkeypatch.setattr(clock.SystemClock, "sleep", lambda own, seconds: self._wait(own, seconds))

    def release(self) -> None:
        """Let the replies come."""
        self._released.set()

    async def _wait(self, own: clock.SystemClock, seconds: float) -> None:
        await (self._released.wait() if seconds == DELAY_SECONDS else self._sleep(own, seconds))
