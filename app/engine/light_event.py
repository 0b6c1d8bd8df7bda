"""Signals: what an event of the event loop does, for next to nothing while nobody waits.

A run has several, and thousands of runs may wait at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


class LightEvent:
    """Given or not; whoever waits is woken when it is given."""

    __slots__ = ("_given", "_waiting")

    def __init__(self) -> None:
        self._given = False
        self._waiting: Sequence[asyncio.Future[None]] = ()

    def is_given(self) -> bool:
        """Tell whether it is given."""
        return self._given

    def give(self) -> None:
        """Give it, and wake everybody who waits."""
        self._given = True
        waiting, self._waiting = self._waiting, ()
        for woken in waiting:
            if not woken.done():
                woken.set_result(None)

    def take_back(self) -> None:
        """Let those who come from now on wait."""
        self._given = False

    def given(self) -> asyncio.Future[None]:
        """Return what is done once it is given; each caller has its own."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._given:
            woken.set_result(None)
        else:
            self._waiting = (*(other for other in self._waiting if not other.done()), woken)
        return woken
