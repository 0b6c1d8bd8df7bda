"""
Durability: repeat a write that failed until there is room again, while its result waits in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app import clock, errors
from app.engine.events import EventType
from app.engine.signals import Signal
from app.engine.stores import RunLog

_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 10.0

T = TypeVar("T")


class Durability:
    """
    Guard the writes of one run.
    """

    def __init__(self, log: RunLog, time: clock.Clock, changed: Callable[[], None]) -> None:
        self._log = log
        self._clock = time
        self._changed = changed
        self._healing: asyncio.Lock | None = None
        self._abandoned = Signal()
        self.fault: errors.StorageFault | None = None
        """The write failure that the run waits out now."""

    async def commit(self, write: Callable[[], Awaitable[T]]) -> T:
        """
        Write, and after a failure heal and write again, for as long as it takes.
        """
        while True:
            try:
                return await write()
            except errors.StorageFault as fault:
                await self.heal(fault)

    async def heal(self, fault: errors.StorageFault) -> None:
        """
        Wait until there is room again after a write that failed.
        """
        # Made when the first write fails, since of many runs few ever see that.
        self._healing = self._healing or asyncio.Lock()
        async with self._healing:
            self._tell(fault)
            try:
                await self._outwait()
            except BaseException:
                # Who is cut off waits for nothing any more; whoever still does says so in its turn.
                self.fault = None
                self._changed()
                raise

    def abandon(self) -> None:
        """
        Give up waiting for room, since the process stops; whoever waits gets an `InterruptionFault`.
        """
        self._abandoned.give()

    def _tell(self, fault: errors.StorageFault) -> None:
        self.fault = fault
        self._log.add_event(EventType.STORAGE_FAILED, fault.key, {"error": fault.to_json()})
        self._changed()

    async def _outwait(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while self.fault is not None:
            await self._wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            await self._try()

    async def _wait(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        abandoned = self._abandoned.given()
        try:
            await asyncio.wait((sleeping, abandoned), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            abandoned.cancel()
        if self._abandoned.is_given():
            raise errors.InterruptionFault

    async def _try(self) -> None:
        try:
            await self._log.heal()
        except errors.StorageFault as fault:
            self.fault = fault
            return
        self.fault = None
        self._log.add_event(EventType.STORAGE_HEALED)
        self._changed()
