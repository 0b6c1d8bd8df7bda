"""Resume rules: the lines that a resume declares dead, and those that last."""

from __future__ import annotations

from collections.abc import Collection

from app import errors, printable
from app.domain import gates
from app.domain.file_operations import FindFiles, ReadFiles
from app.domain.records import Record
from app.domain.runs import RunStart
from app.engine.stores import Loaded

_DECIDED = ("args", "options", "recipe_sha256")  # Facts of a run to which the approvals of its gates belong.


# A check of a slot performs nothing, so it has no line to declare dead: the cause of its failure is the step
# that filled the slot. The cause of a failed file check is the check itself, so that a file fixed by hand is
# checked again. A denial is never declared dead: a resume from it or from an earlier step is rejected.
def dead_positions(loaded: Loaded, from_key: str | None) -> set[int]:
    """Return the positions of the lines that a resume declares dead, besides those that are dead already.

    These are the causes of the ending, or the named step, and every later line that is not in a sibling branch. A
    denial is never among them: a resume that would let the run pass its gate again is refused.

    Raises:
        errors.Conflict: `gate_denied`.
        errors.RequestInvalid: `unknown_step`: no living line has that key; `detail.steps` lists the existing keys.
    """
    living, dying = _living_and_dying(loaded, from_key)
    _refuse_denied(dying if from_key is not None else [*dying, *_ended_by(loaded, living)])
    return {record.position for record in dying}


def refuse_outdated(loaded: Loaded, dead: Collection[int], start: RunStart) -> None:
    """Refuse a resume of a changed run that would keep what several keys, or another person, have decided about it.

    Args:
        dead: Positions of the lines that the resume declares dead.
        start: The facts with which the run would continue.

    Raises:
        errors.Conflict: `approval_outdated`.
    """
    before = loaded.start
    if before.approvals is None or all(getattr(before, name) == getattr(start, name) for name in _DECIDED):
        return
    for record in loaded.records:
        answer = gates.answer_in(record)
        is_kept = record.position not in loaded.decisions.dead and record.position not in dead
        if is_kept and answer is not None and not answer["denied"]:
            message = (
                f"the gate {record.key!r} was decided before this change, and its approvals do not hold for it; "
                f"ask again with --from {record.key} (`from` in the request), or fork the run with the same changes"
            )
            raise errors.Conflict(message, code="approval_outdated", key=record.key)


def lasting(loaded: Loaded, from_key: str | None) -> list[Record]:
    """Return the finished steps that are kept if a run begins anew at a step, or at the causes of its ending.

    Raises:
        errors.RequestInvalid: `unknown_step`, as `dead_positions`.
    """
    living, dying = _living_and_dying(loaded, from_key)
    dying_positions = {record.position for record in dying}
    return [record for record in living if record.final and record.position not in dying_positions]


def _living_and_dying(loaded: Loaded, from_key: str | None) -> tuple[list[Record], list[Record]]:
    living = [record for record in loaded.records if record.position not in loaded.decisions.dead]
    roots = _causes(loaded, living) if from_key is None else _named(living, from_key)
    return living, [record for record in living if any(_dies_with(record, root) for root in roots)]


def _refuse_denied(dying: list[Record]) -> None:
    for record in dying:
        if gates.is_denial(record):
            message = f"the gate {record.key!r} was denied, which is final: a resume cannot pass it; start a new run"
            raise errors.Conflict(
                message, code="gate_denied", key=record.key, detail=dict(gates.answer_facts(record.output))
            )


def _causes(loaded: Loaded, living: list[Record]) -> list[Record]:
    end_line = loaded.decisions.ended
    causes = set(end_line.causes) if end_line else set()
    keys = {record.key for record in living if record.position in causes}
    # With its earlier attempts, a step that has used up its retries would be performed only once more.
    return [record for record in living if record.position in causes or (record.key in keys and not record.final)]


def _ended_by(loaded: Loaded, living: list[Record]) -> list[Record]:
    # A recipe can end by a denial without naming it as a cause; a resume would only end in the same way again.
    end_line = loaded.decisions.ended
    key = end_line.error.get("key") if end_line and end_line.error else None
    return [record for record in living if record.key == key]


def _named(living: list[Record], key: str) -> list[Record]:
    named = [record for record in living if record.key == key]
    if not named:
        steps = list(dict.fromkeys(record.key for record in living))
        there = printable.listed(steps) or "none yet"
        message = f"the run has no finished step {key!r} to go back to; its finished steps: {there}"
        flaw = errors.Flaw(path="$.from", code="unknown_step", message=message)
        raise errors.RequestInvalid(message, code="unknown_step", flaws=[flaw], detail={"steps": steps[:100]})
    # What was looked up for the step would otherwise be handed to it as it was, e.g. a prompt that was edited since.
    looked_up = [record for record in living if _is_looked_up_for(key, record)]
    return (looked_up or named)[:1]


def _is_looked_up_for(key: str, record: Record) -> bool:
    body = record.line["operation"].get("body")
    reads = isinstance(body, dict) and body.get("kind") in (FindFiles.kind, ReadFiles.kind)
    # Not its condition, which would be decided by the files that the step itself has made.
    return reads and record.key in (f"{key}.files", f"{key}.input")


def _dies_with(record: Record, root: Record) -> bool:
    return record.position >= root.position and _related(record.branch, root.branch)


def _related(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
