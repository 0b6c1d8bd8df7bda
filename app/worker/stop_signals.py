"""Stop signals: the first signal stops gracefully, the second cuts off open steps, the third ends the process."""

# Ctrl-C leaves a run to be resumed and does not cancel it: a cancel is a decision, which scripts read from exit code 3.
# The command prints `control-room runs resume ID` and exits with 130. `orchestrate` has no grace period, because its
# steps wait for hours.

from __future__ import annotations

import asyncio
import functools
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from app import interruption

_log = logging.getLogger(__name__)


class StopSignals:
    """Turns SIGTERM, SIGINT and the SIGHUP of a closed terminal into a stop.

    Args:
        stop: Stops, and returns once everything rests; called again with True at the second signal, to hurry.
    """

    def __init__(self, stop: Callable[[bool], Coroutine[Any, Any, None]]) -> None:
        self._stop = stop
        self._stopping: list[asyncio.Task[None]] = []
        self._catches = False
        self.asked = 0
        """Number of signals that have been handled."""
        self.received = False
        """Whether a signal has arrived, even in the last turn of the loop, where it is not handled any more."""

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals within the block; only on the loop of the main thread."""
        self._catches = True
        try:
            with interruption.caught(functools.partial(self._receive, asyncio.get_running_loop())):
                yield
        finally:
            self._catches = False

    async def stopped(self) -> None:
        """Wait until a requested stop is complete; return at once if none was requested."""
        for stopping in self._stopping:
            await stopping

    def _receive(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        self.received = True
        # In a turn of the loop, since it uses tasks.
        loop.call_soon_threadsafe(self._ask, number)

    def _ask(self, number: signal.Signals) -> None:
        # The block may have ended in the turn in which the signal came.
        if self._catches:
            self.asked += 1
            _log.info("stopping", extra={"signal": number.name, "asked": self.asked})
            self._stopping.append(asyncio.create_task(self._stop(self.asked == 2), name=f"stop {self.asked}"))
