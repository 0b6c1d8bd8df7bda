"""Stopping: a signal ends the measurement in order, so that its programs and folders are removed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

EXIT_CODE = 130
"""Exit code of a process that was stopped."""

_END_SECONDS = 60.0


async def until_signal(work: Coroutine[Any, Any, _T]) -> _T:
    """Do the work, and cancel it at SIGTERM or SIGINT.

    Raises:
        asyncio.CancelledError: the process received a signal.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    return await task


async def end(process: asyncio.subprocess.Process) -> None:
    """Stop a process with SIGTERM and, after a while, with SIGKILL, unless it has ended."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
