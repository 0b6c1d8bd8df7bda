"""Servers of a product: started in this process group, awaited, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

_START_SECONDS = 45.0
_GLANCE_SECONDS = 0.05


def free_ports(count: int) -> list[int]:
    """Return a number of ports of loopback on which no program listened just now."""
    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


@contextlib.asynccontextmanager
async def running(words: Sequence[str | Path], variables: dict[str, str] | None = None) -> AsyncIterator[None]:
    """Run a program with its output on the standard error stream, and end it.

    Args:
        variables: Its whole process environment; None: this process's.
    """
    process = await asyncio.create_subprocess_exec(*words, env=variables, stdin=asyncio.subprocess.DEVNULL, stdout=2)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # its data is discarded
        await process.wait()


async def until(ready: Callable[[], Awaitable[object]], *faults: type[Exception]) -> None:
    """Repeat a call until it succeeds.

    Args:
        faults: Faults that mean "not yet". Others are raised.

    Raises:
        TimeoutError: it did not succeed in time.
    """
    async with asyncio.timeout(_START_SECONDS):
        while True:
            with contextlib.suppress(*faults):
                await ready()
                return
            await asyncio.sleep(_GLANCE_SECONDS)
