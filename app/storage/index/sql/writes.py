"""Writing to the index: plain SQL that SQLite and Postgres both read. None of these statements commits."""

# Not built of the tables' classes: importing those, and what builds statements, takes a tenth of a service's start.

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from app.domain import issues, runs, states
from app.storage.index import index_port, reads, rows
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.sql.sessions import WriteSession

_CHUNK = 500


def _insert(table: str, columns: Sequence[str]) -> str:
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 - names of this module


TABLES = ("run_labels", "runs", "receipts", "issues")
"""All tables, those that refer to others first."""

_REMOVE_LABELS = "DELETE FROM run_labels WHERE run_id = :of_run"
_REMOVE_RUN = "DELETE FROM runs WHERE run_id = :of_run"
_REMOVE_RECEIPT = "DELETE FROM receipts WHERE receipt_id = :of_receipt"
_REMOVE_ISSUE = "DELETE FROM issues WHERE issue_id = :of_issue"
_SET_OWNER = "UPDATE runs SET owner = :owner WHERE run_id = :of_run"
_MARK_ISSUE = "UPDATE issues SET marked = :marked WHERE issue_id = :of_issue"
_ADD_RUN = _insert("runs", rows.RUN)
_ADD_LABELS = _insert("run_labels", rows.LABEL)
_ADD_RECEIPT = _insert("receipts", rows.RECEIPT)
_ADD_ISSUE = _insert("issues", (*rows.ISSUE, "marked"))


def put_run(session: WriteSession, run: IndexedRun) -> None:
    """Write a run's row, in place of one of the same id."""
    remove_run(session, run.summary.run_id)
    _insert_runs(session, [run])


def apply(
    session: WriteSession, given: Sequence[IndexedRun], moves: Sequence[runs.Transition], places: list[ReceiptPlace]
) -> None:
    """Write rows in place of those of the same ids, make moves, and note new receipts; fails as a whole if a key is
    known.

    Many rows share a statement, and moves from the same states do.
    """
    for chunk in _chunks(given):
        for run_id in reads.present(session, "runs", "run_id", (run.summary.run_id for run in chunk)):
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
        add_receipts(session, places)


def add_missing(session: WriteSession, found: Iterable[IndexedRun]) -> None:
    """Write the rows of runs that have none; a key that is taken already stays with its first run."""
    for chunk in _chunks(list(found)):
        known = reads.present(session, "runs", "run_id", [run.summary.run_id for run in chunk])
        taken = reads.present(session, "runs", "idempotency_key", [run.idempotency_key for run in chunk])
        fresh = []
        for run in chunk:
            if run.summary.run_id not in known:
                fresh.append(IndexedRun(summary=run.summary) if run.idempotency_key in taken else run)
                known.add(run.summary.run_id)
                taken |= set() if run.idempotency_key is None else {run.idempotency_key}
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
    session.execute(_SET_OWNER, {"of_run": run_id, "owner": owner})


def add_receipts(session: WriteSession, places: list[ReceiptPlace]) -> None:
    """Note where new receipts are stored; fails as a whole if one is known."""
    session.execute(_ADD_RECEIPT, [rows.receipt_values(place) for place in places])


def replace_receipts(session: WriteSession, places: list[ReceiptPlace]) -> None:
    """Note where receipts are stored, known ones among them."""
    session.execute(_REMOVE_RECEIPT, [{"of_receipt": place.receipt_id} for place in places])
    add_receipts(session, places)


def put_issues(session: WriteSession, found: Iterable[issues.IssueSummary], doubtful: bool) -> None:
    """Write rows in place of those of the same ids; none of them is marked any more."""
    fresh = {summary.issue_id: rows.issue_values(summary) for summary in found}
    if doubtful:
        for issue_id in reads.sound_issues(session, fresh):
            del fresh[issue_id]
    if fresh:
        session.execute(_REMOVE_ISSUE, [{"of_issue": issue_id} for issue_id in fresh])
        session.execute(_ADD_ISSUE, list(fresh.values()))


def mark_issue(session: WriteSession, issue_id: str) -> None:
    """Note that an issue's file is about to change."""
    session.execute(_MARK_ISSUE, {"of_issue": issue_id, "marked": True})


def remove_issues(session: WriteSession, issue_ids: Iterable[str]) -> None:
    """Remove rows of issues."""
    gone = [{"of_issue": issue_id} for issue_id in issue_ids]
    if gone:
        session.execute(_REMOVE_ISSUE, gone)


def clear(session: WriteSession) -> None:
    """Remove every row."""
    for table in TABLES:
        session.execute(f"DELETE FROM {table}")  # noqa: S608 - names of this module


@functools.cache
def _move_from(since: frozenset[states.RunState]) -> str:
    # As literals, as readers have them: few sets of states occur, so there are few statements.
    expected = ", ".join(f"'{state.value}'" for state in sorted(since)) or "''"
    columns = ", ".join(f"{name} = :to_{name}" for name in ("status", "updated_at", "completed_at", "error_code"))
    return f"UPDATE runs SET {columns} WHERE run_id = :of_run AND status IN ({expected})"  # noqa: S608 - names of states


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
        session.execute(_ADD_RUN, [rows.run_values(run) for run in fresh])
    labels = [label for run in fresh for label in rows.label_values(run.summary)]
    if labels:
        session.execute(_ADD_LABELS, labels)


def _chunks(given: Sequence[IndexedRun]) -> Iterator[Sequence[IndexedRun]]:
    return (given[begin : begin + _CHUNK] for begin in range(0, len(given), _CHUNK))
