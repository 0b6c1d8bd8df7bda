"""Threads for work that would block the loop and cannot be interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from app.domain import operations
from app.tools import failures

T = TypeVar("T")


class Threads:
    """So many threads at a time, and none that keeps the process from ending.

    A thread whose caller has stopped waiting continues to its end, and counts as long as it does.
    """

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns, or raise what it raises."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def resolve(result: T | None, error: BaseException | None) -> None:
            # Given back when the thread ends, not when its caller does: abandoned threads would pile up otherwise.
            self._free.release()
            if outcome.done():
                return
            if error is None:
                outcome.set_result(result)  # type: ignore[arg-type]
            else:
                outcome.set_exception(error)

        threading.Thread(target=_work, args=(work, resolve, loop), daemon=True).start()
        return await outcome


async def finished(work: Callable[[], T]) -> T:
    """Return the result of work in a thread; work that has begun ends before a cancellation continues."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        # A thread cannot be interrupted. If this returned now, the run could end, or the step be repeated, while the
        # thread still writes.
        await asyncio.gather(working, return_exceptions=True)
        raise


def _work(
    work: Callable[[], T], resolve: Callable[[T | None, BaseException | None], None], loop: asyncio.AbstractEventLoop
) -> None:
    result: T | None = None
    failure: BaseException | None = None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - raised in the caller's task
        failure = error
    with suppress(RuntimeError):  # the loop is closed, and no caller waits
        loop.call_soon_threadsafe(resolve, result, failure)


DEFAULT_TIMEOUT_SECONDS = 120.0  # Wall-clock limit of one try where the operation sets none.
AT_A_TIME = 4  # Operations of a kind that are carried out at a time, over all runs.


class FileThreads:
    """Look at files off the loop; a look that is not waited for does no harm."""

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._threads = Threads(at_a_time)

    async def look(self, operation: operations.Operation, work: Callable[[], T]) -> T:
        """Return what the work returns, within the time that the operation gives it."""
        limit = operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(limit):
                return await self._threads.run(work)
        except TimeoutError as error:
            raise failures.overrun(f"The operation {operation.kind}", limit) from error
