"""The audit list: who changed what and when, in runs and outside of them."""

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
    """The position at which a page ends."""

    offset: int  # Bytes of the audit log before that position.
    order: tuple[str, str, str, int] | None = None
    """Place of the last order to a run that was listed; None: no order was listed."""


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
"""Verbs of each noun; together they form the actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Selects the entries of a list, newest first."""

    author: str | None = None  # Only changes of this author, by name.
    action: str | None = None
    """Only this action, or all actions of a noun: `key` means `key.added`, `key.revoked` and so on."""
    target: str | None = None
    """Only changes of the target with this id or name; a run's gates and inputs are changes of the run."""
    created_after: str | None = None  # Only changes at or after this instant.
    created_before: str | None = None  # Only changes before this instant.
    limit: int = 100  # Most entries to return, 1 to 1,000.
    cursor: AuditCursor | None = None  # Where the previous page ended; None: at the newest entry.

    def __post_init__(self) -> None:
        """Refuse an unknown action: its list would be empty, like that of an action without entries.

        Raises:
            errors.RequestInvalid: the action is unknown; the message names the nouns, or the actions of the noun.
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
        """Return whether an entry passes the filters."""
        return (
            self.author in (None, (entry.author or {}).get("name"))
            and self.action in (None, entry.action, entry.action.partition(".")[0])
            and self.target in (None, entry.target)
            and (self.created_after is None or entry.at >= self.created_after)
            and (self.created_before is None or entry.at < self.created_before)
        )

    def covers(self, order: RunOrder) -> bool:
        """Return whether an order to a run passes the filters and comes after the cursor."""
        seen = self.cursor.order if self.cursor is not None else None
        return self.fits(order) and (seen is None or order.place < seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(shapes.Shape):
    """One change, with its author."""

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
        """Return the audit entry of an order to a run."""
        fields = {item.name: getattr(order, item.name) for item in dataclasses.fields(order)}
        return cls(number=fields.pop("line"), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A checked change, with the function that makes it."""

    action: str  # The action, as `noun.verb`.
    target: str  # Id or name of the changed thing.
    make: Callable[[], None]  # Makes the change durably; it blocks.
    details: Mapping[str, plain.Json] = field(default_factory=dict)  # More about the change; never a secret.


class AuditLog(Protocol):
    """The log of changes that belong to no run's journal, listed with the orders to runs."""

    async def append(
        self,
        author: authors.Author | None,
        action: str,
        target: str,
        details: Mapping[str, plain.Json] | None = None,
    ) -> None:
        """Record a change durably. Call this once the change is checked, right before it is made.

        Every change that was made is in the log. An entry stays even if a crash or a full disk prevents its change.

        Raises:
            errors.StorageFault: the entry could not be made durable, so the change must not be made.
        """

    async def change(self, author: authors.Author | None, check: Callable[[], Change | None]) -> None:
        """Record a change and make it, while no other such change of the data directory is checked or made.

        Args:
            check: Reads the present state, and refuses the change or returns it; None: there is no change. It blocks.

        Raises:
            errors.StorageFault: either the data is unchanged, or the result is unknown.
        """

    async def page(self, query: AuditQuery) -> tuple[list[AuditEntry], AuditCursor | None]:
        """Return a page of changes and of orders to runs, newest first, with the next cursor; None on the last page.

        A page before the last may be short or empty: each call reads a bounded part of the log.
        """
