"""Walk: visit every step of a recipe with its place, and the variables that may exist when the flow reaches it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app import errors
from app.dialects.amplifier import schema, templates
from app.domain import json_schemas, json_text, plain

_Names: TypeAlias = frozenset[str]

RESERVED_PARTS: Mapping[str, tuple[str, ...]] = {
    "recipe": ("name", "version", "description"),
    "session": ("id", "started", "project"),
    "step": ("id", "index"),
    templates.APPROVAL: ("stage", "decision", "message", "by_default"),
}
"""Parts of reserved names after the dot."""

MOST_KEY = 300  # Longest key, which names an operation at a place of the flow.
_BEHIND = 20

SETTING = ("output", "collect", "output_exit_code")  # Fields of a step that name a variable to set.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    place: json_text.Parts  # Place of the object in the document.

    def flaw(self, code: str, message: str, *parts: str | int) -> errors.Flaw:
        """Return a flaw of the object, or of the given part of it."""
        return json_schemas.flaw((*self.place, *parts), code, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot(_Placed):
    """One step, or one loop inside of a step, with the variables that it can name."""

    step: plain.Object  # The step, or the inner loop.
    before: _Names  # Variables that its condition and its list can name.
    inside: _Names  # Variables that its prompt can name: loop variables too.
    after: _Names  # Variables that can be named after each iteration, including those that it sets itself.
    earlier: tuple[str, ...]  # Ids of the steps before it.
    inner: bool = False  # Whether it is a loop inside of a step's loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(_Placed):
    """One approval, with the variables that it can name."""

    approval: plain.Object  # The approval.
    known: _Names  # Variables that its prompt can name.


def reserved(version: str) -> tuple[str, ...]:
    """Return the names that no variable can have."""
    return templates.RESERVED if version == schema.FIRST else (*templates.RESERVED, templates.APPROVAL)


def stages(document: plain.Object) -> Iterator[tuple[json_text.Parts, plain.Object]]:
    """Return the stages of a recipe with their places; a recipe without stages is a single one without a name."""
    if "stages" in document:
        yield from ((("stages", index), stage) for index, stage in _objects(document["stages"]))
    else:
        yield (), document


def steps(document: plain.Object) -> list[plain.Object]:
    """Return the steps of all stages, without those inside of others."""
    return [step for _, stage in stages(document) for _, step in _objects(stage.get("steps"))]


def placed(document: plain.Object) -> Iterator[tuple[json_text.Parts, plain.Object]]:
    """Return every step with its place, including those inside of others, in the order of the flow."""
    for place, stage in stages(document):
        yield from _placed(stage.get("steps"), (*place, "steps"))


def ids(document: plain.Object) -> tuple[str, ...]:
    """Return the ids of all steps, including those inside of others, in the order of the file."""
    return tuple(name for step in steps(document) for name in _ids(step))


def spots(document: plain.Object) -> Iterator[Spot | Question]:
    """Return every step, inner loop and approval, in the order of the flow; malformed parts are skipped."""
    known, earlier = given(document), tuple[str, ...]()
    for place, stage in stages(document):
        requested = _mapping(stage.get("approval")) if place else {}
        question = Question(place=(*place, "approval"), approval=requested, known=known)
        before = requested.get("when") in (schema.BEFORE, f"{schema.BEFORE}_stage")
        if before:
            yield question
            known |= _named(requested.get("output"))
        yield from _in_order(stage.get("steps"), (*place, "steps"), known, earlier)
        for _, step in _objects(stage.get("steps")):
            known, earlier = known | set_by(step), (*earlier, *_ids(step))
        if requested and not before:
            yield dataclasses.replace(question, known=known)
            known |= _named(requested.get("output"))


def too_deep(document: plain.Object) -> Iterator[json_text.Parts]:
    """Return the steps that are nested so deeply that their keys, with positions in loops, would be too long."""
    for place, stage in stages(document):
        for index, step in _objects(stage.get("steps")):
            yield from _too_deep(step, (*place, "steps", index), 0)


def given(document: plain.Object) -> _Names:
    """Return the variables that a run begins with."""
    context, schema = document.get("context"), document.get("args_schema")
    declared = schema.get("properties") if isinstance(schema, dict) else None
    facts = (templates.STAGE, templates.APPROVAL_MESSAGE) if "stages" in document else ()
    return frozenset((*_mapping(context), *_mapping(declared), *facts))


def made(document: plain.Object) -> _Names:
    """Return the variables that steps and approvals set."""
    found: _Names = frozenset().union(*map(set_by, steps(document)))
    for _, stage in stages(document):
        found |= _named(_mapping(stage.get("approval")).get("output"))
    return found


def path_args(document: plain.Object) -> dict[str, bool]:
    """Return the variables of the request that are the whole folder of a command, which must exist."""
    named = (templates.reference(step["cwd"]) for _, step in placed(document) if isinstance(step.get("cwd"), str))
    changed = made(document) | looped(document)
    return {name: True for name in named if name is not None and name not in changed}


def looped(document: plain.Object) -> _Names:
    """Return the variables of all loops."""
    found: _Names = frozenset()
    for spot in spots(document):
        if isinstance(spot, Spot):
            found |= _loop_variables(spot.step)
    return found


def body(step: plain.Object) -> Iterator[tuple[str, int, plain.Object]]:
    """Return the steps inside of a step, each with its field and position."""
    for name in (schema.SUBSTEPS, schema.STEPS):
        yield from ((name, index, substep) for index, substep in _objects(step.get(name)))


def set_by(step: plain.Object) -> _Names:
    """Return the variables that a step, and the steps inside of it, set."""
    own = frozenset(step[name] for name in SETTING if isinstance(step.get(name), str))
    below = (set_by(substep) for _, _, substep in body(step))
    return own.union(_mapping(step.get("update_context")), *below)


def _placed(items: plain.Json, place: json_text.Parts) -> Iterator[tuple[json_text.Parts, plain.Object]]:
    for index, step in _objects(items):
        yield (*place, index), step
        for name in (schema.SUBSTEPS, schema.STEPS):
            yield from _placed(step.get(name), (*place, index, name))


def _too_deep(step: plain.Object, place: json_text.Parts, before: int) -> Iterator[json_text.Parts]:
    length = before + len(step["id"] if isinstance(step.get("id"), str) else "") + _positions(step)
    if length + _BEHIND > MOST_KEY:
        yield place
        return
    for name, index, substep in body(step):
        yield from _too_deep(substep, (*place, name, index), length + 1)


def _positions(step: plain.Object) -> int:
    length, loop = 0, step if "foreach" in step or "while_condition" in step else {}
    while loop:
        most = loop.get("max_while_iterations", loop.get("max_iterations"))
        length += len(f"[{(most if isinstance(most, int) else schema.DEFAULT_ITERATIONS) - 1}]")
        loop = _mapping(loop.get("nested_foreach"))
    return length


def _in_order(items: plain.Json, place: json_text.Parts, known: _Names, earlier: tuple[str, ...]) -> Iterator[Spot]:
    for index, step in _objects(items):
        yield from _of_step(step, (*place, index), known, earlier)
        known, earlier = known | set_by(step), (*earlier, *_ids(step))


def _of_step(step: plain.Object, place: json_text.Parts, known: _Names, earlier: tuple[str, ...]) -> Iterator[Spot]:
    loops, inside = list[tuple[json_text.Parts, plain.Object, _Names]](), known
    loop: plain.Json = step
    while isinstance(loop, dict):
        loops.append(((*place, *("nested_foreach",) * len(loops)), loop, inside))
        inside |= _loop_variables(loop)
        loop = loop.get("nested_foreach")
    for where, loop, before in loops:
        after = inside | set_by(step)
        yield Spot(
            place=where, step=loop, before=before, inside=inside, after=after, earlier=earlier, inner=loop is not step
        )
    # Parallel branches do not see variables that other branches set.
    if "foreach" not in step and step.get("parallel") not in (None, False):
        for name, index, substep in body(step):
            yield from _of_step(substep, (*place, name, index), inside, earlier)
    else:
        for name in (schema.SUBSTEPS, schema.STEPS):
            yield from _in_order(step.get(name), (*place, name), inside, earlier)


def _ids(step: plain.Object) -> tuple[str, ...]:
    own = (step["id"],) if isinstance(step.get("id"), str) else ()
    return (*own, *(name for _, _, substep in body(step) for name in _ids(substep)))


def _loop_variables(loop: plain.Object) -> _Names:
    found = _named(loop.get("index_as")) | frozenset(schema.COUNTERS if "while_condition" in loop else ())
    return found | _named(loop.get("as", schema.DEFAULT_ITEM)) if "foreach" in loop else found


def _named(value: plain.Json) -> _Names:
    return frozenset((value,)) if isinstance(value, str) else frozenset()


def _mapping(value: plain.Json) -> plain.Object:
    return value if isinstance(value, dict) else {}


def _objects(value: plain.Json) -> Iterator[tuple[int, plain.Object]]:
    yield from (
        (index, item) for index, item in enumerate(value if isinstance(value, list) else ()) if isinstance(item, dict)
    )
