"""Progress: finished steps, and the step at work, of the runs in a list."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.domain import shapes, states, views
from app.engine import stores

if TYPE_CHECKING:
    from app.engine import open_steps, run_engine

KEPT_RUNS = 10_000  # Ended runs whose progress is kept in memory.


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStep(shapes.Shape):
    """A step that is being performed."""

    key: str  # Name of the step within its run.
    step_id: str  # Name of the step in the recipe.
    started_at: shapes.Instant  # Time at which the attempt began.
    output_at: shapes.Instant | None  # Time of its last output; None: no output yet, or not observable.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListed(stores.RunSummary):
    """A run in a list, with its progress."""

    current_step_index: int | None  # Number of finished steps; None if unknown.
    total_steps: int | None  # Steps of the recipe; None if its flow can loop.
    duration_ms: int | None  # Time from its start to its end, pauses included; None until it has ended.
    live_step: LiveStep | None
    """The step that is being performed, the newest of several; None if none is known."""


class ProgressReader:
    """Adds finished and total steps to rows: from memory while a run is loaded, otherwise from its manifest."""

    def __init__(self, store: stores.RunStore, engine: run_engine.RunEngine) -> None:
        self._store = store
        self._engine = engine
        self._ended: OrderedDict[tuple[str, str], stores.RunProgress] = OrderedDict()

    async def rows(self, found: Sequence[stores.RunSummary]) -> list[RunListed]:
        """Return runs in the form of lists, with `current_step_index` and `total_steps`."""
        known = {run.run_id: progress for run in found if (progress := self._known(run)) is not None}
        read = await self._store.read_progress([run.run_id for run in found if run.run_id not in known])
        for run in found:
            # An ended run does not change any more, so its file is read once.
            if run.run_id in read and states.RunState(run.status).finished:
                self._ended[run.run_id, run.updated_at] = read[run.run_id]
        while len(self._ended) > KEPT_RUNS:
            self._ended.popitem(last=False)
        performed = {} if (remote := self._engine.remote) is None else await remote.performed_steps()
        return [self._row(run, (known | read).get(run.run_id), performed.get(run.run_id)) for run in found]

    def _row(
        self, run: stores.RunSummary, progress: stores.RunProgress | None, performed: open_steps.PerformedStep | None
    ) -> RunListed:
        fields = {name: getattr(run, name) for name in run.__slots__}
        view = self._engine.view(run.run_id)
        if view is not None and (run.unreadable or _is_parked(run, view)):
            # Its row waits until all its files are written, which may take long, or until it is loaded.
            code = view.error.get("code") if view.error else None
            fields |= {"status": view.status.value, "updated_at": view.updated_at, "error_code": code}
            fields |= {"completed_at": view.completed_at}
        known = view or self._engine.standing(run.run_id)
        if known is not None and not states.RunState(fields["status"]).finished:
            fields |= {"reason": known.reason}
        if view is not None:
            fields |= {"usage": view.usage}
        done, total = (progress.finished_steps, progress.total_steps) if progress else (None, None)
        return RunListed(
            **fields,
            current_step_index=done,
            total_steps=total,
            duration_ms=views.duration_ms(run.started_at, fields["completed_at"]),
            live_step=_live_step(known.open) if known is not None else _live_elsewhere(run, performed),
        )

    def _known(self, run: stores.RunSummary) -> stores.RunProgress | None:
        view = self._engine.view(run.run_id)
        if view is None or view.replaying:
            return self._ended.get((run.run_id, run.updated_at))
        progress = view.board.progress
        return stores.RunProgress(finished_steps=progress.finished_steps, total_steps=progress.total_steps)


def _is_parked(run: stores.RunSummary, view: views.RunView) -> bool:
    """Return whether a fault parked a run without a line in its journal."""
    return view.status is states.RunState.PAUSED and not states.RunState(run.status).finished


def _live_elsewhere(run: stores.RunSummary, performed: open_steps.PerformedStep | None) -> LiveStep | None:
    # A report may be a moment older than the row.
    if performed is None or run.status != states.RunState.RUNNING:
        return None
    return LiveStep(
        key=performed.key,
        step_id=performed.step_id,
        started_at=performed.started_at,
        output_at=performed.output_at,
    )


def _live_step(open_steps: Sequence[views.OpenStep]) -> LiveStep | None:
    begun = [step for step in open_steps if step.started_at]
    if not begun:
        return None
    newest = max(begun, key=lambda step: step.started_at)
    return LiveStep(
        key=newest.key, step_id=newest.place.step_id, started_at=newest.started_at, output_at=newest.output_at
    )
