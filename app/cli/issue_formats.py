"""
Issues as text for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.cli import formats


def issues(found: Sequence[Mapping[str, Any]]) -> str:
    """
    Return a list of issues.
    """
    if not found:
        return "there are no such issues"
    rows = [(issue["issue_id"], issue["status"], issue["kind"], issue["created_at"], issue["title"]) for issue in found]
    return formats.table(("issue_id", "status", "kind", "created_at", "title"), rows)


def issue(found: Mapping[str, Any]) -> str:
    """
    Return an issue with all that was said to it.
    """
    names = ("issue_id", "status", "kind", "run_id", "session_id", "key", "created_at", "closed_at", "revision")
    heading = [f"{name}: {found[name]}" for name in names if found[name] is not None]
    proofs = [f"receipts: {', '.join(found['receipts'])}"] if found["receipts"] else []
    notes = [f"{note['at']} ({note['status']}): {note['text']}" for note in found["notes"]]
    parts = [found["title"], "\n".join([*heading, *proofs]), found["body"], "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)
