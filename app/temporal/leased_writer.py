"""The leased writer of a step performed here: it leases the run for each write, so that orders can come between them.

If a lease was lost, the writer takes a new one before it gives up a result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from app import clock, errors
from app.domain.records import Record
from app.engine import active_step, outages, ports, run_equipment, runner_link, storage_retry, stores
from app.temporal.fenced_log import FencedLog
from app.temporal.leases import Leases

_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 10.0
_WAITS = "a result waits, since its run cannot be written now: %s"

_log = logging.getLogger(__name__)


class _Unbounded:
    """`ports.Capacity` for steps whose number Temporal limits."""

    def __init__(self, run_id: str) -> None:
        self.holders: Container[str] = (run_id,)

    async def enter(self) -> None:
        """Return at once."""

    def leave(self) -> None:
        """Do nothing: no capacity is held."""


class RenewingRetry(storage_retry.StorageRetry):
    """A `StorageRetry` that leases the run again after a lost lease, so that a paid result is not lost with it."""

    def __init__(self, log: stores.RunLog, time: clock.Clock, renew: Callable[[], Awaitable[None]]) -> None:
        super().__init__(log, time, lambda: None)
        self._renew = renew

    async def heal(self, fault: errors.StorageFault) -> None:
        """Lease the run again if the lease was lost; otherwise wait until there is space."""
        if isinstance(fault, errors.LeaseLost):
            await self._renew()
        else:
            await super().heal(fault)


class Owner:
    """A `StepOwner` that exists as long as a lease."""

    def __init__(self, log: stores.RunLog, equipment: run_equipment.Equipment, writer: LeasedWriter) -> None:
        fenced = FencedLog(log)
        self.log: stores.RunLog = fenced

        async def renew() -> None:
            fenced.renew(await writer.renewed())

        self.storage_retry: storage_retry.StorageRetry = RenewingRetry(self.log, equipment.clock, renew)
        self.capacity: ports.Capacity = _Unbounded(log.loaded.start.run_id)
        self._writer = writer

    def began(self, step: active_step.ActiveStep) -> None:
        """Do nothing: followers read the events."""

    def arrived(self, record: Record) -> None:
        """Accept a durable record."""
        self._writer.record = record

    def failed(self, step: active_step.ActiveStep, failure: BaseException) -> None:
        """Keep the reason why the step could not be executed, as `LeasedWriter.report`."""
        self._writer.report(step, failure)


class LeasedWriter(runner_link.RunnerLink):
    """Leases the run when the step writes, and ends the lease while the step is performed."""

    __slots__ = (
        "_equipment",
        "_has_begun",
        "_held",
        "_leases",
        "_opening",
        "_performing",
        "failure",
        "record",
    )

    def __init__(self, run_id: str, leases: Leases, equipment: run_equipment.Equipment) -> None:
        super().__init__(run_id)
        self._leases = leases
        self._equipment = equipment
        self._held = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._performing = self._has_begun = False
        self.record: Record | None = None
        """The durable line of the attempt."""
        self.failure: BaseException | None = None
        """Why there is no line."""

    async def attached(self) -> runner_link.StepOwner:
        """Lease the run, if it is not leased, and return its owner."""
        async with self._opening:
            if self.owner is None:
                self.attach(Owner(await self._leased(), self._equipment, self))
        assert self.owner is not None
        return self.owner

    @asynccontextmanager
    async def use(self) -> AsyncIterator[runner_link.StepOwner]:
        """Lend the log to a performer at work."""
        try:
            async with super().use() as owner:
                yield owner
        finally:
            if not self._users:
                await self._give_back_unused()

    def report(self, step: active_step.ActiveStep, failure: BaseException) -> None:
        """Keep the reason why a step could not be executed."""
        self.failure = failure

    async def give_back(self) -> None:
        """End the lease, if there is one."""
        async with self._opening:
            await self._end_lease()

    async def renewed(self) -> stores.RunLog:
        """Lease the run again after the lease was lost, and return its log."""
        async with self._opening:
            held, self._held = self._held, AsyncExitStack()
            await held.aclose()
            return await self._leased()

    async def _give_back_unused(self) -> None:
        async with self._opening:
            # While this waited for the lock, another user, or the step that records its line, may have reached the log.
            if not self._users and self._performing:
                await self._end_lease()

    async def _end_lease(self) -> None:
        self.owner = None
        held, self._held = self._held, AsyncExitStack()
        await held.aclose()

    async def _leased(self) -> stores.RunLog:
        wait, outage = _FIRST_WAIT_SECONDS, None
        while True:
            try:
                log = await self._held.enter_async_context(self._leases.of(self._run_id))
            except (errors.StorageFault, errors.Conflict) as fault:
                # The performed work may have cost money: its result waits here until the store is back. If it were
                # given up, Temporal would have the step performed again.
                if not self._has_begun:
                    raise
                outage = outage or outages.Outage(_log, _WAITS, "the run can be written again", run_id=self._run_id)
                outage.failed(fault.message)
            else:
                if outage is not None:
                    outage.worked()
                return log
            await self._equipment.clock.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    def performs(self, performer: ports.Performer) -> ports.Performer:
        """Return a performer that works without a lease of the run."""
        return _WithoutLease(self, performer)

    async def perform_without(self, performer: ports.Performer, call: ports.Call) -> Any:
        """Perform an attempt while other processes may write to the run."""
        # A step may take hours. If its worker held the lease that long, a cancel or an answer to a gate could not be
        # written to the run meanwhile. The fence refuses the result if another attempt has begun since.
        await self.give_back()
        self._performing = self._has_begun = True
        try:
            return await performer.perform(call)
        finally:
            self._performing = False

    def raise_failure(self) -> None:
        """Raise the reason why the step could not be executed, if there is one."""
        if self.failure is not None:
            raise self.failure
        if self.record is None:
            raise errors.StorageFault("the step ended without a line")


class _WithoutLease:
    def __init__(self, writer: LeasedWriter, performer: ports.Performer) -> None:
        self._writer = writer
        self._performer = performer

    async def perform(self, call: ports.Call) -> Any:
        return await self._writer.perform_without(self._performer, call)
