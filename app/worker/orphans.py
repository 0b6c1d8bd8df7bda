"""Orphans: children of cancelled runs that an earlier process could not cancel."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from app import clock, errors
from app.domain import states
from app.engine import stores
from app.worker.loading import RELOAD_SECONDS

_log = logging.getLogger(__name__)


async def cancel_all(
    store: stores.RunStore,
    found: Sequence[stores.RunSummary],
    timer: clock.Clock,
    cancel: Callable[[set[str]], Awaitable[None]],
) -> None:
    """Cancel the children of cancelled runs that an earlier process could not cancel."""
    parents = {summary.run_id for summary in found} | {None}
    children = [summary for summary in found if summary.parent_run_id not in parents]
    while children:
        children = [child for child in children if not await _is_looked_at(store, child, cancel)]
        if children:
            await timer.sleep(RELOAD_SECONDS)


async def is_resumed_since(store: stores.RunStore, run_id: str, instant: str) -> bool:
    """Return whether a person resumed a run later, and so overruled what had cancelled it."""
    resumed_at = (await store.read(run_id)).decisions.resumed_at
    return resumed_at is not None and resumed_at > instant


async def _is_looked_at(
    store: stores.RunStore, child: stores.RunSummary, cancel: Callable[[set[str]], Awaitable[None]]
) -> bool:
    try:
        if await _is_orphan(store, child):
            await cancel({child.run_id})
    except errors.Unreadable:
        return False
    except (errors.ControlRoomError, errors.StorageFault) as error:
        _log.warning("not looked at: %s", error.message, extra={"run_id": child.run_id, "code": error.code})
    return True


async def _is_orphan(store: stores.RunStore, child: stores.RunSummary) -> bool:
    assert child.parent_run_id is not None
    parent = await store.summary(child.parent_run_id)
    if parent.status != states.RunState.CANCELLED or parent.completed_at is None:
        return False
    begun_before = child.created_at <= parent.completed_at
    return begun_before and not await is_resumed_since(store, child.run_id, parent.completed_at)
