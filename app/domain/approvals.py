"""Approvals: how many keys must agree at the gates of a run, and which keys have voted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from app.domain import authors, plain, shapes

MOST = 10  # Most keys that a gate can need.


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals(shapes.Shape):
    """The approvals that the gates of a run need."""

    count: Annotated[int, shapes.Keywords({"minimum": 1, "maximum": MOST})] = 1
    """Number of keys that must give the same decision; one denial decides alone."""
    not_starter: bool = False  # Whether the key that started the run is excluded.

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Approvals:
        """Read approvals from start.json.

        Raises:
            TypeError: the value has another form.
        """
        if not (isinstance(value.get("count"), int) and isinstance(value.get("not_starter"), bool)):
            raise TypeError("approvals need a count, and whether the starter counts")
        return cls(**value)


def strictest(*wanted: Approvals | None) -> Approvals | None:
    """Return the approvals that satisfy several demands; None if there is no demand."""
    found = [each for each in wanted if each is not None]
    if not found:
        return None
    return Approvals(count=max(each.count for each in found), not_starter=any(each.not_starter for each in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote(shapes.Shape):
    """The decision of one key at a gate."""

    decision: str  # One of the gate's options.
    message: str  # Text that the key added.
    author: authors.Shown | None  # Author to whom the key belongs.
    at: shapes.Instant  # When the key voted.

    @property
    def name(self) -> str | None:
        """Return the name of the key, if known."""
        found = (self.author or {}).get("name")
        return found if isinstance(found, str) else None

    @classmethod
    def in_line(cls, line: Mapping[str, Any]) -> Vote:
        """Return the vote that a control line records.

        Raises:
            KeyError: the line lacks a field.
        """
        author = authors.in_line(line)
        return cls(decision=line["decision"], message=line["message"], author=author, at=line["at"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsShown(shapes.Shape):
    """The approvals that a gate needs, and the votes so far."""

    needed: int  # Number of keys that must give the same decision.
    not_starter: bool  # Whether the key that started the run is excluded.
    given: tuple[Vote, ...]  # Votes so far; a denial may follow another vote of its key.


def agreeing(votes: Sequence[Vote], decision: str) -> int:
    """Return how many keys voted for a decision."""
    return len({vote.name for vote in votes if vote.decision == decision})


def written(votes: Sequence[Vote]) -> list[plain.Json]:
    """Return votes in the form in which the answer of their gate records them."""
    return [plain.plain(vote.to_json()) for vote in votes]
