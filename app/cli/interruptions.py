"""Signals that end a command which has started other processes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that what a command has started is stopped in each case.

    A shell starts background commands with SIGINT ignored; `serve` heeds it all the same, and so do such commands.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
