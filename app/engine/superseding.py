"""Superseding: decides which earlier runs of a concurrency key a newer one cancels."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from app import errors
from app.domain import access, runs
from app.engine import stores

_log = logging.getLogger(__name__)


async def cancelled_by(
    store: stores.RunStore, newer: runs.RunStart, earlier: Iterable[str], *, again: bool = False
) -> list[str]:
    """Return the earlier runs that a newer one cancels, sorted.

    Args:
        again: Whether another process may have cancelled them before; those that a person resumed since are omitted.

    Raises:
        errors.StorageFault: a run cannot be read now.
    """
    scope = None if newer.concurrency is None else newer.concurrency.within
    chosen = []
    for run_id in sorted(earlier):
        try:
            if await _is_covered(store, run_id, scope) and not (
                again and await is_resumed_since(store, run_id, newer.created_at)
            ):
                chosen.append(run_id)
        except errors.ControlRoomError as error:
            _log.warning("not superseded: %s", error.message, extra={"run_id": run_id, "code": error.code})
    return chosen


def newer_one(newer: runs.RunStart) -> runs.Superseded:
    """Return the reference to a newer run that the runs cancelled by it record."""
    return runs.Superseded(run_id=newer.run_id, key=newer.concurrency.key if newer.concurrency is not None else "")


async def is_resumed_since(store: stores.RunStore, run_id: str, instant: str) -> bool:
    """Return whether a person resumed a run after an instant, and so overruled its cancellation."""
    resumed_at = (await store.read(run_id)).decisions.resumed_at
    return resumed_at is not None and resumed_at > instant


async def _is_covered(store: stores.RunStore, run_id: str, scope: access.Scope | None) -> bool:
    # A start must not cancel a run that its caller could not cancel by an order. The caller's scope was compared before
    # the run was created; a run that came or was resumed since, or whose labels changed, is compared here.
    if scope is None:
        return True
    row = await store.summary(run_id)
    return scope.covers(row.recipe_id, row.labels)
