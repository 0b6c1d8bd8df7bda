"""The census: reads facts about runs from their folders, for the rows of the index."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from app import errors
from app.domain import decisions, gates, runs, states
from app.domain.authors import RunOrder
from app.domain.usage_sums import RunFacts, UsageTally, uncharged
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun
from app.storage.journal import chain
from app.storage.runs import adoption, authority, missing_lines

_log = logging.getLogger(__name__)

_TAIL_BYTES = 64 * 1024
_UNKNOWN_AT = "1970-01-01T00:00:00.000Z"


def row_of(files: Disk, run_id: str, data_directory_id: str) -> IndexedRun | None:
    """Return the row of a folder; None if it is not a run."""
    try:
        found = missing_lines.read(files, run_id)
    except errors.NotFound:
        return _by_hand(files, run_id)
    except errors.JournalCorrupt as error:
        _log.error("no run can be read from its folder: %s", error.message, extra={"run_id": run_id})
        return _unreadable(run_id, error.code)
    reserved = uncharged(found.decisions.reserved, found.records)
    facts = UsageTally(found.records, found.decisions.reserved).facts(found.decisions.first_taken_at, reserved.values())
    is_running = found.decisions.status is states.RunState.RUNNING and not found.damages
    made = row(found.run_id, found.start, found.decisions, data_directory_id, facts, damaged=bool(found.damages))
    if is_running and _says_waiting(files, run_id):
        made = dataclasses.replace(
            made, summary=dataclasses.replace(made.summary, status=states.RunState.WAITING.value)
        )
    return dataclasses.replace(made, orders=(*made.orders, *orders_of(found)))


def _says_waiting(files: Disk, run_id: str) -> bool:
    # The journals have no line about waiting. The row may be wrong, so the engine checks whether the run rests before
    # it continues.
    try:
        return adoption.status_of(adoption.read_manifest(files, run_id)) is states.RunState.WAITING
    except (errors.NotFound, errors.JournalCorrupt, errors.Unreadable):
        return False


def orders_of(found: authority.Authority) -> tuple[RunOrder, ...]:
    """Return the orders in a run's journals, except the one that started it."""
    # Commands that list runs read few folders, or none.
    from app.domain import run_orders

    control = (line.fields for line in found.control.lines)
    return tuple(run_orders.of_lines(found.run_id, found.start, control, found.records))


def last_known(files: Disk, run_id: str) -> IndexedRun:
    """Return the known facts of a run whose authority is unreadable now, from run.json if possible, without its key."""
    manifest: Mapping[str, Any] = {}
    with contextlib.suppress(errors.NotFound, errors.JournalCorrupt, errors.Unreadable):
        manifest = adoption.read_manifest(files, run_id)
    at = str(manifest.get("completed_at") or manifest.get("updated_at") or manifest.get("created_at") or _UNKNOWN_AT)
    status = adoption.status_of(manifest)
    return index_port.row_of(start_of(manifest, run_id), status, at, name=run_id, owner="service", keyed=False)


def may_have_ended(files: Disk, run_id: str) -> bool:
    """Return whether a run must be read as a whole to know that it is unfinished; only its last decision is read."""
    path = f"{layout.run_folder(run_id)}/{layout.CONTROL}"
    try:
        size = files.size(path)
        last = chain.last_fields(files.read(path, max(0, size - _TAIL_BYTES)))
    except (OSError, errors.Unreadable):
        return False
    # Labels may change after the ending, and results may come late.
    ending = (decisions.DecisionKind.ENDED, decisions.DecisionKind.LABELLED, decisions.DecisionKind.LATE)
    return last is None if size > _TAIL_BYTES else last is not None and last.get("kind") in ending


def row(
    run_id: str,
    start: runs.RunStart,
    decided: decisions.Decisions,
    data_directory_id: str,
    facts: RunFacts | None,
    *,
    damaged: bool = False,
) -> IndexedRun:
    """Return the row of a run, from its authority."""
    native = start.run_id == run_id and start.data_directory_id == data_directory_id
    taken_over = decided.overrides.get("data_directory_id") == data_directory_id
    status, error_code = decided.status, None
    error = decided.ended.error if decided.ended else decided.pause_error
    if damaged:
        status, error_code = states.RunState.FAILED, errors.JournalCorrupt.default_code
    elif error is not None:
        error_code = str(error.get("code"))
    owner = str(decided.overrides.get("owner") or start.owner)
    return index_port.row_of(
        start.overridden(decided.marks),
        status,
        decided.last_at or start.created_at,
        name=run_id,
        owner=owner if (native or taken_over) and owner in index_port.OWNERS else "foreign",
        error_code=error_code,
        reason=decided.paused
        if status is states.RunState.PAUSED
        else gates.end_reason(error, decided.ended.ending if decided.ended else None),
        facts=facts,
        # A step of an imported run must find the child that it started, and must not start another one.
        keyed=native or (start.run_id == run_id and runs.is_child(start)),
    )


def _by_hand(files: Disk, run_id: str) -> IndexedRun | None:
    try:
        manifest = adoption.read_manifest(files, run_id)
    except errors.NotFound:
        return None
    except errors.JournalCorrupt as error:
        return _unreadable(run_id, error.code)
    status = adoption.status_of(manifest)
    return index_port.row_of(
        start_of(manifest, run_id),
        status,
        str(manifest.get("completed_at") or manifest.get("updated_at") or manifest.get("created_at") or _UNKNOWN_AT),
        name=run_id,
        owner="service" if manifest.get("run_id") == run_id else "foreign",
    )


def start_of(manifest: Mapping[str, Any], run_id: str) -> runs.RunStart:
    """Return the facts about a run's start from its manifest."""
    task = manifest.get("task")
    labels = manifest.get("labels")
    return runs.RunStart(
        run_id=run_id,
        recipe_id=str(manifest.get("recipe_id") or ""),
        dialect=str(manifest.get("dialect") or "control_room"),
        driver_version=0,
        created_at=str(manifest.get("created_at") or _UNKNOWN_AT),
        recipe={},
        recipe_sha256="",
        description=str(task.get("description") or "") if isinstance(task, dict) else "",
        session_id=str(manifest.get("session_id") or ""),
        labels={str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {},
    )


def _unreadable(run_id: str, code: str) -> IndexedRun:
    start = start_of({}, run_id)
    return index_port.row_of(
        start, states.RunState.FAILED, start.created_at, name=run_id, owner="service", error_code=code
    )
