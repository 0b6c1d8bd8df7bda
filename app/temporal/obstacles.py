"""Obstacles: what keeps a run from beginning, its workspace or its concurrency key, until its `taken` line is written.

A run that waits for its key holds no workspace, so that no two runs wait for each other.
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
LOOK_SECONDS = 30  # Time after which a run that waits for its workspace asks again, if no signal comes.
KEY_LOOK_SECONDS = 10  # The same for the first run in the line of a key.

# More of it for each run before it, so that a long line asks hardly more often than a short one.
_LOOK_SECONDS_EACH = 3

_PENDING = states.RunState.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What keeps a run from beginning."""

    reason: str  # `workspace_busy` or `concurrency`.
    holder: str  # Run that is in its way.
    look_seconds: int = LOOK_SECONDS  # Time after which it asks again by itself.


class Obstacles:
    """Let runs begin that nothing keeps from it."""

    def __init__(
        self, store: stores.RunStore, claims: Claims, commands: RunCommands, look: Callable[[str], Awaitable[None]]
    ) -> None:
        """Args:
        look: Lets the workflow of a run ask again.
        """
        self._store = store
        self._claims = claims
        self._commands = commands
        self._look = look
        self.lines = KeyQueues(store)
        """Reads who holds and who waits for a key."""
        self._turn = asyncio.Lock()

    async def workspace(self, run_id: str) -> Obstacle | None:
        """Cancel the earlier runs of a run's key as its policy asks, and hold its workspace; None if it does now."""
        await self._supersede(run_id)
        holder = await self._claims.claim(run_id)
        return None if holder is None else Obstacle(reason=WORKSPACE_BUSY, holder=holder)

    @asynccontextmanager
    async def key(self, loaded: stores.Loaded, found: Obstacle | None) -> AsyncIterator[Obstacle | None]:
        """Yield what keeps a run from beginning.

        If nothing does, it holds its key once its `taken` line is written in the block, during which no other process
        decides about a key.

        Args:
            found: What keeps it anyway.
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
        """Let others pass a run that waits."""
        if found.reason == concurrency_keys.CONCURRENCY:
            await self._claims.release(start)
        else:
            await self._wake(start)

    async def rested(self, start: runs.RunStart, state: states.RunState) -> None:
        """Let others begin once a run has ended or is paused."""
        if state.finished:
            await self._claims.release(start)
        if state.finished or state is states.RunState.PAUSED:
            await self._wake(start)

    async def standing(self, run_id: str) -> run_engine.Standing | None:
        """Return what keeps a pending run from beginning; None: nothing does, as far as it is known."""
        row = await self._store.summary(run_id)
        if row.exclusive_workspace and (holder := await self._claims.holder(run_id)) is not None:
            return run_engine.Standing(status=_PENDING, reason=WORKSPACE_BUSY, holder=holder)
        if row.concurrency_key is None or not _asks(await self._store.read(run_id)):
            return None
        found = await self._of_key(run_id, row.concurrency_key)
        return None if found is None else run_engine.Standing(status=_PENDING, reason=found.reason, holder=found.holder)

    @asynccontextmanager
    async def _deciding(self) -> AsyncIterator[None]:
        # Of a process only one waits for the others.
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
        seconds = KEY_LOOK_SECONDS + _LOOK_SECONDS_EACH * before
        return Obstacle(reason=concurrency_keys.CONCURRENCY, holder=holder, look_seconds=seconds)

    async def _wake(self, start: runs.RunStart) -> None:
        if start.concurrency is None:
            return
        # One that has just found an obstacle must be in the line by now.
        async with self._deciding():
            woken = (await self.lines.of(start.concurrency.key)).next()
        for run_id in woken:
            await self._look(run_id)

    async def _supersede(self, run_id: str) -> None:
        # The index alone, as most runs have no such key.
        row = await self._store.summary(run_id)
        if row.concurrency_key is None or not (row.concurrency_policy or "").startswith("cancel_"):
            return
        loaded = await self._store.read(run_id)
        # Given again until the run begins: the process that gave the orders before may have died between two of them.
        if loaded.decisions.taken or loaded.decisions.ended is not None:
            return
        running = row.concurrency_policy == "cancel_running"
        earlier = (await self.lines.of(row.concurrency_key, row)).superseded(row, running=running)
        for each in await superseding.cancelled_by(self._store, loaded.start, earlier, again=True):
            await self._commands.supersede(each, loaded.start, running=running)


def _asks(loaded: stores.Loaded) -> bool:
    decided = loaded.decisions
    rests = decided.ended is not None or decided.paused is not None or decided.cancel_requested_at is not None
    return not (rests or decided.taken_since_resume or loaded.missing is not None)
