"""Stored views: runs that are not loaded here, shown from their journals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from app.domain import states, views
from app.engine import dry_replay, ports, run_engine, stores


async def read(
    store: stores.RunStore, engine: run_engine.RunEngine, dialects: Mapping[str, ports.Driver], run_id: str
) -> views.RunView:
    """Return a run as its journal shows it.

    Raises:
        errors.JournalCorrupt: it is damaged.
    """
    loaded = await store.read(run_id)
    dialect, read_blob = dialects.get(loaded.start.dialect), functools.partial(store.read_blob, run_id)
    view = await dry_replay.review(loaded, dialect, read_blob, elsewhere=engine.elsewhere)
    return await _parked(store, view) if engine.elsewhere else view


async def _parked(store: stores.RunStore, view: views.RunView) -> views.RunView:
    # A fault of the driver parks a run without a journal line, so that another version continues it. Only the process
    # that did so had it in memory.
    run_id, paused = view.start.run_id, states.RunState.PAUSED
    if view.status.finished or view.status is paused or (await store.summary(run_id)).status != paused:
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
