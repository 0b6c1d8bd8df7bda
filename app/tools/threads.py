"""Threads: do work that would block the loop and cannot be interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from app.domain import operations
from app.tools import failures

T = TypeVar("T")

DEFAULT_TIMEOUT_SECONDS = 120.0  # Wall-clock limit of one try if the operation sets none.
AT_A_TIME = 4  # Operations of one kind that run at the same time, over all runs.


class Threads:
    """Run work on a limited number of threads, none of which delays the end of the process.

    A thread whose caller has stopped waiting continues to its end, and occupies its place until then.
    """

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._free = asyncio.Semaphore(at_a_time)

    async def perform(self, operation: operations.Operation, work: Callable[[], T]) -> T:
        """Return the result of the work of an operation that only reads: an abandoned one does no harm.

        Raises:
            errors.ToolFailed: `timeout`, the work has exceeded the operation's time limit.
        """
        limit = operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        try:
            return await self.run(work, limit)
        except TimeoutError as error:
            raise failures.overrun(f"The operation {operation.kind}", limit) from error

    async def run(self, work: Callable[[], T], timeout_seconds: float | None = None) -> T:
        """Return what the work returns, or raise what it raises.

        Args:
            timeout_seconds: Longest time until the result, including the wait for a thread; None: no limit.

        Raises:
            TimeoutError: there is no result after that time.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def resolve(result: T | None, error: BaseException | None) -> None:
            # Released when the thread ends, not when its caller does: otherwise, abandoned threads would accumulate.
            self._free.release()
            if outcome.done():
                return
            if error is None:
                outcome.set_result(result)  # type: ignore[arg-type]
            else:
                outcome.set_exception(error)

        async with asyncio.timeout(timeout_seconds):
            await self._free.acquire()
            threading.Thread(target=_work, args=(work, resolve, loop), daemon=True).start()
            return await outcome


async def finished(work: Callable[[], T]) -> T:
    """Return the result of work in a thread; a cancellation takes effect only after the work has ended."""
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
