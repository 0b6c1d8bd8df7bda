"""Input results: what the step of an input or a gate records once something is delivered to it."""

from __future__ import annotations

from app import errors
from app.domain.authors import Author
from app.domain.gates import Answer, OpenGate
from app.domain.inputs import Delivery
from app.domain.records import Result

SYSTEM = "system"  # Author of what a source gives.


def result(gate: OpenGate | None, delivery: Answer | Delivery) -> Result:
    """Return the result of a step; a gate's is bound to what was shown."""
    if isinstance(delivery, Delivery):
        return Result(output=delivery.output(), summary=f"from {_source(delivery)}")
    assert gate is not None
    message = f": {delivery.message}" if delivery.message else ""
    return Result(output=delivery.on(gate), summary=f"{delivery.decision}{message}")


def refuse_unknown(decision: str, asked: OpenGate) -> None:
    """Make sure that a gate has an option.

    Raises:
        errors.RequestInvalid: `unknown_decision`.
    """
    options = asked.gate.options
    if decision not in options:
        message = f"{decision!r:.80} is not an option of this gate; options: {', '.join(options)}"
        raise errors.RequestInvalid(message, code="unknown_decision", key=asked.key, detail={"options": list(options)})


def lapsed(kind: str, key: str) -> errors.Conflict:
    """Return the refusal of a delivery for a try that is not the present one."""
    return errors.Conflict(f"the {kind} {key!r} has been asked again since", code=f"{kind}_lapsed", key=key)


def _source(delivery: Delivery) -> str:
    author = delivery.author
    return (author.name or author.via if isinstance(author, Author) else author) or "outside"
