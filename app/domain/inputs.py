"""Inputs: values delivered to a run from outside, and the results that the steps of inputs and gates record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from app import errors
from app.domain import operations, plain
from app.domain.authors import Author
from app.domain.gates import Answer, OpenGate
from app.domain.records import Record, Result

SYSTEM = "system"  # Author of values that a source supplies.


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
    """Return whether a journal line records a delivery."""
    operation: Any = record.line["operation"]
    # The body of a large operation is not in its line.
    return bool(operation.get("body", operation).get("kind") == operations.Input.kind)


def result(gate: OpenGate | None, delivery: Answer | Delivery) -> Result:
    """Return the result of the step of an input or a gate; the result of a gate is bound to the shown content."""
    if isinstance(delivery, Delivery):
        author = delivery.author
        source = (author.name or author.via if isinstance(author, Author) else author) or "outside"
        return Result(output=delivery.output(), summary=f"from {source}")
    assert gate is not None
    message = f": {delivery.message}" if delivery.message else ""
    return Result(output=delivery.on(gate), summary=f"{delivery.decision}{message}")


def refuse_unknown(decision: str, open_gate: OpenGate) -> None:
    """Check that a gate has an option.

    Raises:
        errors.RequestInvalid: `unknown_decision`.
    """
    options = open_gate.gate.options
    if decision not in options:
        message = f"{decision!r:.80} is not an option of this gate; options: {', '.join(options)}"
        raise errors.RequestInvalid(
            message, code="unknown_decision", key=open_gate.key, detail={"options": list(options)}
        )


def lapsed(kind: str, key: str) -> errors.Conflict:
    """Return the error for a delivery to an attempt that is not the present one."""
    return errors.Conflict(f"the {kind} {key!r} has been asked again since", code=f"{kind}_lapsed", key=key)
