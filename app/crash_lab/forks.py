"""Forks: processes of `multiprocessing` that several threads start and wait for.

A caller that starts one also polls all the others, and of two that poll one at once only one learns its exit code.
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
    """Wait for the end of a process, and return its exit code; None if it does not come in time."""
    if not wait([process.sentinel], seconds):
        return None
    with _asking:
        return process.exitcode


def buried(process: BaseProcess) -> int | None:
    """End a process if it still lives, free what it held here, and return its exit code."""
    if ended(process, 0) is None:
        process.kill()
    code = ended(process, None)
    with _asking:
        process.close()
    return code
