"""Storage retry: repeats a failed write or read of a run's folder, while a result waits in memory."""

# Only steps without effects outside are attempted again after a storage fault: an issue's id follows from run and
# key, and a lookup changes nothing. Agents, commands, commits and moves may have cost money or be visible, so a
# person decides. Of an agent's step, only the writes are repeated.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app import clock, errors
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.domain.records import BlobRef
from app.engine.aio import LightEvent
from app.engine.stores import RunLog

_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 10.0

T = TypeVar("T")


class StorageRetry:
    """Repeats the failed writes and reads of one run until the storage is back."""

    def __init__(self, log: RunLog, time: clock.Clock, changed: Callable[[], None]) -> None:
        self._log = log
        self._clock = time
        self._changed = changed
        self._healing: asyncio.Lock | None = None
        self._abandoned = LightEvent()
        self._cancelled = LightEvent()
        self._hurried = LightEvent()
        self.fault: errors.StorageFault | None = None
        """The failed write for whose repair the run waits."""
        self._unreadable: errors.Unreadable | None = None

    @property
    def obstacle(self) -> errors.StorageFault | None:
        """Return the failed write or read for whose repair the run waits."""
        return self._unreadable if isinstance(self.fault, errors.WorkspaceFault) else self.fault or self._unreadable

    async def retry(self, fault: errors.StorageFault, write: Callable[[], Awaitable[T]]) -> T:
        """Heal and write again after a failed write, for as long as it takes."""
        await self.heal(fault)
        return await self.commit(write)

    async def commit(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and after a failure heal and write again, for as long as it takes."""
        try:
            while True:
                try:
                    return await write()
                except errors.StorageFault as fault:
                    await self.heal(fault)
        finally:
            if self._unreadable is not None:
                self._unreadable = None
                self._changed()

    async def heal(self, fault: errors.StorageFault) -> None:
        """Wait for space after a failed write, or for a while after a failed read.

        Raises:
            errors.Unreadable: the run is being cancelled, so it does not wait for files.
            errors.LeaseLost: another process writes the run.
        """
        # A wait does not help, and a further write would follow lines that another process has written since.
        if isinstance(fault, errors.LeaseLost):
            raise fault
        if isinstance(fault, errors.Unreadable):
            await self._outwait_read(fault)
            return
        # Created at the first failed write: few runs ever need it.
        self._healing = self._healing or asyncio.Lock()
        async with self._healing:
            self._report(fault)
            try:
                await self._outwait()
            except BaseException:
                # A cancelled waiter stops waiting; the remaining waiters report the fault themselves.
                self.fault = None
                self._changed()
                raise

    async def postpone(self, fault: errors.WorkspaceFault, times: int, key: str, attempt: int) -> None:
        """Wait, longer each time, before a step without effects is repeated.

        Args:
            times: How often the step has already waited.
        """
        if times == 0:
            # The disk of the data directory may be full, too; then no further attempt can begin either.
            with contextlib.suppress(errors.StorageFault):
                await self._log.decide(DecisionKind.WAITING, {"key": key, "attempt": attempt})
            self._log.add_event(EventType.STORAGE_FAILED, fault.key, {"error": fault.to_json()})
        self.fault = fault
        self._changed()
        try:
            await self._wait(min(_FIRST_WAIT_SECONDS * 2 ** min(times, 9), _LONGEST_WAIT_SECONDS))
        finally:
            self.fault = None
            self._changed()

    async def get_blob(self, blob: BlobRef) -> plain.Json:
        """Return a blob as soon as it can be read."""
        return await self.commit(lambda: self._log.get_blob(blob))

    def abandon(self) -> None:
        """Give up the wait for space, since the process stops; waiters get an `InterruptionFault`."""
        self._abandoned.set()

    def retry_now(self) -> None:
        """Retry failed writes and reads now."""
        self._hurried.set()

    def cancel(self) -> None:
        """Give up the wait for unreadable files, since the run performs nothing any more."""
        self._cancelled.set()

    def stop_reporting(self) -> None:
        """Stop reporting changes: the run was unloaded, and its runner must not be kept in memory."""
        self._changed = _ignored

    async def _outwait_read(self, fault: errors.Unreadable) -> None:
        # The folder is not written: an unreadable file is shown beside the run, not in its folder.
        if not self._cancelled.is_set():
            self._log.wait_for(fault)
            self._unreadable = fault
            self._changed()
            seconds = min(float(fault.detail.get("retry_after_seconds", 1)), _LONGEST_WAIT_SECONDS)
            await self._wait(seconds, self._cancelled, self._hurried)
            self._hurried.clear()
        if self._cancelled.is_set():
            raise fault

    def _report(self, fault: errors.StorageFault) -> None:
        self.fault = fault
        self._log.add_event(EventType.STORAGE_FAILED, fault.key, {"error": fault.to_json()})
        self._changed()

    async def _outwait(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while self.fault is not None:
            await self._wait(wait, self._hurried)
            self._hurried.clear()
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            await self._try()

    async def _wait(self, seconds: float, *signals: LightEvent) -> None:
        signalled = [signal.wait() for signal in (self._abandoned, *signals)]
        waits = asyncio.ensure_future(self._clock.sleep(seconds)), *signalled
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self._abandoned.is_set():
            raise errors.InterruptionFault

    async def _try(self) -> None:
        try:
            await self._log.heal()
        except errors.LeaseLost:
            raise
        except errors.StorageFault as fault:
            self.fault = fault
        else:
            self.fault = None
            self._log.add_event(EventType.STORAGE_HEALED)
        self._changed()


def _ignored() -> None:
    """Ignore a change."""
