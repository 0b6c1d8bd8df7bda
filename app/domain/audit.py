"""The audit log: who changed what has no run's journal, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from app.domain import authors, plain, shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which entries a list shows, newest first."""

    author: str | None = None
    """Only changes of this author, by name."""
    action: str | None = None
    """Only this action, or all of a noun: `key` means `key.added`, `key.revoked` and so on."""
    target: str | None = None
    """Only changes of this thing."""
    created_after: str | None = None
    """Only changes at or after this instant."""
    created_before: str | None = None
    """Only changes before this instant."""
    limit: int = 100
    """Most entries to return, 1 to 1,000."""
    cursor: int | None = None
    """Where the page before ended; None: at the newest entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(shapes.Shape):
    """One change, as its author ordered it."""

    number: int
    """Its place in the log, from 0."""
    at: shapes.Instant
    """When it was ordered."""
    author: authors.Shown | None
    """Who ordered it; null: Control Room itself."""
    action: Annotated[str, shapes.Keywords({"examples": ["issue.edited"]})]
    """What was done, as `noun.verb`."""
    target: str
    """Id or name of what was changed."""
    details: Mapping[str, plain.Json]
    """More about the change; never a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was checked, and how it is made."""

    action: str
    """The action, as `noun.verb`."""
    target: str
    """Id or name of the changed thing."""
    make: Callable[[], None]
    """Makes it, durably; it blocks."""
    details: Mapping[str, plain.Json] = field(default_factory=dict)
    """More about it; never a secret."""


class AuditLog(Protocol):
    """Changes of what has no run's journal."""

    async def append(
        self,
        author: authors.Author | None,
        action: str,
        target: str,
        details: Mapping[str, plain.Json] | None = None,
    ) -> None:
        """Record a change durably. Call it once the change is checked, right before it is made.

        A change is in the log whenever it was made. An entry whose change a crash or a full disk prevented stays.

        Raises:
            errors.StorageFault: the entry could not be made durable, so the change must not be made.
        """

    async def change(self, author: authors.Author | None, check: Callable[[], Change | None]) -> None:
        """Record a change and make it, while no other such change of the data directory is checked or made.

        Args:
            check: Reads the present state, refuses the change or returns it; None: nothing to change. It blocks.

        Raises:
            errors.StorageFault: nothing was changed, or it is not known whether it was.
        """

    async def page(self, query: AuditQuery) -> tuple[list[AuditEntry], int | None]:
        """Return a page of changes, newest first, and the cursor of the next; None after the last.

        A page may be short, or empty, before the last: each reads a bounded part of the log.
        """
