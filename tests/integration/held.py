"""Replies that arrive when a test releases them, so that a test does not depend on the machine's speed."""

from __future__ import annotations

import asyncio

import pytest

from app import clock

DELAY_SECONDS = 3_599.0
"""Delay of a scripted reply that is held; no test waits that long."""


class Held:
    """Replies whose delay ends only when the test releases them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released = asyncio.Event()
        self._sleep = clock.SystemClock.sleep
        monkeypatch.setattr(clock.SystemClock, "sleep", lambda own, seconds: self._wait(own, seconds))

    def release(self) -> None:
        """Release the replies."""
        self._released.set()

    async def _wait(self, own: clock.SystemClock, seconds: float) -> None:
        await (self._released.wait() if seconds == DELAY_SECONDS else self._sleep(own, seconds))
