"""Resumption: which lines of an ended run die when it is sent on."""

# A check of a slot performs nothing, so no line of its own could be set aside: the cause of its failure is the step
# that filled the slot. The cause of a failed file check is the check itself, so that a file fixed by hand is
# checked again. A denial is never set aside: a resume that would begin at it or before it is rejected.

from __future__ import annotations

from app import errors
from app.domain import gates
from app.domain.records import Record
from app.engine.stores import Loaded


def dead_positions(loaded: Loaded, from_key: str | None) -> set[int]:
    """Return the positions of the lines that a resume declares dead, beside those that are dead already.

    Dead are the causes of the ending, or the step named, and every later line that is not in a sibling branch. Never
    among them is a denial: whatever would let the run come by its gate once more is refused.

    Raises:
        errors.Conflict: `gate_denied`.
        errors.RequestInvalid: `unknown_step`; no living line has that key, `detail.steps` names those that have.
    """
    living = [record for record in loaded.records if record.position not in loaded.decisions.dead]
    roots = _causes(loaded, living) if from_key is None else _named(living, from_key)
    dying = [record for record in living if any(_dies_with(record, root) for root in roots)]
    _refuse_denied(dying if from_key is not None else [*dying, *_ended_by(loaded, living)])
    return {record.position for record in dying}


def _refuse_denied(dying: list[Record]) -> None:
    for record in dying:
        if gates.is_denial(record):
            told = f"the gate {record.key!r} was denied, which is final: no resume goes past it; start a new run"
            raise errors.Conflict(told, code="gate_denied", key=record.key, detail=dict(gates.told(record.output)))


def _causes(loaded: Loaded, living: list[Record]) -> list[Record]:
    ended = loaded.decisions.ended
    causes = set(ended.causes) if ended else set()
    return [record for record in living if record.position in causes]


def _ended_by(loaded: Loaded, living: list[Record]) -> list[Record]:
    # A recipe may end by a denial without naming it a cause; a resume would only end it the same way once more.
    ended = loaded.decisions.ended
    key = ended.error.get("key") if ended and ended.error else None
    return [record for record in living if record.key == key]


def _named(living: list[Record], key: str) -> list[Record]:
    named = [record for record in living if record.key == key]
    if not named:
        steps = list(dict.fromkeys(record.key for record in living))
        raise errors.RequestInvalid(
            f"the run has no finished step {key!r} to go back to", code="unknown_step", detail={"steps": steps[:100]}
        )
    return named[:1]


def _dies_with(record: Record, root: Record) -> bool:
    return record.position >= root.position and _related(record.branch, root.branch)


def _related(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
