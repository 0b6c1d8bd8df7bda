"""Start obstacles: the unfinished runs because of which a start would be refused, or for which its run would wait."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass

from app import errors
from app.domain import access, runs, states
from app.engine import stores
from app.services.requests import StartRequest

_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """What other runs are to a start, as far as it is known before it."""

    refusals: tuple[errors.Flaw, ...] = ()  # Why the start would be refused now.
    waits: tuple[errors.Flaw, ...] = ()  # For what its run would wait now.


async def of(
    store: stores.RunStore, request: StartRequest, start: runs.RunStart, scope: access.Scope | None, *, can_wait: bool
) -> Obstacles:
    """Return the obstacles of a start.

    Args:
        scope: Runs that the caller may see; None: all.
        can_wait: Whether the run could wait for other runs; otherwise its start is refused instead.

    Raises:
        errors.StorageFault: the runs cannot be read now.
    """
    if request.idempotency_key and await store.find_repeated(request.idempotency_key, request.sha256()):
        return Obstacles()
    above = await stores.ancestors(store, start.parent_run_id)
    refusals: list[errors.Flaw] = []
    if request.exclusive and (busy := await _others(store, stores.RunQuery(recipe_id=start.recipe_id))):
        message = f"{_name(busy[0], scope)} of {start.recipe_id} is not finished"
        refusals.append(errors.Flaw(path="$.exclusive", code="recipe_busy", message=message))
    waits = await _of_workspace(store, start, above, scope)
    found = await _of_key(store, start, above, scope, can_wait=can_wait)
    waits += [flaw for flaw in found if flaw.code == "concurrency"]
    refusals += [flaw for flaw in found if flaw.code != "concurrency"]
    if not can_wait:
        return Obstacles(refusals=(*refusals, *waits))
    return Obstacles(refusals=tuple(refusals), waits=tuple(waits))


async def _of_workspace(
    store: stores.RunStore, start: runs.RunStart, above: frozenset[str], scope: access.Scope | None
) -> list[errors.Flaw]:
    if not start.exclusive_workspace:
        return []
    folder = _folder(start.working_dir)
    found = [
        row
        for row in _ahead(await _others(store, stores.RunQuery()), start, above)
        # A run that a process has left keeps no workspace.
        if row.owner == "service" and row.exclusive_workspace and _folder(row.working_dir) == folder
    ]
    if not found:
        return []
    message = f"the workspace is held by {_name(found[0], scope)} until it ends"
    return [errors.Flaw(path="$.working_dir", code="workspace_busy", message=message)]


async def _of_key(
    store: stores.RunStore,
    start: runs.RunStart,
    above: frozenset[str],
    scope: access.Scope | None,
    *,
    can_wait: bool,
) -> list[errors.Flaw]:
    wanted = start.concurrency
    if wanted is None or (can_wait and wanted.policy == "cancel_running"):
        return []
    rows = await _others(store, stores.RunQuery(concurrency_key=wanted.key))
    is_refused = wanted.policy == "reject" or not can_wait
    if is_refused:
        busy = [row for row in rows if row.run_id != start.parent_run_id]
    else:
        busy = _ahead(rows, start, above)
        # Those that have not begun are cancelled.
        busy = [row for row in busy if wanted.policy != "cancel_waiting" or row.status != states.RunState.PENDING.value]
    if len(busy) < wanted.limit:
        return []
    message = f"the concurrency key {wanted.key!r} is held by {_name(busy[0], scope)}; its limit is {wanted.limit}"
    code = "concurrency_limit" if is_refused else "concurrency"
    return [errors.Flaw(path="$.concurrency", code=code, message=message)]


async def _others(store: stores.RunStore, query: stores.RunQuery) -> list[stores.RunSummary]:
    """Return unfinished runs, oldest first, without those that other programs execute."""
    wanted = dataclasses.replace(query, status=_UNFINISHED)
    return [row async for row in stores.every_run(store, wanted) if row.owner != "foreign"][::-1]


def _ahead(rows: Sequence[stores.RunSummary], start: runs.RunStart, above: frozenset[str]) -> list[stores.RunSummary]:
    """Return the runs that have begun, or begin before a new one, without those above it."""
    pending = states.RunState.PENDING.value
    # Begun ones first, since these are the ones to wait for.
    ahead = [
        row for row in rows if row.run_id not in above and (row.status != pending or row.priority >= start.priority)
    ]
    return sorted(ahead, key=lambda row: row.status == pending)


def _folder(working_dir: str) -> str:
    return os.path.normpath(working_dir)


def _name(row: stores.RunSummary, scope: access.Scope | None) -> str:
    is_shown = scope is None or scope.covers(row.recipe_id, row.labels)
    return f"run {row.run_id}" if is_shown else "a run outside of your scope"
