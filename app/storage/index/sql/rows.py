"""Rows: the tables of the index as statements name them, and how a run's row becomes a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, bindparam, literal_column, select

from app.domain import runs, states
from app.engine import stores
from app.storage.index.index_port import IndexedRun
from app.storage.index.sql.sessions import ReadSession
from app.storage.index.sql.tables import IssueRow, ReceiptRow, RunLabelRow, RunRow

# Not as values: only where they stand in the statement itself can a database see that the partial index fits.
_FINISHED: tuple[ColumnElement[str], ...] = tuple(
    literal_column(f"'{state.value}'") for state in states.RunState if state.finished
)
_LONGEST_CHUNK = 500


def _table(model: Any) -> Table:
    table: Table = model.__table__
    return table


RUNS, LABELS, RECEIPTS, ISSUES = map(_table, (RunRow, RunLabelRow, ReceiptRow, IssueRow))
"""The tables."""

SUMMARY = tuple(name for name in stores.RunSummary.__slots__ if name not in ("labels", "unreadable"))
"""Columns that a summary shows, in its order."""

ROW = select(*(RUNS.c[name] for name in SUMMARY), RUNS.c.idempotency_key, RUNS.c.request_sha256)
"""A run's row: its summary, and what is not shown."""

UNFINISHED: ColumnElement[bool] = RUNS.c.status.not_in(_FINISHED)
"""Holds for the runs that have not ended."""

SHOWN: ColumnElement[bool] = RUNS.c.run_id.not_like(f"{runs.INTERNAL_PREFIX.replace('_', '/_')}%", escape="/")
"""Holds for the runs that lists and counts show."""

_LABELS_OF = select(LABELS.c.run_id, LABELS.c.name, LABELS.c.value).where(
    LABELS.c.run_id.in_(bindparam("of_runs", expanding=True))
)


def indexed(session: ReadSession, row: Any) -> IndexedRun:
    """Return a row whole."""
    summary = _summary(row, _labels(session, [row.run_id]))
    return IndexedRun(summary=summary, idempotency_key=row.idempotency_key, request_sha256=row.request_sha256)


def summaries(session: ReadSession, found: Sequence[Any]) -> list[stores.RunSummary]:
    """Return rows as lists show them."""
    labels: dict[str, dict[str, str]] = {}
    for begin in range(0, len(found), _LONGEST_CHUNK):
        labels |= _labels(session, [row.run_id for row in found[begin : begin + _LONGEST_CHUNK]])
    return [_summary(row, labels) for row in found]


def _labels(session: ReadSession, run_ids: list[str]) -> dict[str, dict[str, str]]:
    labels: dict[str, dict[str, str]] = {}
    for run_id, name, value in session.rows(_LABELS_OF, {"of_runs": run_ids}):
        labels.setdefault(run_id, {})[name] = value
    return labels


def _summary(row: Any, labels: Mapping[str, Mapping[str, str]]) -> stores.RunSummary:
    fields = dict(zip(SUMMARY, row, strict=False))
    return stores.RunSummary(**fields, labels=labels.get(row[0], {}))
