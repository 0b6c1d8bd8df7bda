"""Stop signals: the first stops gracefully, the second cancels steps in flight, the third ends the process."""

# Ctrl-C leaves a run to resume and does not cancel it: cancelling is a decision that scripts read from exit code 3.
# The command prints `control-room runs resume ID` and exits with 130. `orchestrate` gives no grace, because its
# steps wait for hours.

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODE = 130  # Exit code of a process that a third signal ended.

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


class StopSignals:
    """Turn SIGTERM and SIGINT into a stop."""

    def __init__(self, stop: Callable[[bool], Coroutine[Any, Any, None]]) -> None:
        """Args: stop: Stops, and returns when all rests; called once more, told to hurry, at the second signal."""
        self._stop = stop
        self._stopping: list[asyncio.Task[None]] = []
        self._handled = 0
        self.asked = 0
        """How many signals have come."""

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals within the block; only on the loop of the main thread."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop_once_more, number)
            # The loop handles a signal in its next turn, and never does if the block ends in this one.
            signal.signal(number, self._counted(signal.getsignal(number)))
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def stopped(self) -> None:
        """Wait until a stop that was asked for is over; not at all if none was."""
        for stopping in self._stopping:
            await stopping

    def _counted(self, of_loop: Any) -> Callable[[int, FrameType | None], None]:
        def count(number: int, frame: FrameType | None) -> None:
            self.asked += 1
            of_loop(number, frame)

        return count

    def _stop_once_more(self, number: signal.Signals) -> None:
        self._handled += 1
        _log.info("stopping", extra={"signal": number.name, "asked": self._handled})
        if self._handled > 2:
            os._exit(EXIT_CODE)
        self._stopping.append(asyncio.create_task(self._stop(self._handled == 2), name=f"stop {self._handled}"))
