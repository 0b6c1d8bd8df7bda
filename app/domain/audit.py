"""The audit list: who changed what, and when; of runs, and of what has no run's journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from app import errors
from app.domain import authors, plain, shapes
from app.domain.authors import RunOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCursor:
    """Where a page ends."""

    offset: int  # Bytes of the audit log before it.
    order: tuple[str, str, str, int] | None = None
    """Place of the last order to a run that was listed; None: no such order was."""


ACTIONS: Mapping[str, tuple[str, ...]] = {
    "run": (
        "started", "paused", "unpaused", "cancelled", "resumed", "limited", "labelled", "deleted", "repaired",
    ),
    "gate": ("answered", "voted"),
    "input": ("delivered",),
    "plan": ("created", "changed", "deleted"),
    "key": ("added", "rotated", "revoked"),
    "trigger": ("created", "edited", "paused", "unpaused", "removed"),
    "endpoint": ("added", "edited", "removed", "replayed", "given_up"),
    "budget": ("created", "changed", "removed"),
    "prices": ("changed",),
    "policies": ("changed",),
    "retention": ("changed",),
    "issue": ("created", "edited"),
    "blobs": ("collected",),
}  # fmt: skip
"""Verbs of each noun; together they are the actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which entries a list shows, newest first."""

    author: str | None = None  # Only changes of this author, by name.
    action: str | None = None
    """Only this action, or all of a noun: `key` means `key.added`, `key.revoked` and so on."""
    target: str | None = None
    """Only changes of what has this id or name; a run's gates and inputs are changes of the run."""
    created_after: str | None = None  # Only changes at or after this instant.
    created_before: str | None = None  # Only changes before this instant.
    limit: int = 100  # Most entries to return, 1 to 1,000.
    cursor: AuditCursor | None = None  # Where the page before ended; None: at the newest entry.

    def __post_init__(self) -> None:
        """Refuse an action that does not exist: its list would be empty, as that of an action without entries.

        Raises:
            errors.RequestInvalid: naming the nouns, or the actions of the noun.
        """
        if self.action is None:
            return
        noun, dot, verb = self.action.partition(".")
        verbs = ACTIONS.get(noun)
        if verbs is None or (dot and verb not in verbs):
            known = ACTIONS if verbs is None else [f"{noun}.{each}" for each in verbs]
            message = f"there is no action {self.action!r:.80}; there are {', '.join(known)}"
            flaw = errors.Flaw(path="query.action", code="unknown_action", message=message)
            raise errors.RequestInvalid(message, flaws=[flaw])

    def fits(self, entry: AuditEntry | RunOrder) -> bool:
        """Return whether the filters leave an entry in."""
        return (
            self.author in (None, (entry.author or {}).get("name"))
            and self.action in (None, entry.action, entry.action.partition(".")[0])
            and self.target in (None, entry.target)
            and (self.created_after is None or entry.at >= self.created_after)
            and (self.created_before is None or entry.at < self.created_before)
        )

    def covers(self, order: RunOrder) -> bool:
        """Return whether an order to a run fits and comes after the cursor."""
        seen = self.cursor.order if self.cursor is not None else None
        return self.fits(order) and (seen is None or order.place < seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(shapes.Shape):
    """One change, as its author ordered it."""

    number: int  # Number of its line in the audit log, or in the file of the run, from 0.
    at: shapes.Instant  # When it was ordered.
    author: authors.Shown | None  # Who ordered it; null: Control Room itself.
    action: Annotated[str, shapes.Keywords({"examples": ["issue.edited"]})]  # What was done, as `noun.verb`.
    target: str  # Id or name of what was changed.
    details: Mapping[str, plain.Json]  # More about the change; never a secret.
    run_id: str | None = shapes.omitted()  # Run whose journal has it; absent for an entry of the audit log.
    file: str | None = shapes.omitted()  # File of the run that has it.

    @classmethod
    def of_order(cls, order: RunOrder) -> AuditEntry:
        """Return the entry of an order to a run."""
        fields = {item.name: getattr(order, item.name) for item in dataclasses.fields(order)}
        return cls(number=fields.pop("line"), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was checked, and how it is made."""

    action: str  # The action, as `noun.verb`.
    target: str  # Id or name of the changed thing.
    make: Callable[[], None]  # Makes it, durably; it blocks.
    details: Mapping[str, plain.Json] = field(default_factory=dict)  # More about it; never a secret.


class AuditLog(Protocol):
    """Changes of what has no run's journal, listed with the orders to runs."""

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

    async def page(self, query: AuditQuery) -> tuple[list[AuditEntry], AuditCursor | None]:
        """Return a page of changes and of orders to runs, newest first, and the next cursor; None after the last.

        A page may be short, or empty, before the last: each reads a bounded part of the log.
        """
