"""Crash probes: kill the process at a named point; what the process had written survives in the kernel."""

from __future__ import annotations

import os
import signal
import threading


class CrashProbes:
    """Kills the process with SIGKILL when it passes a point for the nth time."""

    def __init__(self, point: str, nth: int = 1) -> None:
        self._point = point
        self._left = nth
        self._lock = threading.Lock()

    def reach(self, point: str) -> None:
        """Count the pass, and kill the process at the nth one; may be called from any thread."""
        if point != self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def parse(text: str) -> CrashProbes:
    """Parse `point:N`, or a point alone for its first pass.

    Raises:
        ValueError: N is not a positive number, or the point is empty.
    """
    point, _, count = text.partition(":")
    nth = int(count) if count else 1
    if not point or nth < 1:
        raise ValueError(f"{text!r} is not of the form point:N")
    return CrashProbes(point, nth)
