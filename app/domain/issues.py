"""Issues: findings and notes, each one JSON file, and the port of their store."""

# If each run of a check opened issues of its own, three runs would leave three issues for one contradiction, and a
# corrected scene would leave all of them open.
#
# So the id of a finding's issue is derived from workspace, recipe, kind, file and the words of its message, without
# numbers, case and punctuation. After the definition of done is met, one step closes the open findings of the same
# recipe and workspace that were not found again, if all their files are below the paths given to the tool. Failed or
# partial runs, and tools that cut their lists, close no findings. The step is one idempotent operation. Price: findings
# that differ only in a count are one issue.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict

from app import clock, printable
from app.domain import plain, shapes
from app.domain.access import Scope

Status = Literal["open", "closed"]  # Whether work remains to be done.

Severity = Literal["error", "warning", "hint"]
"""`error`: both statements cannot be true, or a check failed; `warning`: probably a mistake; `hint`: worth a look."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")  # All severities, the worst first.
NOTES = 1000  # Most notes of an issue.
KIND = "note"  # Kind of an issue whose record has none.

_TEXTS_OR_NULL = (
    "severity", "recipe_id", "run_id", "session_id", "key", "closed_at", "closed_by", "edited_at", "request_sha256",
)  # fmt: skip

Issue: TypeAlias = Mapping[str, plain.Json]
"""A record with the fields of its file; `whole` makes an `IssueShown` of it."""

Change: TypeAlias = Callable[[Issue | None], Issue | None]
"""Returns the new record for the present one, which may not exist; None, or the same record, leaves it unchanged."""


class IssueNote(TypedDict):
    """A note on an issue."""

    at: shapes.Instant  # When it was written.
    text: str  # What was written.
    status: Annotated[str, Status]  # Status of the issue at that time.


class IssueShown(TypedDict):
    """Everything about an issue."""

    issue_id: str  # Id of the issue; names its file.
    title: str  # One line.
    body: str  # The description.
    kind: str  # Kind of issue: `dod`, `finding`, or any word that its author chose.
    severity: Annotated[str, Severity] | None  # Severity of the issue; None if its author gave none.
    recipe_id: str | None  # Recipe whose check found it.
    facts: Mapping[str, plain.Json]  # Fields for programs, e.g. the failed check.
    status: Annotated[str, Status]  # Whether work remains to be done.
    run_id: str | None  # Run that found it last, or that the issue concerns.
    session_id: str | None  # Work session of the issue.
    key: str | None  # Step that made it.
    receipts: list[str]  # Receipts that prove it.
    created_at: shapes.Instant  # When it was made.
    updated_at: shapes.Instant  # When it was last changed.
    closed_at: shapes.Instant | None  # When it was closed.
    closed_by: str | None  # Run whose check no longer found it; None if a person closed it.
    edited_at: shapes.Instant | None  # When a person last changed its title or body.
    revision: int  # Number of its changes, from 1.
    notes: list[IssueNote]  # Notes, oldest first.
    request_sha256: str | None  # Hash of the request that made it under an `Idempotency-Key`.


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueSummary(shapes.Shape):
    """An issue as lists show it."""

    published_as: ClassVar[str] = "IssueListed"

    issue_id: str  # Id of the issue; names its file.
    title: str  # One line.
    status: Annotated[str, Status]  # Whether work remains to be done.
    kind: str  # Kind of issue: `dod`, `finding`, or any word that its author chose.
    severity: Annotated[str, Severity] | None  # Severity of the issue; None if its author gave none.
    recipe_id: str | None  # Recipe whose check found it.
    run_id: str | None  # Run that found it last, or that the issue concerns.
    session_id: str | None  # Work session of the issue.
    key: str | None  # Step that made it.
    created_at: shapes.Instant  # When it was made.
    updated_at: shapes.Instant  # When it was last changed.
    revision: int  # Number of its changes, from 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueQuery:
    """Selects the issues of a list, newest first."""

    status: str | None = None  # Only open or only closed issues.
    run_id: str | None = None  # Only issues of this run.
    session_id: str | None = None  # Only issues of this session.
    kind: str | None = None  # Only issues of this kind.
    severity: str | None = None  # Only issues of this severity.
    scope: Scope | None = None  # Only issues of runs of this scope that still exist; None: of any.
    recipe_id: str | None = None  # Only issues that checks of this recipe found.
    limit: int = 100  # Most issues to return, 1 to 1,000.
    cursor: tuple[str, str] | None = None  # `(created_at, issue_id)` of the last issue of the previous page.


class IssueStore(Protocol):
    """All issues of a data directory."""

    async def open(self, issue: Issue) -> None:
        """Store what a step has found. If it was found before, a person's edits are kept.

        Raises:
            errors.StorageFault: it could not be made durable.
        """

    async def change(self, issue_id: str, change: Change) -> Issue:
        """Change or create an issue in one exclusive step, and return it once it is durable.

        Raises:
            errors.NotFound: `issue_not_found`; the issue does not exist, and the change creates none.
            errors.Conflict: `issue_damaged`; its file cannot be read.
            errors.StorageFault: it could not be made durable.
        """

    async def get(self, issue_id: str) -> Issue:
        """Return an issue with the fields of its file.

        Raises:
            errors.NotFound, errors.Conflict: as `change`.
        """

    async def list(self, query: IssueQuery) -> list[IssueSummary]:
        """Return issues, newest first."""

    async def knows_session(self, session_id: str) -> bool:
        """Return whether a work session has runs, receipts or a plan."""


def made(
    issue_id: str,
    at: str,
    *,
    title: str,
    body: str,
    kind: str,
    run_id: str | None,
    session_id: str | None,
    receipts: list[str],
    facts: Issue | None = None,
    key: str | None = None,
    severity: str | None = None,
    recipe_id: str | None = None,
    request_sha256: str | None = None,
) -> dict[str, plain.Json]:
    """Return a new record.

    Args:
        request_sha256: Hash of the request under an idempotency key that created it.
    """
    made: IssueShown = {
        "issue_id": issue_id,
        "title": printable.title(title),
        "body": body,
        "kind": kind,
        "severity": severity,
        "recipe_id": recipe_id,
        "facts": dict(facts or {}),
        "status": "open",
        "run_id": run_id,
        "session_id": session_id,
        "key": key,
        "receipts": receipts,
        "created_at": at,
        "updated_at": at,
        "closed_at": None,
        "closed_by": None,
        "edited_at": None,
        "revision": 1,
        "notes": [],
        "request_sha256": request_sha256,
    }
    return dict(made)


def whole(issue: Issue) -> dict[str, plain.Json]:
    """Return a record with all present fields, even if it was written by hand; invalid ones get their defaults."""
    at = issue.get("created_at")
    facts = issue.get("facts")
    blank = made(
        str(issue.get("issue_id")),
        at if isinstance(at, str) else plain.LONG_AGO,
        title="",
        body="",
        kind=_kind(facts),
        run_id=None,
        session_id=None,
        receipts=[],
    )
    known = {name: issue[name] for name, value in blank.items() if name in issue and _alike(issue[name], value)}
    known |= {name: issue[name] for name in _TEXTS_OR_NULL if isinstance(issue.get(name), str)}
    if known.get("severity") not in SEVERITIES:
        known["severity"] = None
    if known.get("status") != "closed":
        known["status"] = "open"
    return blank | known


def again(known: Issue, found: Issue) -> Issue:
    """Return the new state of a record after its step has found the same thing again.

    The issue is reopened. The edits of a person are kept; unedited fields get the values of the new finding.
    """
    present: dict[str, Any] = whole(known)
    # A person's edits are kept, whatever a run finds.
    kept = ("title", "body", "severity") if present["edited_at"] is not None else ()
    fresh = ("title", "body", "severity", "kind", "facts", "receipts", "run_id", "session_id", "key")
    changed = present | {name: found[name] for name in fresh if name in found and name not in kept}
    at = str(found.get("created_at", present["updated_at"]))
    if present["closed_by"] is not None:
        changed["notes"] = _noted(present, at, f"Found again by the run {found.get('run_id')}.", "open")
    changed |= {"status": "open", "closed_at": None, "closed_by": None}
    if changed == present:
        return known
    return changed | {"updated_at": at, "revision": present["revision"] + 1}


def closed(known: Issue | None, at: str, run_id: str, note: str) -> Issue | None:
    """Return the new state of a record after a run's check has not found it any more: closed, with a note.

    A closed record stays unchanged.
    """
    if known is None:
        return None
    present = whole(known)
    if present["status"] == "closed":
        return known
    changed: dict[str, Any] = present | {"status": "closed", "closed_at": at, "closed_by": run_id, "updated_at": at}
    changed["notes"] = _noted(present, at, note, "closed")
    return changed | {"revision": changed["revision"] + 1}


def summary(issue: Issue) -> IssueSummary:
    """Return a record as lists show it."""
    shown = whole(issue)
    at = {name: _instant(shown[name]) for name in ("created_at", "updated_at")}
    return IssueSummary(**{name: shown[name] for name in IssueSummary.__slots__} | at)


def _noted(present: Issue, at: str, text: str, status: str) -> list[plain.Json]:
    notes: Any = present["notes"]
    return [*notes, {"at": at, "text": text, "status": status}] if len(notes) < NOTES else list(notes)


def _instant(text: str) -> str:
    # In one form, so that texts sort as times do; a text that a person wrote by hand may not be an instant.
    try:
        return clock.stamp(clock.instant(text))
    except ValueError:
        return plain.LONG_AGO


def _kind(facts: Any) -> str:
    kind = facts.get("kind") if isinstance(facts, dict) else None
    return kind if isinstance(kind, str) and kind else KIND


def _alike(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value is not None
