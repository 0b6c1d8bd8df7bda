"""Concurrency: how many runs of one key may be under way, and what happens to further ones."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from app import errors
from app.domain import access, shapes

Policy: TypeAlias = Literal["queue", "reject", "cancel_running", "cancel_waiting"]
"""What happens at the limit: the new run waits or is refused, or earlier runs are cancelled: all of them, or only those
that have not begun.
"""

KEY_PATTERN = r"^[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?$"
"""Form of a key: at most 200 printable characters."""

MOST_RUNS = 1_000  # Largest limit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency(shapes.Shape):
    """The concurrency key of a run, with the number of runs of that key that may be under way."""

    key: str  # Key that the runs share.
    limit: int = 1  # Most runs of the key under way when this one begins, including it.
    policy: Policy = "queue"  # What happens when the limit is reached.
    within: access.Scope | None = shapes.omitted()
    """Runs that it may cancel, by the scope of the key that started it; None: any runs."""

    @classmethod
    def from_json(cls, value: Any) -> Concurrency:
        """Read a stored key; unknown fields of a later version are ignored.

        Raises:
            TypeError: the value is not an object, or a field has the wrong form.
        """
        if not isinstance(value, dict):
            raise TypeError("concurrency is not an object")
        fields = {name: value[name] for name in cls.__slots__ if name in value}
        if fields.get("within") is not None:
            fields["within"] = access.Scope.from_json(fields["within"])
        found = cls(**fields)
        for flaw in flaws(found):
            raise TypeError(flaw.message)
        return found

    def of_fork(self) -> Concurrency:
        """Return the key of a fork: it cancels no run, since its source would be the first to be cancelled."""
        return dataclasses.replace(self, policy="queue", within=None) if self.policy.startswith("cancel_") else self

    def without_waiting(self) -> Concurrency:
        """Return the key of a run whose process cannot wait for runs of other processes."""
        return dataclasses.replace(self, policy="reject")


def flaws(given: Concurrency) -> list[errors.Flaw]:
    """Return a flaw for each field of the wrong form."""
    found = []
    if not re.fullmatch(KEY_PATTERN, str(given.key)) or type(given.key) is not str:
        found.append(("key", "key must be 1 to 200 printable ASCII characters"))
    if type(given.limit) is not int or not 1 <= given.limit <= MOST_RUNS:
        found.append(("limit", f"limit must be a whole number from 1 to {MOST_RUNS}"))
    if given.policy not in get_args(Policy):
        found.append(("policy", f"policy must be one of {', '.join(get_args(Policy))}"))
    return [errors.Flaw(path=f"$.concurrency.{name}", code="invalid", message=message) for name, message in found]
