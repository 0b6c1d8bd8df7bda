"""
Health: whether the service can take and execute new runs.
"""

from __future__ import annotations

from app import errors
from app.engine import plain, pool_port, states, stores


class Health:
    """
    Look at the store and the engine.
    """

    def __init__(self, *, store: stores.RunStore, engine: pool_port.RunEngine) -> None:
        self._store = store
        self._engine = engine

    async def ready(self) -> dict[str, plain.Json]:
        """
        Return how busy the service is.

        Raises:
            errors.Unavailable: it is stopping, or its disk is full or failing.
        """
        status = self.busy()
        if status.stopping:
            raise errors.Unavailable("the service is stopping", code="stopping")
        if not await self._store.has_room():
            raise errors.Unavailable("new runs are refused: the disk is full or failing", code="disk_failing")
        return {
            "status": "ready",
            "running": status.running,
            "queued": status.queued,
            "resting": status.resting,
            "limit": status.limit,
        }

    def busy(self) -> pool_port.EngineStatus:
        """
        Return how busy the engine is.
        """
        return self._engine.status()

    async def census(self) -> dict[str, int]:
        """
        Return how many runs are in each state.
        """
        counted = await self._store.count_by_status()
        return {state.value: counted.get(state.value, 0) for state in states.RunState}
