"""Queries of the index. None of them commits."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    Update,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from app.domain import runs, states
from app.engine import stores
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.sql import receipts
from app.storage.index.sql.rows import ISSUES, LABELS, RECEIPTS, ROW, RUNS, SHOWN, SUMMARY, UNFINISHED, indexed
from app.storage.index.sql.sessions import ReadSession, WriteSession

TABLES = (LABELS, RUNS, RECEIPTS, ISSUES)
"""All tables, those that refer to others first."""

_LONGEST_CHUNK = 500

# Statements on the path of every run are built once: building one costs more than executing it.
_REMOVE_LABELS = delete(LABELS).where(LABELS.c.run_id == bindparam("of_run"))
_REMOVE_RUN = delete(RUNS).where(RUNS.c.run_id == bindparam("of_run"))
_ADD_RUN, _ADD_LABELS = insert(RUNS), insert(LABELS)


def put_run(session: WriteSession, run: IndexedRun) -> None:
    """Write a run's row, in place of one of the same id."""
    remove_run(session, run.summary.run_id)
    _insert_runs(session, [run])


def apply(
    session: WriteSession, rows: Sequence[IndexedRun], moves: Sequence[runs.Transition], places: list[ReceiptPlace]
) -> None:
    """Write rows in place of those of the same ids, make moves, and note new receipts; fails as a whole if a key is
    known.

    Many rows share a statement, and moves from the same states do.
    """
    for chunk in _chunks(rows):
        for run_id in _present(session, RUNS.c.run_id, (run.summary.run_id for run in chunk)):
            remove_run(session, run_id)
        _insert_runs(session, chunk)
    # A run's second move comes after every run's first, so that its own stay in order.
    grouped: dict[tuple[int, frozenset[states.RunState]], list[dict[str, Any]]] = {}
    seen: Counter[str] = Counter()
    for transition in moves:
        seen[transition.run_id] += 1
        grouped.setdefault((seen[transition.run_id], transition.since), []).append(_moving(transition))
    for (_, since), values in sorted(grouped.items(), key=lambda group: group[0][0]):
        session.execute(_move_from(since), values)
    if places:
        receipts.add_receipts(session, places)


def add_missing(session: WriteSession, found: Iterable[IndexedRun]) -> None:
    """Write the rows of runs that have none; a key that is taken already stays with its first run."""
    for chunk in _chunks(list(found)):
        known = _present(session, RUNS.c.run_id, [run.summary.run_id for run in chunk])
        taken = _present(session, RUNS.c.idempotency_key, [run.idempotency_key for run in chunk])
        fresh = []
        for run in chunk:
            if run.summary.run_id not in known:
                fresh.append(IndexedRun(summary=run.summary) if run.idempotency_key in taken else run)
                known.add(run.summary.run_id)
                taken |= {run.idempotency_key} - {None}
        _insert_runs(session, fresh)


def remove_run(session: WriteSession, run_id: str) -> None:
    """Remove a run's row with its labels."""
    session.execute(_REMOVE_LABELS, {"of_run": run_id})
    session.execute(_REMOVE_RUN, {"of_run": run_id})


def move(session: WriteSession, transition: runs.Transition) -> bool:
    """Apply a move where the run is in an expected state.

    One guarded statement: whoever comes second finds nothing to change, without reading first.
    """
    return session.execute(_move_from(transition.since), _moving(transition)) == 1


def set_owner(session: WriteSession, run_id: str, owner: str) -> None:
    """Note who continues a run."""
    session.execute(update(RUNS).where(RUNS.c.run_id == run_id).values(owner=owner))


def get_run(session: ReadSession, run_id: str) -> IndexedRun | None:
    """Return a run's row."""
    return _one(session, ROW.where(RUNS.c.run_id == run_id))


def find_key(session: ReadSession, idempotency_key: str) -> IndexedRun | None:
    """Return the run made under a key; the column is unique, so there is at most one."""
    return _one(session, ROW.where(RUNS.c.idempotency_key == idempotency_key))


def find_busy(session: ReadSession, recipe_id: str) -> str | None:
    """Return the oldest unfinished run of a recipe.

    The recipe is compared as an expression, so that the index of the unfinished leads: few runs are in it, while that
    of the recipe holds all that ever ended.
    """
    row = session.row(
        select(RUNS.c.run_id)
        .where(func.coalesce(RUNS.c.recipe_id, "") == recipe_id, UNFINISHED, RUNS.c.owner != "foreign")
        .order_by(RUNS.c.created_at, RUNS.c.run_id)
        .limit(1)
    )
    return None if row is None else str(row.run_id)


def run_ids(session: ReadSession) -> set[str]:
    """Return the ids of all rows; at start they are compared with the names of the folders."""
    return {row.run_id for row in session.rows(select(RUNS.c.run_id))}


def count_by_status(session: ReadSession) -> dict[str, int]:
    """Return how many runs are in each state."""
    rows = session.rows(select(RUNS.c.status, func.count()).where(SHOWN).group_by(RUNS.c.status))
    return {row[0]: row[1] for row in rows}


def clear(session: WriteSession) -> None:
    """Remove every row."""
    for table in TABLES:
        session.execute(delete(table))


@functools.cache
def _move_from(since: frozenset[states.RunState]) -> Update:
    expected: list[ColumnElement[str]] = [literal_column(f"'{state.value}'") for state in sorted(since)]
    names = ("status", "updated_at", "completed_at", "error_code")
    return (
        update(RUNS)
        .where(RUNS.c.run_id == bindparam("of_run"), RUNS.c.status.in_(expected))
        .values({name: bindparam(f"to_{name}") for name in names})
    )


def _moving(transition: runs.Transition) -> dict[str, Any]:
    at = index_port.instant(transition.at)
    return {
        "of_run": transition.run_id,
        "to_status": transition.to.value,
        "to_updated_at": at,
        "to_completed_at": at if transition.to.finished else None,
        "to_error_code": transition.error_code,
    }


def _insert_runs(session: WriteSession, fresh: Sequence[IndexedRun]) -> None:
    if fresh:
        session.execute(_ADD_RUN, [_values(run) for run in fresh])
    labels = [label for run in fresh for label in _label_values(run.summary)]
    if labels:
        session.execute(_ADD_LABELS, labels)


def _values(run: IndexedRun) -> dict[str, Any]:
    values = {name: getattr(run.summary, name) for name in SUMMARY}
    return values | {"idempotency_key": run.idempotency_key, "request_sha256": run.request_sha256}


def _label_values(run: stores.RunSummary) -> Iterator[dict[str, Any]]:
    for name, value in run.labels.items():
        yield {"run_id": run.run_id, "name": name, "value": value, "created_at": run.created_at}


def _present(session: ReadSession, column: Column[Any], values: Iterable[str | None]) -> set[Any]:
    wanted = [value for value in values if value is not None]
    return {row[0] for row in session.rows(select(column).where(column.in_(wanted)))} if wanted else set()


def _chunks(runs: Sequence[IndexedRun]) -> Iterator[Sequence[IndexedRun]]:
    return (runs[begin : begin + _LONGEST_CHUNK] for begin in range(0, len(runs), _LONGEST_CHUNK))


def _one(session: ReadSession, statement: Select[Any]) -> IndexedRun | None:
    row = session.row(statement)
    return None if row is None else indexed(session, row)
