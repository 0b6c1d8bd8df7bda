"""Awaiting: which runs wait for the end of another one, by their journals."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from app import errors
from app.domain import decisions, states
from app.engine import dry_replay, ports, stores
from app.services import requests

_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)


async def parked_below(store: stores.RunStore, run_id: str) -> list[stores.RunSummary]:
    """Return the runs that a run has started, at any depth, which are paused at a limit or budget."""
    of_run = stores.RunQuery(parent_run_id=run_id, status=_UNFINISHED)
    below = [row async for row in stores.every_run(store, of_run) if row.parent_run_id == run_id]
    deeper = [each for row in below for each in await parked_below(store, row.run_id)]
    return deeper + [row for row in below if row.reason in decisions.LIMIT_REASONS]


async def above(store: stores.RunStore, drivers: Mapping[str, ports.Driver], run_id: str) -> list[str]:
    """Return the unfinished runs that wait for a run, directly or through others, the topmost first.

    A run that is paused, or of another data directory, ends the line: it is continued by an order of its own.
    """
    # Reading a journal that has lost lines would let an order continue without them unseen.
    if (await store.summary(run_id)).parent_run_id is None:
        return []
    found: list[str] = []
    below = (await store.read(run_id)).start
    while (parent := below.parent_run_id) is not None and parent not in found:
        try:
            row, loaded = await store.summary(parent), await store.read(parent)
        except (errors.ControlRoomError, errors.StorageFault):
            break
        driver = drivers.get(loaded.start.dialect)
        if driver is None or loaded.decisions.paused is not None or row.owner == "foreign":
            break
        asks = await dry_replay.open_asks(loaded, driver, functools.partial(store.read_blob, parent))
        again = functools.partial(requests.times_again, loaded.records, loaded.decisions.dead)
        if not any(requests.is_child_of(below, loaded.start, key, ask.operation, again) for key, ask in asks.items()):
            break
        found.append(parent)
        below = loaded.start
    return found[::-1]


async def cancelled_above(store: stores.RunStore, row: stores.RunSummary) -> str:
    """Return the topmost run that was cancelled with a run, whose resume also resumes those below it."""
    while row.parent_run_id is not None:
        try:
            above = await store.summary(row.parent_run_id)
        except errors.NotFound:
            break
        if above.status != states.RunState.CANCELLED:
            break
        row = above
    return row.run_id
