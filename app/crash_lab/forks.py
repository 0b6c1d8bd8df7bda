"""Forks: start and await processes of `multiprocessing` from several threads.

Starting a process also polls all the others; if two threads poll one at the same time, only one learns its exit code.
"""

from __future__ import annotations

import threading
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

_asking = threading.Lock()


def begin(process: BaseProcess) -> None:
    """Start a process."""
    with _asking:
        process.start()


def ended(process: BaseProcess, seconds: float | None) -> int | None:
    """Wait for the end of a process, and return its exit code; None if it does not end in time."""
    if not wait([process.sentinel], seconds):
        return None
    with _asking:
        return process.exitcode


def buried(process: BaseProcess) -> int | None:
    """Kill a process if it is still alive, free its resources, and return its exit code."""
    if ended(process, 0) is None:
        process.kill()
    code = ended(process, None)
    with _asking:
        process.close()
    return code
