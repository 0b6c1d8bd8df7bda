"""Run placement: chooses the worker that performs the steps of a run whose workspace is on one machine."""

from __future__ import annotations

import dataclasses
import logging

from app import errors
from app.domain import decisions, runs, views
from app.engine import stores
from app.temporal import messages
from app.temporal.leases import Leases

_MOST_READ = 20

_log = logging.getLogger(__name__)


class RunPlacement:
    """Places runs on this worker, or on the worker of a related run."""

    def __init__(self, store: stores.RunStore, leases: Leases, placement: messages.Placement | None) -> None:
        """Args:
        placement: Placement of runs that begin on this worker; None if all workers share their workspaces.
        """
        self._store = store
        self._leases = leases
        self._here = placement

    @property
    def places(self) -> bool:
        """Return whether runs are placed on particular workers."""
        return self._here is not None

    def facts(self, decided: decisions.Decisions) -> dict[str, object]:
        """Return the placement for a workflow."""
        if self._here is None:
            return {}
        return {"placed": decided.placed, "gone_seconds": self._here.gone_seconds}

    async def place(self, run_id: str) -> str:
        """Return the worker of a run, which is recorded before any step is performed there."""
        return (await self._place(run_id)).worker

    @staticmethod
    def named(parking: messages.Parking | None, decided: decisions.Decisions) -> messages.Parking | None:
        """Return a parking whose message names the machine of the worker that is gone, if the journal does."""
        if parking is None or parking.reason != messages.WORKER_GONE or decided.placed_host is None:
            return parking
        # Its workflow, which wrote the message, has only ids.
        worker = f"the worker {decided.placed}"
        message = parking.message.replace(worker, f"{worker} on the machine {decided.placed_host}", 1)
        return dataclasses.replace(parking, message=message)

    async def _place(self, run_id: str) -> views.Placed:
        assert self._here is not None
        async with self._leases.of(run_id) as log:
            # Read under a lease, which ends here: the next calls read other runs.
            start, placed = log.loaded.start, views.Placed.of(log.loaded.decisions)
        if placed is not None:
            return placed
        # The runs that it starts, and later runs of its session, find its files where it wrote them.
        wanted = await self._place_of(start)
        if wanted is None or wanted.worker == self._here.worker:
            wanted = views.Placed(worker=self._here.worker, host=self._here.host)
        async with self._leases.of(run_id) as log:
            # Another worker may have placed the run first.
            if log.loaded.decisions.placed is None:
                await log.decide(decisions.DecisionKind.PLACED, wanted.to_json())
            return views.Placed.of(log.loaded.decisions) or wanted

    async def _place_of(self, start: runs.RunStart) -> views.Placed | None:
        if start.parent_run_id is not None:
            return await self._place(start.parent_run_id)
        if start.forked_from is not None:
            return await self._placed(start.forked_from)
        query = stores.RunQuery(session_id=start.session_id, limit=_MOST_READ)
        # A plan reads the files of its tasks.
        own = dataclasses.replace(query, internal=True)
        for row in (*await self._store.list_runs(query), *await self._store.list_runs(own)):
            if row.run_id != start.run_id and (found := await self._placed(row.run_id)):
                return found
        return None

    async def _placed(self, run_id: str) -> views.Placed | None:
        try:
            return views.Placed.of((await self._store.read(run_id)).decisions)
        except (errors.NotFound, errors.JournalCorrupt) as error:
            _log.warning("not known where the run was placed: %s", error.message, extra={"run_id": run_id})
            return None
