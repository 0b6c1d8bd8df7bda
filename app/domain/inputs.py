"""Inputs: values delivered to a run from outside, and the records of deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from app.domain import operations, plain
from app.domain.authors import Author
from app.domain.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A value for an open `Input`."""

    of: ClassVar[type[operations.Input]] = operations.Input  # Operation that it is for.

    value: plain.Json  # The delivered value.
    author: Author | str | None = None  # Who delivers it: a person, or the name of a source.
    idempotency_key: str | None = None  # Key under which the same value may be delivered again.

    def output(self) -> dict[str, plain.Json]:
        """Return the output of the input's step."""
        author = self.author.to_json() if isinstance(self.author, Author) else self.author
        return {"value": self.value, "author": author, "idempotency_key": self.idempotency_key}


def is_delivered(record: Record) -> bool:
    """Return whether a journal line holds a delivery."""
    operation: Any = record.line["operation"]
    # The body of a large operation is not in its line.
    return bool(operation.get("body", operation).get("kind") == operations.Input.kind)
