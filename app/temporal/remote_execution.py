"""Remote execution: what the workers of all machines do with runs, asked of the server and of their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from temporalio.client import Client

from app.domain import operations, views
from app.engine import open_steps, run_engine, stores
from app.temporal import heartbeats, live_reports, worker_roster
from app.temporal.obstacles import Obstacles


class RemoteExecution:
    """Shows what workers do: `run_engine.RemoteExecution` over a Temporal server."""

    def __init__(
        self,
        *,
        client: Client,
        store: stores.RunStore,
        roster: worker_roster.WorkerRoster,
        live: live_reports.LiveReports,
        obstacles: Obstacles,
    ) -> None:
        self._client = client
        self._store = store
        self._roster = roster
        self._live = live
        self._obstacles = obstacles

    async def missing_capabilities(
        self, run_id: str, asked: Sequence[operations.Operation]
    ) -> Mapping[str, run_engine.Lack]:
        return await self._roster.lacks(asked, views.Placed.of((await self._store.read(run_id)).decisions))

    async def last_outputs(self, run_id: str) -> Mapping[str, str]:
        """Return, by step, when the open steps of a run last had output; steps without a known time are omitted."""
        return await heartbeats.outputs(self._client, run_id)

    async def performed_steps(self) -> Mapping[str, open_steps.PerformedStep]:
        return await self._live.known()

    async def standing(self, run_id: str) -> run_engine.Standing | None:
        return await self._obstacles.standing(run_id)
