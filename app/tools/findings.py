"""Findings: a tool's remarks for a writer, each with its position, so that it can become an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from app.domain import plain
from app.tools import bounds

Severity = Literal["error", "warning", "hint"]
"""`error`: both cannot be true; `warning`: probably a slip; `hint`: worth a look."""

Finding = dict[str, plain.Json]  # `{kind, severity, message, path, line, quote}` and what the kind adds.

_RANKS = {"error": 0, "warning": 1, "hint": 2}


def finding(
    kind: str, severity: Severity, message: str, *, path: str = "", line: int = 0, quote: str = "", **facts: plain.Json
) -> Finding:
    """Return a finding as plain JSON."""
    return {
        "kind": kind,
        "severity": severity,
        "message": bounds.clipped(message, 2 * bounds.QUOTE_CHARACTERS),
        "path": path,
        "line": line,
        "quote": bounds.clipped(quote),
        **facts,
    }


def place(path: str, line: int, quote: str) -> dict[str, plain.Json]:
    """Return a place in a file as plain JSON."""
    return {"path": path, "line": line, "quote": bounds.clipped(quote)}


def ranked(found: Iterable[Finding]) -> list[Finding]:
    """Order findings by severity, path and line."""
    return sorted(found, key=lambda entry: (_RANKS[entry["severity"]], entry["path"], entry["line"], entry["kind"]))


def has_error(found: Iterable[Finding]) -> bool:
    """Return whether one of the findings is an error."""
    return any(entry["severity"] == "error" for entry in found)


def lines(found: Sequence[Finding], otherwise: str) -> list[str]:
    """Return findings as lines of a report."""
    if not found:
        return [otherwise]
    return [f"- {entry['severity']}: {entry['message']}{_at(entry)}" for entry in found]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, e.g. `1 conflict`, `3 conflicts`."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _at(entry: Finding) -> str:
    return f" ({entry['path']}:{entry['line']})" if entry["path"] else ""
