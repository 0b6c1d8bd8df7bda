"""Writing to the index: plain SQL that both SQLite and Postgres execute. None of these functions commits."""

# Not built from the table classes: importing these and SQLAlchemy's statement builder takes a tenth of a service's
# start.

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.domain import issues, runs, states
from app.domain.authors import RunOrder
from app.domain.records import Usage
from app.domain.usage_sums import UsageSum
from app.engine import stores
from app.storage.index import index_port, reads, rows
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.sql.database import WriteSession

_CHUNK = 500


def insert(table: str, columns: Sequence[str]) -> str:
    """Return a statement that inserts a row."""
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 - names of this module


TABLES = ("run_labels", "run_usage", "run_orders", "runs", "receipts", "issues")
"""All tables; those that refer to others come first."""

_REMOVE_LABELS = "DELETE FROM run_labels WHERE run_id = :of_run"
_REMOVE_RUN = "DELETE FROM runs WHERE run_id = :of_run"
_REMOVE_SUMS = "DELETE FROM run_usage WHERE run_id = :of_run"
_REMOVE_ORDERS = "DELETE FROM run_orders WHERE run_id = :of_run"
_REMOVE_ORDER = "DELETE FROM run_orders WHERE run_id = :of_run AND file = :of_file AND line = :of_line"
_REMOVE_RECEIPT = "DELETE FROM receipts WHERE receipt_id = :of_receipt"
_SET_OWNER = "UPDATE runs SET owner = :owner WHERE run_id = :of_run"
_ADD_RUN = insert("runs", rows.WRITTEN)
_ADD_SUM = insert("run_usage", ("run_id", *rows.SUM))
_ADD_LABELS = insert("run_labels", rows.LABEL)
_ADD_ORDER = insert("run_orders", (*rows.ORDER, "author_name"))
_ADD_RECEIPT = insert("receipts", rows.RECEIPT)
_MOVED = ("status", "updated_at", "completed_at", "error_code", "reason")
_COUNTED = ("started_at", *rows.USAGE)
_UNCOUNTED = "NOT counted AND started_at IS NULL"
_DOUBT = "UPDATE runs SET counted = :counted WHERE run_id = :of_run"
_SET_COUNTED = ", ".join(f"{name} = :to_{name}" for name in ("reason", *_COUNTED))
_COUNT = f"UPDATE runs SET {_SET_COUNTED} WHERE run_id = :of_run"  # noqa: S608 - names of this module
_COUNT_AS_READ = (
    "UPDATE runs SET search = :search, pinned = :pinned, counted = :counted WHERE run_id = :of_run AND NOT counted"
)


def put_run(session: WriteSession, run: IndexedRun) -> None:
    """Write a run's row, replacing an existing one."""
    _remove_row(session, run.summary.run_id)
    _insert_runs(session, [run])


def apply(
    session: WriteSession, given: Sequence[IndexedRun], moves: Sequence[runs.Transition], places: list[ReceiptPlace]
) -> None:
    """Write rows, make moves, and record new receipts; all fails if a key or receipt is known.

    Rows with known ids are replaced. Many rows share a statement, and so do moves from the same states.
    """
    for chunk in _chunks(given):
        # Replaced as a whole, with the labels and sums of the earlier row.
        for run_id in reads.present(session, "runs", "run_id", (run.summary.run_id for run in chunk)):
            _remove_row(session, run_id)
        _insert_runs(session, chunk)
    # The second move of any run comes after the first of every run, so that each run's moves are applied in order.
    grouped: dict[tuple[int, frozenset[states.RunState], bool], list[dict[str, Any]]] = {}
    seen: Counter[str] = Counter()
    for transition in moves:
        seen[transition.run_id] += 1
        alike = seen[transition.run_id], transition.since, transition.facts is not None
        grouped.setdefault(alike, []).append(_moving(transition))
    for (_, since, counts), values in sorted(grouped.items(), key=lambda group: group[0][0]):
        session.execute(_move_from(since, counts), values)
    _replace_sums(session, {move.run_id: move.facts.sums for move in moves if move.facts is not None})
    if places:
        add_receipts(session, places)


def add_missing(session: WriteSession, found: Iterable[IndexedRun]) -> None:
    """Write the rows of runs that have none; a key that a run already has is not given to a second one."""
    for chunk in _chunks(list(found)):
        known = reads.present(session, "runs", "run_id", [run.summary.run_id for run in chunk])
        taken = reads.present(session, "runs", "idempotency_key", [run.idempotency_key for run in chunk])
        fresh = []
        for run in chunk:
            if run.summary.run_id not in known:
                # The database would refuse a second run with the key, and so its whole row.
                fresh.append(
                    IndexedRun(summary=run.summary, orders=run.orders) if run.idempotency_key in taken else run
                )
                known.add(run.summary.run_id)
                taken |= set() if run.idempotency_key is None else {run.idempotency_key}
        _insert_runs(session, fresh)


def remove_run(session: WriteSession, run_id: str) -> None:
    """Remove a run's row with its labels, sums and orders."""
    session.execute(_REMOVE_SUMS, {"of_run": run_id})
    session.execute(_REMOVE_ORDERS, {"of_run": run_id})
    _remove_row(session, run_id)


def move(session: WriteSession, transition: runs.Transition) -> bool:
    """Apply a move if the run is in an expected state, and return whether it was.

    One guarded statement, without a read before it: a second writer changes no row.
    """
    counts = transition.facts is not None
    moved = session.execute(_move_from(transition.since, counts), _moving(transition)) == 1
    if moved and transition.facts is not None:
        _replace_sums(session, {transition.run_id: transition.facts.sums})
    return moved


def count_again(session: WriteSession, found: Sequence[IndexedRun]) -> None:
    """Complete rows that the previous release wrote with the sums of the journals.

    A row that this release has moved meanwhile is newer than what was read, and gets only its text for searches.
    """
    fresh = list(found)
    unmoved = reads.present(session, "runs", "run_id", [run.summary.run_id for run in fresh], _UNCOUNTED)
    if given := [run for run in fresh if run.summary.run_id in unmoved]:
        session.execute(_COUNT, [_counting(run) for run in given])
        _replace_sums(session, {run.summary.run_id: run.sums or () for run in given})
    doubted = reads.present(session, "runs", "run_id", [run.summary.run_id for run in fresh], "NOT counted")
    for run in fresh:
        if run.summary.run_id in doubted:
            _replace_labels(session, run.summary)
    if fresh:
        session.execute(_COUNT_AS_READ, [_read_values(run) for run in fresh])
        add_orders(session, [order for run in fresh for order in run.orders])


def doubt(session: WriteSession, run_id: str) -> None:
    """Record that a row may be older than its folder, so that the next count reads the folder again."""
    session.execute(_DOUBT, {"of_run": run_id, "counted": False})


def relabel(session: WriteSession, run_id: str, labels: Mapping[str, str], *, pinned: bool) -> None:
    """Replace a run's labels and pin, and remove the doubt from its row."""
    found = reads.get_run(session, run_id)
    if found is not None:
        summary = dataclasses.replace(found.summary, labels=labels, pinned=pinned)
        fresh = dataclasses.replace(found, summary=summary)
        doubt(session, run_id)
        _replace_labels(session, fresh.summary)
        session.execute(_COUNT_AS_READ, [_read_values(fresh)])


def set_owner(session: WriteSession, run_id: str, owner: str) -> None:
    """Record who continues a run."""
    session.execute(_SET_OWNER, {"of_run": run_id, "owner": owner})


def add_orders(session: WriteSession, found: Sequence[RunOrder]) -> None:
    """Store orders to runs, replacing known ones."""
    if found:
        places = {(order.run_id, order.file, order.line): order for order in found}
        session.execute(
            _REMOVE_ORDER, [{"of_run": name, "of_file": file, "of_line": line} for name, file, line in places]
        )
        session.execute(_ADD_ORDER, [rows.order_values(order) for order in places.values()])


def add_receipts(session: WriteSession, places: list[ReceiptPlace]) -> None:
    """Store the positions of new receipts; the statement fails as a whole if one is known."""
    session.execute(_ADD_RECEIPT, [rows.receipt_values(place) for place in places])


def replace_receipts(session: WriteSession, places: list[ReceiptPlace]) -> None:
    """Store the positions of receipts, replacing known ones."""
    session.execute(_REMOVE_RECEIPT, [{"of_receipt": place.receipt_id} for place in places])
    add_receipts(session, places)


def clear(session: WriteSession) -> None:
    """Remove every row."""
    for table in TABLES:
        session.execute(f"DELETE FROM {table}")  # noqa: S608 - names of this module


@functools.cache
def _move_from(since: frozenset[states.RunState], counts: bool) -> str:
    # As literals, like the reads: few sets of states occur, so there are few statements.
    expected = ", ".join(f"'{state.value}'" for state in sorted(since)) or "''"
    columns = ", ".join(f"{name} = :to_{name}" for name in (*_MOVED, *(_COUNTED if counts else ())))
    return f"UPDATE runs SET {columns} WHERE run_id = :of_run AND status IN ({expected})"  # noqa: S608 - names of states


def _moving(transition: runs.Transition) -> dict[str, Any]:
    at = index_port.instant(transition.at)
    values = {
        "of_run": transition.run_id,
        "to_status": transition.to.value,
        "to_updated_at": at,
        "to_completed_at": at if transition.to.finished else None,
        "to_error_code": transition.error_code,
        "to_reason": transition.reason,
    }
    facts = transition.facts
    return values if facts is None else values | _facts(facts.started_at, facts.usage)


def _facts(started_at: str | None, usage: Usage) -> dict[str, Any]:
    amounts = {f"to_{name}": getattr(usage, name) for name in rows.USAGE}
    return {"to_started_at": index_port.instant(started_at) if started_at is not None else None, **amounts}


def _counting(run: IndexedRun) -> dict[str, Any]:
    summary = run.summary
    return {
        "of_run": summary.run_id,
        "to_reason": summary.reason,
        **_facts(summary.started_at, summary.usage),
    }


def _read_values(run: IndexedRun) -> dict[str, Any]:
    summary = run.summary
    values = {"search": index_port.searched(summary), "pinned": summary.pinned, "counted": True}
    return values | {"of_run": summary.run_id}


def _remove_row(session: WriteSession, run_id: str) -> None:
    session.execute(_REMOVE_LABELS, {"of_run": run_id})
    session.execute(_REMOVE_RUN, {"of_run": run_id})


def _replace_labels(session: WriteSession, run: stores.RunSummary) -> None:
    session.execute(_REMOVE_LABELS, {"of_run": run.run_id})
    if labels := list(rows.label_values(run)):
        session.execute(_ADD_LABELS, labels)


def _replace_sums(session: WriteSession, found: Mapping[str, Sequence[UsageSum]]) -> None:
    fresh = [rows.sum_values(run_id, usage) for run_id, sums in found.items() for usage in sums]
    if fresh:
        session.execute(_REMOVE_SUMS, [{"of_run": run_id} for run_id, sums in found.items() if sums])
        session.execute(_ADD_SUM, fresh)


def _insert_runs(session: WriteSession, fresh: Sequence[IndexedRun]) -> None:
    if fresh:
        session.execute(_ADD_RUN, [rows.run_values(run) for run in fresh])
        _replace_sums(session, {run.summary.run_id: run.sums for run in fresh if run.sums is not None})
    add_orders(session, [order for run in fresh for order in run.orders])
    labels = [label for run in fresh for label in rows.label_values(run.summary)]
    if labels:
        session.execute(_ADD_LABELS, labels)


def _chunks(given: Sequence[IndexedRun]) -> Iterator[Sequence[IndexedRun]]:
    return (given[begin : begin + _CHUNK] for begin in range(0, len(given), _CHUNK))


_REMOVE_ISSUE = "DELETE FROM issues WHERE issue_id = :of_issue"
_MARK_ISSUE = "UPDATE issues SET marked = :marked WHERE issue_id = :of_issue"
_ADD_ISSUE = insert("issues", (*rows.ISSUE, "marked"))


def put_issues(session: WriteSession, found: Iterable[issues.IssueSummary], doubtful: bool) -> None:
    """Write rows of issues, replacing known ones; the written rows are not marked."""
    fresh = {summary.issue_id: rows.issue_values(summary) for summary in found}
    if doubtful:
        for issue_id in reads.sound_issues(session, fresh):
            del fresh[issue_id]
    if fresh:
        session.execute(_REMOVE_ISSUE, [{"of_issue": issue_id} for issue_id in fresh])
        session.execute(_ADD_ISSUE, list(fresh.values()))


def mark_issue(session: WriteSession, issue_id: str) -> None:
    """Mark the row of an issue whose file is about to change."""
    session.execute(_MARK_ISSUE, {"of_issue": issue_id, "marked": True})


def remove_issues(session: WriteSession, issue_ids: Iterable[str]) -> None:
    """Remove rows of issues."""
    gone = [{"of_issue": issue_id} for issue_id in issue_ids]
    if gone:
        session.execute(_REMOVE_ISSUE, gone)
