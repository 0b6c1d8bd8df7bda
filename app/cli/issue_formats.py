"""Issues as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import printable
from app.cli import formats


def issues(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of issues."""
    if not found:
        return "there are no such issues"
    names = ("issue_id", "status", "kind", "severity", "created_at", "title")
    return formats.table(names, [[issue[name] for name in names] for issue in found])


def issue(found: Mapping[str, Any]) -> str:
    """Return an issue with all that was said to it."""
    names = (
        "issue_id", "status", "kind", "severity", "recipe_id", "run_id", "session_id", "key", "created_at", "closed_at",
        "revision",
    )  # fmt: skip
    heading = [f"{name}: {found[name]}" for name in names if found[name] is not None]
    proofs = [f"receipts: {', '.join(found['receipts'])}"] if found["receipts"] else []
    notes = [f"{note['at']} ({note['status']}): {note['text']}" for note in found["notes"]]
    parts = [
        printable.one_line(found["title"]), printable.block([*heading, *proofs]),
        printable.quoted(found["body"]) if found["body"] else "", printable.block(notes),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)
