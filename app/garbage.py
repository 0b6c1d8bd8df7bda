"""Garbage: postpones full collections until the service is quiet, since each blocks the event loop."""

# A run of 3,000 branches has several hundred thousand objects. Each full collection visits all of them, and the
# interpreter begins one whenever their number has grown by a quarter: polls waited for up to 190 ms of processor time.

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator

TICK_SECONDS = 5.0  # Time between two checks.

QUIET_SHARE = 0.1  # Largest share of time that a quiet process computes.

_LEAST, _MOST, _NEVER = 5, 500, 1_000_000_000


def is_due(younger: int, share: float) -> bool:
    """Return whether a full collection is due.

    Args:
        younger: Number of collections of the middle generation since the last full one.
        share: Share of the recent time during which the process has computed.
    """
    return younger >= (_LEAST if share <= QUIET_SHARE else _MOST)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Collect no garbage during the block: a start makes lasting objects, and collections take a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def collect_when_quiet() -> None:
    """Make the full collections instead of the interpreter, until cancelled."""
    usual = gc.get_threshold()
    gc.set_threshold(*usual[:2], _NEVER)
    try:
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(TICK_SECONDS)
            share = (time.process_time() - used) / max(time.monotonic() - began, TICK_SECONDS)
            if is_due(gc.get_count()[2], share):
                gc.collect()
    finally:
        gc.set_threshold(*usual)
