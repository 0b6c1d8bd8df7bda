"""Stop signals: the first signal stops gracefully, the second cuts off open steps, the third ends the process."""

# Ctrl-C leaves a run to be resumed and does not cancel it: a cancel is a decision, which scripts read from exit code 3.
# The command prints `control-room runs resume ID` and exits with 130. `orchestrate` has no grace period, because its
# steps wait for hours.

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODE = 130  # Exit code of a process that a third signal ended.

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger(__name__)


class StopSignals:
    """Turns SIGTERM, SIGINT and the SIGHUP of a closed terminal into a stop.

    Args:
        stop: Stops, and returns once everything rests; called again with True at the second signal, to hurry.
    """

    def __init__(self, stop: Callable[[bool], Coroutine[Any, Any, None]]) -> None:
        self._stop = stop
        self._stopping: list[asyncio.Task[None]] = []
        self.asked = 0
        """Number of signals that have been handled."""
        self.received = False
        """Whether a signal has arrived, even in the last turn of the loop, where it is not handled any more."""

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals within the block; only on the loop of the main thread."""
        # A signal handler of the loop may use tasks; a handler of Python may not.
        loop = asyncio.get_running_loop()
        # A program that was started by `nohup` outlives its terminal.
        numbers = [
            number for number in _SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        for number in numbers:
            loop.add_signal_handler(number, self._ask, number)
            # The loop handles a signal in its next turn, or never if the block ends in this turn.
            signal.signal(number, functools.partial(self._receive, signal.getsignal(number)))
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def stopped(self) -> None:
        """Wait until a requested stop is complete; return at once if none was requested."""
        for stopping in self._stopping:
            await stopping

    def _receive(self, of_loop: Any, number: int, frame: FrameType | None) -> None:
        self.received = True
        of_loop(number, frame)

    def _ask(self, number: signal.Signals) -> None:
        self.received = True
        if number == signal.SIGHUP and self.asked:
            # The kernel and the shell both send SIGHUP: a second one does not mean that a person asked twice.
            return
        self.asked += 1
        _log.info("stopping", extra={"signal": number.name, "asked": self.asked})
        if self.asked > 2:
            # Like a kill: everything that was answered is durable, and the next start continues.
            os._exit(EXIT_CODE)
        self._stopping.append(asyncio.create_task(self._stop(self.asked == 2), name=f"stop {self.asked}"))
