"""Access: what a caller of the service may do, and which runs it may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.domain import authors, shapes


class Role(StrEnum):
    """What a caller may do; each role includes those before it."""

    VIEWER = "viewer"  # Reads.
    RUNNER = "runner"  # Starts, pauses, cancels and deletes runs, and writes issues and plans.
    APPROVER = "approver"  # Answers gates.
    ADMIN = "admin"  # Changes keys and configuration, and reads the audit log.

    def includes(self, other: Role) -> bool:
        """Return whether this role may do what another role may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(shapes.Shape):
    """The runs to which a key is limited."""

    recipes: tuple[str, ...] = ()  # Only runs of these recipes; empty: of any.
    labels: tuple[tuple[str, str], ...] = ()
    """Only runs with these labels: for each name, one of its values; empty: with any labels."""

    @classmethod
    def from_json(cls, value: Any) -> Scope:
        """Read a stored scope.

        Raises:
            TypeError: the value is not a scope.
        """
        try:
            labels = tuple((str(name), str(text)) for name, text in value["labels"])
            return cls(recipes=tuple(map(str, value["recipes"])), labels=labels)
        except (KeyError, ValueError) as error:
            raise TypeError("a scope has recipes, and labels with their values") from error

    def covers(self, recipe_id: str, labels: Mapping[str, str]) -> bool:
        """Return whether a run is within the scope."""
        if self.recipes and recipe_id not in self.recipes:
            return False
        return all(labels.get(name) in values for name, values in self.values().items())

    def values(self) -> dict[str, tuple[str, ...]]:
        """Return the values that each label of the scope may have."""
        found: dict[str, tuple[str, ...]] = {}
        for name, value in self.labels:
            found[name] = (*found.get(name, ()), value)
        return found

    @property
    def is_limited(self) -> bool:
        """Return whether some runs are outside the scope."""
        return bool(self.recipes or self.labels)


EVERYTHING = Scope()  # All runs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of the service, as the guard has admitted it."""

    author: authors.Author = authors.LOCAL  # Author of its orders; an author without a name may claim one.
    role: Role = Role.ADMIN  # Role of the caller.
    limits: Scope | None = None  # The runs that it may see; None: all.
    sha256: str | None = None
    """Hash of the secret of the key that admitted the caller; None: a token, or no secret at all."""


ANYONE = Caller()  # The caller of a service without keys and token.
