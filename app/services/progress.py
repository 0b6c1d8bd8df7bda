"""Progress of the runs of a list."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain import states
from app.engine import run_engine, stores

KEPT_RUNS = 10_000
"""Ended runs whose progress is kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListed(stores.RunSummary):
    """A run as lists show it, with its progress."""

    current_step_index: int | None
    """Number of finished steps; None if it cannot be read."""
    total_steps: int | None
    """Steps of the recipe; None if its flow can loop."""


class Progress:
    """Add finished and total steps to rows: from memory while a run is loaded, from its manifest while it rests."""

    def __init__(self, store: stores.RunStore, engine: run_engine.RunEngine) -> None:
        self._store = store
        self._engine = engine
        self._ended: OrderedDict[tuple[str, str], stores.Progress] = OrderedDict()

    async def rows(self, found: Sequence[stores.RunSummary]) -> list[RunListed]:
        """Return runs as lists show them, with `current_step_index` and `total_steps`."""
        known = {run.run_id: progress for run in found if (progress := self._known(run)) is not None}
        read = await self._store.read_progress([run.run_id for run in found if run.run_id not in known])
        for run in found:
            if run.run_id in read and states.RunState(run.status).finished:
                self._ended[run.run_id, run.updated_at] = read[run.run_id]
        while len(self._ended) > KEPT_RUNS:
            self._ended.popitem(last=False)
        return [self._row(run, (known | read).get(run.run_id)) for run in found]

    def _row(self, run: stores.RunSummary, progress: stores.Progress | None) -> RunListed:
        fields = {name: getattr(run, name) for name in run.__slots__}
        view = self._engine.view(run.run_id) if run.unreadable else None
        if view is not None:
            # Its row waits until everything is in its files, which may take long.
            code = view.error.get("code") if view.error else None
            fields |= {"status": view.status.value, "updated_at": view.updated_at, "error_code": code}
            fields |= {"completed_at": view.completed_at}
        done, total = (progress.finished_steps, progress.total_steps) if progress else (None, None)
        return RunListed(**fields, current_step_index=done, total_steps=total)

    def _known(self, run: stores.RunSummary) -> stores.Progress | None:
        view = self._engine.view(run.run_id)
        if view is None:
            return self._ended.get((run.run_id, run.updated_at))
        progress = view.board.progress
        return stores.Progress(finished_steps=progress.finished_steps, total_steps=progress.total_steps)
