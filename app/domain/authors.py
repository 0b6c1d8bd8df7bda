"""Authors: who gave an order or an answer, as far as that is known, and the orders to runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

from app.domain import plain, shapes

MOST_CHARACTERS = 100  # Longest name of an author.
Via: TypeAlias = Literal["local", "token", "browser", "key", "trigger"]  # Ways of a caller into the service.


@dataclass(frozen=True, slots=True, kw_only=True)
class Author(shapes.Shape):
    """The author of an order or an answer."""

    name: str | None  # Name of the person; None if none was given.
    claimed: bool  # Whether the name is only a claim of the caller.
    via: Via
    """How the caller was admitted: without a token, with the token, by a browser's sign-in with the token, with a key,
    whose name the author has, or as a trigger.
    """


LOCAL = Author(name=None, claimed=False, via="local")  # Author of orders by commands on this machine.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """One order, with the line that records it."""

    run_id: str  # Run that it was given to.
    target: str  # Target of the order: the run, or the session of a plan.
    file: str  # File of the run that records it.
    line: int  # Number of its line, from 0.
    at: str  # When it was given.
    action: str  # What was ordered, as `noun.verb`.
    author: Mapping[str, plain.Json]  # Who gave it.
    details: Mapping[str, plain.Json]  # More about it.

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Return the place of the order in lists, which begin with the newest."""
        return self.at, self.run_id, self.file, self.line


Shown: TypeAlias = Annotated[Mapping[str, plain.Json], Author]  # An author as plain JSON.


def facts(author: Author | None) -> dict[str, plain.Json]:
    """Return the field of a control line that names the author; empty if the author is unknown."""
    return {} if author is None else {"author": author.to_json()}


def named(value: Mapping[str, Any] | None) -> Author | None:
    """Return the author that an object describes; None if it does not have the form of an author."""
    return Author(**value) if value is not None and is_author(value) else None


def in_line(line: Mapping[str, Any]) -> dict[str, plain.Json] | None:
    """Return the author that a control line or an answer names; lines of earlier releases name none."""
    found = line.get("author")
    return dict(found) if isinstance(found, dict) else None


def is_author(value: Mapping[str, Any]) -> bool:
    """Return whether an object, perhaps written by hand, has the form of an author."""
    name, claimed = value.get("name"), value.get("claimed")
    is_named = name is None or isinstance(name, str)
    return set(value) == {"name", "claimed", "via"} and is_named and isinstance(claimed, bool) and _is_way(value["via"])


def _is_way(via: object) -> bool:
    return isinstance(via, str) and via in get_args(Via)
