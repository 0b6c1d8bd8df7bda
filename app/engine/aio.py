"""Helpers over asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from app import clock

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class LightEvent:
    """An `asyncio.Event` at a tenth of the size; each of the thousands of waiting runs has one."""

    _is_set: bool = False
    _waiting: Sequence[asyncio.Future[None]] = ()

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake all waiters."""
        self._is_set = True
        waiters, self._waiting = self._waiting, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Reset the event."""
        self._is_set = False

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done once the event is set."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_set:
            woken.set_result(None)
        else:
            # Cancelled waiters are dropped here: a loop that waits with a timeout would leave one behind in each round.
            self._waiting = (*(other for other in self._waiting if not other.done()), woken)
        return woken


class KeyedLock:
    """A fair lock for each key; a lock exists only while a caller holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._wanted: dict[Hashable, int] = {}

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the lock of a key during the block."""
        # The waiters are counted: between a release and the turn of the next waiter the lock itself looks free, and
        # a new lock in its place would let two callers in.
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key], self._locks[key]


class BackgroundTasks:
    """Tasks that continue even if their caller is cancelled; each runs to its end, and failures are reported."""

    def __init__(self, failed: Callable[[BaseException], None] | None = None) -> None:
        self._failed = failed
        # An event loop refers to its tasks weakly, so without this set a task could be collected before it ends.
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task, and return it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    async def carry_out(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Start a task and wait for it; it continues if the caller is cancelled."""
        return await asyncio.shield(self.begin(work, name))

    async def wait_idle(self) -> None:
        """Wait until no task is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def give_up(self) -> None:
        """Cancel all tasks."""
        for task in list(self._tasks):
            task.cancel()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._failed is not None and (error := failure(task)) is not None:
            self._failed(error)


class GracePeriod:
    """The time for which a stop waits for open steps; a caller can shorten it while it runs."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._lost = asyncio.Event()
        self._limits: set[asyncio.Task[None]] = set()

    def limit(self, seconds: float) -> None:
        """End the period after this many seconds, unless an earlier call ends it sooner."""
        self._limits.add(asyncio.create_task(self._lose(seconds)))

    async def wait_for(self, resting: asyncio.Task[None]) -> None:
        """Wait until the task has ended or the period is over."""
        lost = asyncio.create_task(self._lost.wait())
        await asyncio.wait((resting, lost), return_when=asyncio.FIRST_COMPLETED)
        for task in (lost, *self._limits):
            task.cancel()

    async def _lose(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._lost.set()


async def wait_first(*waits: Awaitable[object]) -> None:
    """Wait until the first of several waits ends, by success or failure, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def finished(task: asyncio.Future[Any]) -> None:
    """Wait until a task has ended, also through cancellations of the caller, which are dropped."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # Python warns about exceptions that are never retrieved.


def failure(task: asyncio.Future[Any] | None) -> BaseException | None:
    """Return the error that ended a task; None if it runs, was cancelled or succeeded."""
    return task.exception() if task is not None and task.done() and not task.cancelled() else None
