"""Orphans: cancels children of cancelled runs that an earlier process could not cancel."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from app import clock, errors
from app.domain import states
from app.engine import stores, superseding
from app.worker.loading import RELOAD_SECONDS

_log = logging.getLogger(__name__)


async def cancel_all(
    store: stores.RunStore,
    unfinished: Sequence[stores.RunSummary],
    timer: clock.Clock,
    cancel: Callable[[set[str]], Awaitable[None]],
) -> None:
    """Cancel the children of cancelled runs that an earlier process could not cancel."""
    parents = {summary.run_id for summary in unfinished} | {None}
    # An unfinished parent cancels its children itself.
    children = [summary for summary in unfinished if summary.parent_run_id not in parents]
    while children:
        # Children that cannot be read now are checked again later.
        children = [child for child in children if not await _is_looked_at(store, child, cancel)]
        if children:
            await timer.sleep(RELOAD_SECONDS)


async def doomed(store: stores.RunStore, children: Sequence[stores.RunSummary]) -> set[str]:
    """Return the runs whose parent was cancelled, or is about to be, and that were not resumed since."""
    parents: dict[str, str | None] = {}
    lost = set()
    for child in children:
        if (parent := child.parent_run_id) is not None:
            try:
                if parent not in parents:
                    parents[parent] = await _cancelled_at(store, parent)
                if (at := parents[parent]) is not None and await _ends_with(store, child, at):
                    lost.add(child.run_id)
            except (errors.ControlRoomError, errors.StorageFault) as error:
                _log.warning("not looked at: %s", error.message, extra={"run_id": child.run_id, "code": error.code})
    return lost


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
    return await _ends_with(store, child, parent.completed_at)


async def _cancelled_at(store: stores.RunStore, run_id: str) -> str | None:
    """Return when a run was cancelled or its cancellation was requested; None if neither happened."""
    parent = await store.summary(run_id)
    if states.RunState(parent.status).finished:
        return parent.completed_at if parent.status == states.RunState.CANCELLED else None
    return (await store.read(run_id)).decisions.cancel_requested_at


async def _ends_with(store: stores.RunStore, child: stores.RunSummary, cancelled_at: str) -> bool:
    return child.created_at <= cancelled_at and not await superseding.is_resumed_since(
        store, child.run_id, cancelled_at
    )
