"""Obstacles: keep a run from beginning, by its workspace or its concurrency key, until its `taken` line is written.

A run that waits for its key holds no workspace, so no two runs wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.domain import runs, states
from app.engine import concurrency_keys, run_engine, stores, superseding
from app.temporal.claims import Claims
from app.temporal.key_queues import KeyQueues
from app.temporal.run_commands import RunCommands

WORKSPACE_BUSY = "workspace_busy"  # Reason of a run that waits for its workspace.
RETRY_SECONDS = 30  # Time after which a run that waits for its workspace asks again without a signal.
KEY_RETRY_SECONDS = 10  # The same for the first run in the queue of a key.

# Added for each run before it, so that a long queue polls hardly more often than a short one.
_RETRY_SECONDS_EACH = 3

_PENDING = states.RunState.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The reason why a run may not begin."""

    reason: str  # `workspace_busy` or `concurrency`.
    holder: str  # Run that holds the workspace or the key.
    retry_seconds: int = RETRY_SECONDS  # Seconds after which the run asks again by itself.


class Obstacles:
    """Lets runs begin once nothing keeps them from it."""

    def __init__(
        self, store: stores.RunStore, claims: Claims, commands: RunCommands, signal: Callable[[str], Awaitable[None]]
    ) -> None:
        """Args:
        signal: Lets the workflow of a run ask again.
        """
        self._store = store
        self._claims = claims
        self._commands = commands
        self._signal = signal
        self.lines = KeyQueues(store)
        """Reads the holders of a key and the runs that wait for it."""
        self._turn = asyncio.Lock()

    async def workspace(self, run_id: str) -> Obstacle | None:
        """Cancel the earlier runs of a run's key as its policy requires, and claim its workspace; None on success."""
        await self._supersede(run_id)
        holder = await self._claims.claim(run_id)
        return None if holder is None else Obstacle(reason=WORKSPACE_BUSY, holder=holder)

    @asynccontextmanager
    async def key(self, loaded: stores.Loaded, found: Obstacle | None) -> AsyncIterator[Obstacle | None]:
        """Yield the obstacle that keeps a run from beginning, or None.

        Without one, the run gets its key by its `taken` line, which is written in the block; meanwhile no other process
        decides about a key.

        Args:
            found: An obstacle that is already known.
        """
        start = loaded.start
        if found is not None or start.concurrency is None or not _asks(loaded):
            yield found
            return
        async with self._deciding():
            yield await self._of_key(start.run_id, start.concurrency.key)

    async def stand_aside(self, log: stores.RunLog, found: Obstacle, at: str) -> None:
        """Show why a run is pending."""
        run_id = log.loaded.start.run_id
        if (await self._store.summary(run_id)).reason != found.reason:
            await log.move(runs.Transition.stand_aside(run_id, at, found.reason))

    async def stood_aside(self, start: runs.RunStart, found: Obstacle) -> None:
        """Let other runs overtake a run that waits."""
        if found.reason == concurrency_keys.CONCURRENCY:
            await self._claims.release(start)
        else:
            await self._wake(start)

    async def rested(self, start: runs.RunStart, state: states.RunState) -> None:
        """Let other runs begin once a run has ended or is paused."""
        if state.finished:
            await self._claims.release(start)
        if state.finished or state is states.RunState.PAUSED:
            await self._wake(start)

    async def standing(self, run_id: str) -> run_engine.Standing | None:
        """Return the obstacle that keeps a pending run from beginning; None if none is known."""
        row = await self._store.summary(run_id)
        if row.exclusive_workspace and (holder := await self._claims.holder(run_id)) is not None:
            return run_engine.Standing(status=_PENDING, reason=WORKSPACE_BUSY, holder=holder)
        if row.concurrency_key is None or not _asks(await self._store.read(run_id)):
            return None
        found = await self._of_key(run_id, row.concurrency_key)
        return None if found is None else run_engine.Standing(status=_PENDING, reason=found.reason, holder=found.holder)

    @asynccontextmanager
    async def _deciding(self) -> AsyncIterator[None]:
        # In each process, only one caller waits for other processes.
        async with self._turn:
            lock = await self.lines.turns.turn() if self.lines.turns is not None else None
            try:
                yield
            finally:
                if lock is not None:
                    lock.release()

    async def _of_key(self, run_id: str, key: str) -> Obstacle | None:
        row = await self._store.summary(run_id)
        holder, before = (await self.lines.of(key, row)).obstacle(row)
        if holder is None:
            return None
        seconds = KEY_RETRY_SECONDS + _RETRY_SECONDS_EACH * before
        return Obstacle(reason=concurrency_keys.CONCURRENCY, holder=holder, retry_seconds=seconds)

    async def _wake(self, start: runs.RunStart) -> None:
        if start.concurrency is None:
            return
        # A run that has just found an obstacle must be in the queue by now.
        async with self._deciding():
            woken = (await self.lines.of(start.concurrency.key)).next()
        for run_id in woken:
            await self._signal(run_id)

    async def _supersede(self, run_id: str) -> None:
        # Only the index is read, as most runs have no such key.
        row = await self._store.summary(run_id)
        if row.concurrency_key is None or not (row.concurrency_policy or "").startswith("cancel_"):
            return
        loaded = await self._store.read(run_id)
        # The orders are repeated until the run begins: the process that gave them may have died between two of them.
        if loaded.decisions.taken or loaded.decisions.ended is not None:
            return
        running = row.concurrency_policy == "cancel_running"
        earlier = (await self.lines.of(row.concurrency_key, row)).superseded(row, running=running)
        for each in await superseding.cancelled_by(self._store, loaded.start, earlier, again=True):
            await self._commands.supersede(each, loaded.start, running=running)


def _asks(loaded: stores.Loaded) -> bool:
    decided = loaded.decisions
    return not (decided.is_halted or decided.taken_since_resume or loaded.missing is not None)
