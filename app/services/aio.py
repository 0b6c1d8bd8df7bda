"""Waiting for the first of several awaitables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def wait_first(*waits: Awaitable[object]) -> None:
    """Wait until one of several waits is over, well or not, and give up the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
