"""Workers: run blocking jobs, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from app.storage.disk.disk_port import Disk

T = TypeVar("T")

Done = Callable[[Any, BaseException | None], None]
"""Called on the loop with a job's result, or with the error that it raised."""


_LONG_SECONDS = 0.02
_LARGEST_SHARE = 1 / 50


class Workers(Protocol):
    """Runs blocking jobs without blocking the event loop."""

    def begin(self, job: Callable[[], Any], done: Done) -> None:
        """Start a job; the worker calls `done` on the caller's loop when the job ends."""

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job and return its result; a job that has begun finishes even if the caller is cancelled."""

    def close(self) -> None:
        """Finish the jobs under way, and stop."""


class WorkerThreads:
    """Threads with one queue; a hop to them costs half as much as one to an executor."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Done, asyncio.AbstractEventLoop] | None]
        self._jobs = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def begin(self, job: Callable[[], Any], done: Done) -> None:
        """Queue a job; start a further thread while all are busy."""
        self._busy += 1
        if self._busy > len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((job, done, asyncio.get_running_loop()))

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job on a thread."""
        return await _run(self, job)

    def close(self) -> None:
        """Let every thread finish its job, and wait for them."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            job, done, loop = task
            result: Any = None
            error: BaseException | None = None
            try:
                result = job()
            except BaseException as raised:  # noqa: BLE001 - carried over to the loop, where it is raised again
                error = raised
            # A loop that was closed meanwhile has no waiting callers.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._over, done, result, error)
            # If kept, these names would keep a job and its result in memory until the next job arrives.
            del task, job, done, result, error

    def _over(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        done(result, error)


class AdaptiveInlineWorker:
    """Runs jobs on the loop itself, for those that usually take no longer than a hop to a thread: a few small writes.

    If the disk delays one job, the next ones run on threads until the loop has lost no more than its share of the time.
    """

    def __init__(self, threads: Workers) -> None:
        self._threads = threads
        self._not_before = 0.0

    def begin(self, job: Callable[[], Any], done: Done) -> None:
        """Run a job at once, or on a thread while the disk is slow."""
        if asyncio.get_running_loop().time() < self._not_before:
            self._threads.begin(job, done)
        else:
            done(*_outcome(lambda: self._timed(job)))

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job at once, or on a thread while the disk is slow."""
        if asyncio.get_running_loop().time() < self._not_before:
            return await self._threads.run(job)
        return self._timed(job)

    def close(self) -> None:
        """Do nothing; the owner of the threads closes them."""

    def _timed(self, job: Callable[[], T]) -> T:
        now = asyncio.get_running_loop().time
        began = now()
        try:
            return job()
        finally:
            took = now() - began
            if took > _LONG_SECONDS:
                self._not_before = began + took / _LARGEST_SHARE


class NextTurnWorker:
    """Runs jobs on the loop itself, one turn later, for disks that never block."""

    def begin(self, job: Callable[[], Any], done: Done) -> None:
        """Run a job at the loop's next turn."""
        asyncio.get_running_loop().call_soon(lambda: done(*_outcome(job)))

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job at the loop's next turn."""
        return await _run(self, job)

    def close(self) -> None:
        """Do nothing; this worker has no threads."""


class AsyncFolderLock:
    """Lets one caller at a time work on a folder.

    Only one caller of a process waits for other processes, so that the callers block at most one of its threads.
    """

    def __init__(self, disk: Disk, folder: str, threads: Workers) -> None:
        self._disk = disk
        self._folder = folder
        self._threads = threads
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the folder's lock, for `uncut` work: a lock acquired after a cancellation would never be released."""
        async with self._turn:
            lock = await self._threads.run(lambda: self._disk.lock(self._folder, wait=True))
            try:
                yield
            finally:
                if lock is not None:
                    lock.release()


def _outcome(job: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return job(), None
    except BaseException as error:  # noqa: BLE001 - carried over to the loop, where it is raised again
        return None, error


async def _run(workers: Workers, job: Callable[[], T]) -> T:
    waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    workers.begin(job, functools.partial(settle, waiter))
    try:
        return await waiter
    finally:
        # An error of the future refers to this frame, and both would stay in memory until a garbage collection.
        del waiter


def settle(waiter: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    """Give a future its result or error, unless its waiter was cancelled meanwhile."""
    if waiter.done():
        return
    if error is None:
        waiter.set_result(result)
    else:
        waiter.set_exception(error)


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine even if its caller is cancelled."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(seen)
    return await asyncio.shield(task)


def seen(task: asyncio.Future[Any]) -> None:
    """Read the exception of a task, since Python warns about exceptions that are never retrieved."""
    if not task.cancelled():
        task.exception()
