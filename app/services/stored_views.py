"""Stored views: show runs that are not loaded here, from their journals or from their rows alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from app import errors
from app.domain import decisions, plain, runs, states, views
from app.domain import unreadable as unreadables
from app.engine import dry_replay, ports, run_engine, stores

_AT_REST = [state.value for state in states.RunState if state.finished or state is states.RunState.PAUSED]


async def read(
    store: stores.RunStore,
    engine: run_engine.RunEngine,
    drivers: Mapping[str, ports.Driver],
    run_id: str,
    dry_replays: dry_replay.DryReplays,
) -> views.RunView:
    """Return a run in the state that its journal shows.

    Args:
        dry_replays: Caches the drivers of growing runs.

    Raises:
        errors.JournalCorrupt: the journal is damaged.
    """
    loaded = await store.read(run_id)
    driver, read_blob = drivers.get(loaded.start.dialect), functools.partial(store.read_blob, run_id)
    view = await dry_replay.view_of(loaded, driver, read_blob, elsewhere=True, dry_replays=dry_replays)
    view = await _as_listed(store, run_id, view)
    # Of a run that a command has begun, or a copied one, no service performs steps.
    if engine.elsewhere and view.start.owner == "service" and not view.foreign:
        return await _pausing(store, run_id, view)
    # A run that waits for people does so whether a process has it or not; any other open step was only cut off.
    return view if view.status is states.RunState.WAITING else dataclasses.replace(view, open=())


def of_row(row: stores.RunSummary, error: errors.ControlRoomError | errors.Unreadable) -> views.RunView:
    """Return a run as its row shows it: damaged, unreadable now, or a folder that cannot be adopted now."""
    unreadable = unreadables.Unreadable.of(error.detail) if isinstance(error, errors.Unreadable) else None
    damaged = isinstance(error, errors.JournalCorrupt)
    start = runs.RunStart(
        run_id=row.run_id,
        recipe_id=row.recipe_id,
        dialect=row.dialect,
        driver_version=0,
        created_at=row.created_at,
        recipe={},
        recipe_sha256="",
        description=row.description,
        session_id=row.session_id,
        labels=row.labels,
        priority=row.priority,
        working_dir=row.working_dir,
        parent_run_id=row.parent_run_id,
    )
    return views.RunView(
        start=start,
        status=states.RunState.FAILED if damaged else states.RunState(row.status),
        reason=None if damaged or unreadable else error.code,
        error=_last_known(row) if unreadable else error.to_json(),
        updated_at=row.updated_at,
        started_at=row.started_at,
        completed_at=row.completed_at,
        unreadable=unreadable,
    )


async def _as_listed(store: stores.RunStore, run_id: str, view: views.RunView) -> views.RunView:
    # A fault parks a run without a journal line, so that another version, or the same one after the fault, continues
    # it. Only the process that did so had it in memory.
    # A copied folder is listed under its own name, which its start does not have.
    paused = states.RunState.PAUSED
    if view.status.finished:
        return view
    row = await store.summary(run_id)
    if row.owner == "foreign":
        view = dataclasses.replace(view, foreign=True)
    if view.status is paused or row.status != paused:
        return view
    manifest = (await store.read_snapshots(run_id)).get("run.json")
    kept = manifest if isinstance(manifest, dict) and manifest.get("status") == paused else {}
    reason, error = kept.get("reason"), kept.get("error")
    return dataclasses.replace(
        view,
        status=paused,
        reason=reason if isinstance(reason, str) else None,
        error=error if isinstance(error, dict) else None,
        open=[],
    )


async def _pausing(store: stores.RunStore, run_id: str, view: views.RunView) -> views.RunView:
    """Show a run with the order to pause as running until a worker has shown its pause."""
    if view.status is not states.RunState.PAUSED or not view.open:
        return view
    manifest = (await store.read_snapshots(run_id)).get("run.json")
    if isinstance(manifest, dict) and manifest.get("status") in _AT_REST:
        # An interrupted step leaves no line. A run that a repair has paused has ended before.
        return dataclasses.replace(view, open=())
    running = states.RunState.RUNNING
    return dataclasses.replace(view, status=running, reason=decisions.PAUSING, error=None, paused_at=None)


def _last_known(row: stores.RunSummary) -> dict[str, plain.Json] | None:
    # Lists show the code; the other facts about the error are in the folder.
    if row.error_code is None:
        return None
    message = "The run's folder contains the details, but cannot be read now."
    return errors.ControlRoomError(message, code=row.error_code).to_json()
