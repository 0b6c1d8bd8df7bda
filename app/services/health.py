"""Health: whether the service accepts and executes new runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app import errors
from app.domain import shapes, states
from app.engine import run_engine, stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness(shapes.Shape):
    """New runs are accepted."""

    status: Literal["ready"]  # `ready`.
    running: int  # Runs that occupy capacity of the pool.
    queued: int  # Runs that wait for capacity.
    resting: int  # Runs that wait for another event, and parked runs.
    limit: int  # Capacity of the pool: runs that can execute at the same time.
    temporal_away_since: shapes.Instant | None = shapes.omitted()
    """Since when the Temporal server has not answered; absent while it does. Runs are accepted, and start later."""


class Health:
    """Checks the store and the engine.

    Args:
        working: Raises if the worker of plans has failed, or if a shared folder cannot be read.
    """

    def __init__(
        self, *, store: stores.RunStore, engine: run_engine.RunEngine, working: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._engine = engine
        self._working = working

    async def ready(self) -> Readiness:
        """Return the load of a ready service.

        Raises:
            errors.Unavailable: the service is stopping, cannot write, or the worker of plans has failed.
            errors.Unreadable: a folder that all runs share cannot be read now.
        """
        status = self.busy()
        if status.stopping:
            raise errors.Unavailable("the service is stopping", code="stopping")
        # A test write shows whether other programs have filled the disk.
        if (fault := await self._store.write_fault()) is not None:
            code = fault.code if isinstance(fault, errors.DatabaseAway) else "disk_failing"
            raise errors.Unavailable(f"new runs are refused: {fault.message}", code=code)
        self._working()
        return Readiness(
            status="ready",
            running=status.running,
            queued=status.queued,
            resting=status.idle,
            limit=status.limit,
            temporal_away_since=status.server_away_since,
        )

    def busy(self) -> run_engine.EngineStatus:
        """Return the load of the engine."""
        return self._engine.status()

    async def up(self) -> dict[str, bool]:
        """Return whether the store accepts writes, and whether the Temporal server answers, if it hands out steps."""
        found = {"store": await self._store.write_fault() is None}
        return found | {"temporal": self.busy().server_away_since is None} if self._engine.elsewhere else found

    async def census(self) -> dict[str, int]:
        """Return the number of runs in each state; of none while the index is away."""
        try:
            counted = await self._store.count_by_status()
        except errors.StorageFault:
            return {}
        return {state.value: counted.get(state.value, 0) for state in states.RunState}
