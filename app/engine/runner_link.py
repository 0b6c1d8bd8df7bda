"""The runner link: connects open steps to the runner of their run, so that they can outlive the runner that began them.

While a run is evicted, its link is detached: a step that has finished, or that writes a log, requests its run and
waits until a new runner attaches itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from app import errors
from app.domain.records import Record
from app.engine import ports
from app.engine.active_step import ActiveStep
from app.engine.storage_retry import StorageRetry
from app.engine.stores import RunLog


class StepOwner(Protocol):
    """The runner of a run, as its steps see it."""

    log: RunLog  # Log of the run's folder.
    storage_retry: StorageRetry  # Repeats failed writes to it.
    capacity: ports.Capacity  # The run's capacity in the pool.

    def began(self, step: ActiveStep) -> None:
        """Note that an attempt has begun."""

    def arrived(self, record: Record) -> None:
        """Accept a durable record."""

    def failed(self, step: ActiveStep, failure: BaseException) -> None:
        """Report that a step could not be executed."""


class RunnerLink:
    """Connects the steps of a run to the runner that has the run now, if one has."""

    __slots__ = ("_abandoned", "_call", "_failures", "_run_id", "_users", "_waiting", "owner", "wanted")

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._call: Callable[[str], None] | None = None
        self._failures: list[tuple[ActiveStep, BaseException]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._users = 0
        self._abandoned = False
        self.owner: StepOwner | None = None
        """The runner; None while the run is evicted. A step reads it before it awaits `attached`, to save a call."""
        self.wanted = False
        """Whether a step has requested its run since the run was evicted."""

    def attach(self, owner: StepOwner) -> None:
        """Let steps that wait for the run continue with this runner."""
        self.owner = owner
        self._call = None
        self.wanted = False
        self._wake()
        failures, self._failures = self._failures, []
        for step, failure in failures:
            owner.failed(step, failure)

    def detach(self, call: Callable[[str], None]) -> None:
        """Make steps that need the run wait from now on.

        Args:
            call: Called with the run's id when a step needs the run.
        """
        self.owner = None
        self._call = call

    def abandon(self) -> None:
        """End the waits of steps with an `InterruptionFault`, since no runner will attach itself."""
        self._abandoned = True
        self._wake()

    def end(self) -> None:
        """Release the runner, whose steps have all ended, so that its memory is freed without a garbage collection."""
        self.owner = None
        self.abandon()

    @property
    def is_quiet(self) -> bool:
        """Return whether no step uses the log on behalf of its performer."""
        return not self._users

    async def attached(self) -> StepOwner:
        """Wait until a runner has the run, and return the runner.

        Raises:
            errors.InterruptionFault: the run was abandoned.
        """
        # A loop is needed: the run may be evicted again before a step that was woken has its turn.
        while self.owner is None and not self._abandoned:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._ask()
            try:
                await waiter
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
        if self._abandoned or self.owner is None:
            raise errors.InterruptionFault
        return self.owner

    @asynccontextmanager
    async def use(self) -> AsyncIterator[StepOwner]:
        """Lend the log to a performer at work; the run is not evicted during the block.

        Raises:
            errors.InterruptionFault: the run was abandoned.
        """
        owner = await self.attached()
        self._users += 1
        try:
            yield owner
        finally:
            self._users -= 1

    async def append_log(self, name: str, text: str, anew: bool) -> bool:
        """Append to a log, or replace it; return False while the run is evicted, since a log alone does not load it."""
        if self.owner is None:
            return False
        async with self.use() as owner:
            await (owner.log.write_log if anew else owner.log.append_log)(name, text)
        return True

    def report(self, step: ActiveStep, failure: BaseException) -> None:
        """Report to the attached runner, or to the next one, that a step could not be executed."""
        if self._abandoned:
            return
        if self.owner is not None:
            self.owner.failed(step, failure)
        else:
            self._failures.append((step, failure))
            self._ask()

    def _wake(self) -> None:
        waiters, self._waiting = self._waiting, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _ask(self) -> None:
        self.wanted = True
        if self._call is not None:
            self._call(self._run_id)
