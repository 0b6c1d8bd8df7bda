"""Writing rows of issues to the index; none of these statements commits."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain import issues
from app.storage.index import reads, rows
from app.storage.index.sql import writes
from app.storage.index.sql.database import WriteSession

_REMOVE_ISSUE = "DELETE FROM issues WHERE issue_id = :of_issue"
_MARK_ISSUE = "UPDATE issues SET marked = :marked WHERE issue_id = :of_issue"
_ADD_ISSUE = writes.insert("issues", (*rows.ISSUE, "marked"))


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
