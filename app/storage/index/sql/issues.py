"""Rows of issues. None of these queries commits."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, insert, select, tuple_, update

from app.domain import issues
from app.storage.index.sql.rows import ISSUES, RUNS
from app.storage.index.sql.sessions import ReadSession, WriteSession

_FILTERS = ("status", "run_id", "session_id", "kind", "severity", "recipe_id")
_SHOWN = select(*(ISSUES.c[name] for name in issues.IssueSummary.__slots__))
_REMOVE = delete(ISSUES).where(ISSUES.c.issue_id == bindparam("of_issue"))
_ADD = insert(ISSUES)


def put_issues(session: WriteSession, found: Iterable[issues.IssueSummary], doubtful: bool) -> None:
    """Write rows in place of those of the same ids; none of them is marked any more."""
    fresh = {summary.issue_id: _values(summary) for summary in found}
    if doubtful:
        known = select(ISSUES.c.issue_id).where(ISSUES.c.issue_id.in_(list(fresh)), ISSUES.c.marked.is_(False))
        for row in session.rows(known):
            del fresh[row.issue_id]
    if fresh:
        session.execute(_REMOVE, [{"of_issue": issue_id} for issue_id in fresh])
        session.execute(_ADD, list(fresh.values()))


def mark_issue(session: WriteSession, issue_id: str) -> None:
    """Note that an issue's file is about to change."""
    session.execute(update(ISSUES).where(ISSUES.c.issue_id == issue_id).values(marked=True))


def remove_issues(session: WriteSession, issue_ids: Iterable[str]) -> None:
    """Remove rows."""
    gone = [{"of_issue": issue_id} for issue_id in issue_ids]
    if gone:
        session.execute(_REMOVE, gone)


def issue_rows(session: ReadSession) -> dict[str, bool]:
    """Return the ids of all rows, and which of them are marked."""
    return {row.issue_id: row.marked for row in session.rows(select(ISSUES.c.issue_id, ISSUES.c.marked))}


def list_issues(session: ReadSession, query: issues.IssueQuery) -> list[issues.IssueSummary]:
    """Return a page, newest first.

    It begins behind the last issue of the page before; each filter has an index in the order of the list.
    """
    asked = dict(_asked(query))
    rows = session.rows(_page(frozenset(asked)), asked)
    return [issues.IssueSummary(**row._mapping) for row in rows]


def has_session(session: ReadSession, session_id: str) -> bool:
    """Tell whether a run belongs to a work session."""
    return session.row(select(RUNS.c.run_id).where(RUNS.c.session_id == session_id).limit(1)) is not None


def _values(summary: issues.IssueSummary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in summary.__slots__} | {"marked": False}


def _asked(query: issues.IssueQuery) -> Iterator[tuple[str, Any]]:
    for name in _FILTERS:
        if (value := getattr(query, name)) is not None:
            yield name, value
    if query.cursor is not None:
        yield from zip(("cursor_at", "cursor_id"), query.cursor, strict=True)
    yield "most", query.limit


@functools.cache
def _page(asked: frozenset[str]) -> Select[Any]:
    found = _SHOWN.where(*_conditions(asked))
    return found.order_by(ISSUES.c.created_at.desc(), ISSUES.c.issue_id.desc()).limit(bindparam("most"))


def _conditions(asked: frozenset[str]) -> Iterator[ColumnElement[bool]]:
    for name in _FILTERS:
        if name in asked:
            yield ISSUES.c[name] == bindparam(name)
    if "cursor_at" in asked:
        yield tuple_(ISSUES.c.created_at, ISSUES.c.issue_id) < tuple_(bindparam("cursor_at"), bindparam("cursor_id"))
