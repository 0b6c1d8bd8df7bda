"""Retry until there is space: a failed write is repeated, while its result waits in memory."""

# Only steps without effects outside are attempted again after a storage fault; an issue's id follows from run and
# key, and a lookup changes nothing. Agents, commands, commits and moves may have been paid for or be visible, so a
# person decides. Of an agent's step only the writes are repeated.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app import clock, errors
from app.domain import plain
from app.domain.events import EventType
from app.domain.records import BlobRef
from app.engine.aio import LightEvent
from app.engine.stores import RunLog

_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 10.0

T = TypeVar("T")


class SpaceRetry:
    """Guard the writes of one run."""

    def __init__(self, log: RunLog, time: clock.Clock, changed: Callable[[], None]) -> None:
        self._log = log
        self._clock = time
        self._changed = changed
        self._healing: asyncio.Lock | None = None
        self._abandoned = LightEvent()
        self._cancelled = LightEvent()
        self._hurried = LightEvent()
        self.fault: errors.StorageFault | None = None
        """The write failure that the run waits out now."""
        self._unreadable: errors.Unreadable | None = None

    @property
    def obstacle(self) -> errors.StorageFault | None:
        """Return the failed write or read of the data directory that the run waits out now."""
        return self._unreadable if isinstance(self.fault, errors.WorkspaceFault) else self.fault or self._unreadable

    async def retry(self, fault: errors.StorageFault, write: Callable[[], Awaitable[T]]) -> T:
        """Heal and write again after a write that failed, for as long as it takes."""
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
        """Wait until there is room again after a write that failed, or a while after a read that did.

        Raises:
            errors.Unreadable: the run is cancelled, and so waits for no file any more.
            errors.LeaseLost: another process writes the run.
        """
        if isinstance(fault, errors.LeaseLost):
            raise fault
        if isinstance(fault, errors.Unreadable):
            await self._outwait_read(fault)
            return
        # Made when the first write fails, since of many runs few ever see that.
        self._healing = self._healing or asyncio.Lock()
        async with self._healing:
            self._tell(fault)
            try:
                await self._outwait()
            except BaseException:
                # A cancelled waiter no longer waits; the remaining ones report in their turn.
                self.fault = None
                self._changed()
                raise

    async def postpone(self, fault: errors.WorkspaceFault, times: int) -> None:
        """Wait before a step is begun again that could do nothing, longer from time to time.

        Args:
            times: How often it has waited already.
        """
        if times == 0:
            self._log.add_event(EventType.STORAGE_FAILED, fault.key, {"error": fault.to_json()})
        self.fault = fault
        self._changed()
        try:
            await self._wait(min(_FIRST_WAIT_SECONDS * 2 ** min(times, 9), _LONGEST_WAIT_SECONDS))
        finally:
            self.fault = None
            self._changed()

    async def get_blob(self, blob: BlobRef) -> plain.Json:
        """Return a blob, as soon as it can be read."""
        return await self.commit(lambda: self._log.get_blob(blob))

    def abandon(self) -> None:
        """Give up waiting for space, since the process stops; waiters get an `InterruptionFault`."""
        self._abandoned.give()

    def retry_now(self) -> None:
        """Repeat now what could not be written or read."""
        self._hurried.give()

    def cancel(self) -> None:
        """Give up waiting for files that cannot be read, since nothing of the run will be performed any more."""
        self._cancelled.give()

    def let_go(self) -> None:
        """Report no change any more, since the run was unloaded; so nothing keeps its runner."""
        self._changed = _ignored

    async def _outwait_read(self, fault: errors.Unreadable) -> None:
        # Nothing is written about it: what cannot be read now is shown beside the run, not in its folder.
        if not self._cancelled.is_given():
            self._log.wait_for(fault)
            self._unreadable = fault
            self._changed()
            seconds = min(float(fault.detail.get("retry_after_seconds", 1)), _LONGEST_WAIT_SECONDS)
            await self._wait(seconds, self._cancelled, self._hurried)
            self._hurried.take_back()
        if self._cancelled.is_given():
            raise fault

    def _tell(self, fault: errors.StorageFault) -> None:
        self.fault = fault
        self._log.add_event(EventType.STORAGE_FAILED, fault.key, {"error": fault.to_json()})
        self._changed()

    async def _outwait(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while self.fault is not None:
            await self._wait(wait, self._hurried)
            self._hurried.take_back()
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            await self._try()

    async def _wait(self, seconds: float, *signals: LightEvent) -> None:
        given = [signal.given() for signal in (self._abandoned, *signals)]
        waits = asyncio.ensure_future(self._clock.sleep(seconds)), *given
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self._abandoned.is_given():
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
    """Report to no one."""
