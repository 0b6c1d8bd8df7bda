"""The parser: convert a text into a recipe, or report all its flaws."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator
from typing import TypeAlias

from app import errors
from app.dialects import forms, json_source
from app.dialects.control_room import done, paths, refs, schema
from app.domain import json_schemas, json_text, library, plain, task_patterns

DIALECT = "control_room"  # Name of this dialect.

_RESERVED_STEPS = ("commit", "dod", "finding", "findings")

_Place: TypeAlias = json_text.Parts


def parse(source: str) -> library.Recipe:
    """Read a recipe."""
    document = json_source.document(source)
    found = json_schemas.flaws(schema.json_schema(), document)
    if isinstance(document, dict):
        worded = forms.in_words(map(_renamed, found), schema.FORMS)
        found = json_schemas.first_flaws(itertools.chain(worded, _Survey(document).flaws()))
    if found:
        raise errors.RecipeInvalid(f"The recipe is not valid: {_described(found[0])}", flaws=found)
    return library.Recipe(
        recipe_id=document["recipe_id"],
        dialect=DIALECT,
        label=document.get("label", document["recipe_id"]),
        document=document,
        args_schema=args_schema(document),
        task_patterns=tuple(document.get("task_patterns", ())),
        done_when=done.in_words(document.get("dod", ())),
        leaves=tuple(step["output_slot"] for step in document.get("phase_b", ())),
        writes=tuple(output["slot"] for output in document.get("outputs", ())),
        total_steps=len(document.get("phase_a", ())) + len(document.get("phase_b", ())),
    )


def draft(source: str) -> library.Recipe | None:
    """Return the well-formed steps of a flawed recipe, each at its index, and None for the others."""
    try:
        document = json_text.read(source, exact=True)
    except errors.InputRefused:
        return None
    if not isinstance(document, dict):
        return None
    steps = {
        phase: [_sound(kind, step) for step in document[phase]]
        for phase, kind in (("phase_a", "tool_step"), ("phase_b", "agent_step"))
        if isinstance(document.get(phase), list)
    }
    if "args_schema" in document and json_schemas.args_schema_flaws(document["args_schema"]):
        del document["args_schema"]
    return library.Recipe(
        recipe_id="draft", dialect=DIALECT, label="draft", document=steps, args_schema=args_schema(document)
    )


def args_schema(document: plain.Object) -> dict[str, plain.Json]:
    """Return the schema of a recipe's arguments: the declared one, or each `task.args.X` in the recipe as required."""
    closed = {"type": "object", "additionalProperties": False}
    if "args_schema" in document:
        return closed | dict(document["args_schema"])
    names = list(dict.fromkeys(reference.arg for reference in _Survey(document).references() if reference.arg))
    return closed | {"properties": {name: {} for name in names}, "required": names}


def _sound(kind: str, step: plain.Json) -> plain.Json:
    whole = schema.json_schema()
    found = json_schemas.flaws({"$ref": f"#/$defs/{kind}", "$defs": whole["$defs"]}, step)
    references = refs.found_in(step.get("args")) if isinstance(step, dict) else ()
    readable = all(_readable(value) for _, value in references)
    return step if readable and all(flaw.code == "unknown_field" for flaw in found) else None


def _readable(value: plain.Object) -> bool:
    try:
        return len(value) == 1 and bool(refs.read(value["$ref"]))
    except (ValueError, TypeError):
        return False


def _renamed(flaw: errors.Flaw) -> errors.Flaw:
    if flaw.code == "invalid_value" and flaw.path.endswith("].check"):
        return errors.Flaw(path=flaw.path, code="unknown_check", message=flaw.message)
    return flaw


def _described(flaw: errors.Flaw) -> str:
    return f"{flaw.path} {flaw.message}"


class _Survey:
    """Read a document that may be malformed, and skip values of unexpected types."""

    def __init__(self, document: plain.Object) -> None:
        self._document = document
        self._tool_steps = list(_objects(document, "phase_a"))
        self._agent_steps = list(_objects(document, "phase_b"))
        self._steps = [*self._tool_steps, *self._agent_steps]
        written = [(_text(step, "output_slot"), index) for index, (_, step) in enumerate(self._steps)]
        # Reversed, so that the first step that fills a slot takes precedence.
        self._written = {slot: index for slot, index in reversed(written) if slot is not None}
        # A malformed step could fill any slot, so no slot is reported as unknown.
        self._all_known = len(written) == _count(document) and all(slot is not None for slot, _ in written)

    def flaws(self) -> Iterator[errors.Flaw]:
        yield from self._of_steps()
        yield from self._of_input_slots()
        yield from self._of_references()
        yield from self._of_outputs()
        yield from self._of_checks()
        yield from self._of_patterns()
        yield from self._of_args_schema()

    def references(self) -> Iterator[refs.Reference]:
        for _, text, _ in self._reference_texts():
            try:
                yield refs.read(text)
            except ValueError:
                continue

    def _of_steps(self) -> Iterator[errors.Flaw]:
        if not self._steps and all(isinstance(self._document.get(name, []), list) for name in ("phase_a", "phase_b")):
            yield json_schemas.flaw((), "no_steps", "has no steps")
        ids: set[str] = set()
        slots: set[str] = set()
        for place, step in self._steps:
            step_id, slot = _text(step, "step_id"), _text(step, "output_slot")
            if step_id in ids:
                yield json_schemas.flaw((*place, "step_id"), "duplicate_step_id", f"{step_id} is the id of two steps")
            if step_id in _RESERVED_STEPS:
                yield json_schemas.flaw((*place, "step_id"), "reserved_name", f"{step_id} is reserved for the engine")
            if isinstance(step.get("reply_schema"), dict):
                yield from json_schemas.schema_flaws(step["reply_schema"], (*place, "reply_schema"))
            if slot in slots:
                yield json_schemas.flaw((*place, "output_slot"), "duplicate_slot", f"{slot} is filled by two steps")
            if slot == refs.TASK:
                yield json_schemas.flaw(
                    (*place, "output_slot"), "reserved_name", "task is the root of the task's facts"
                )
            ids.update([step_id] if step_id else [])
            slots.update([slot] if slot else [])

    def _of_input_slots(self) -> Iterator[errors.Flaw]:
        for index, (place, step) in enumerate(self._agent_steps, start=len(self._tool_steps)):
            params = step.get("input_slots")
            named = set[str]()
            for position, slot in enumerate(params if isinstance(params, list) else ()):
                here = (*place, "input_slots", position)
                if not isinstance(slot, str):
                    continue
                if slot in named:
                    yield json_schemas.flaw(here, "duplicate_slot", "is named twice")
                else:
                    yield from self._unwritten(slot, index, here, "unknown_slot")
                named.add(slot)

    def _of_references(self) -> Iterator[errors.Flaw]:
        declared = self._declared()
        for place, text, before in self._reference_texts():
            try:
                reference = refs.read(text)
            except ValueError as error:
                yield json_schemas.flaw(place, "invalid_ref", f"{text!r:.80} {error}")
                continue
            if "*" in reference.steps:
                message = f"{text!r:.80} has the part '*'; wildcards are not supported"
                yield json_schemas.flaw(place, "invalid_ref", message)
            if reference.root != refs.TASK:
                yield from self._unwritten(reference.root, before, place, "unreachable_ref_root")
                continue
            problem = refs.task_problem(reference, declared) or self._output_problem(reference, place)
            if problem is not None:
                yield json_schemas.flaw(place, *problem)
        for place, found, _ in self._reference_objects:
            if not (len(found) == 1 and isinstance(found["$ref"], str)):
                yield json_schemas.flaw(place, "invalid_ref", "a $ref object contains one text and no other field")

    def _output_problem(self, reference: refs.Reference, place: _Place) -> tuple[str, str] | None:
        if reference.steps[:1] != (refs.OUTPUTS,):
            return None
        slots = [_text(output, "slot") for _, output in _objects(self._document, "outputs")]
        if place[0] == "dod" and len(reference.steps) == 2 and reference.steps[1] in slots:
            return None
        return "unreachable_ref_root", f"{reference.text} is allowed only in dod, with the slot of an output"

    def _declared(self) -> Collection[str]:
        declared = self._document.get("args_schema")
        if not isinstance(declared, dict):
            return {reference.arg for reference in self.references() if reference.arg}
        properties = declared.get("properties")
        return properties.keys() if isinstance(properties, dict) else ()

    @functools.cached_property
    def _reference_objects(self) -> list[tuple[_Place, plain.Object, int]]:
        return [
            (where, found, index)
            for index, (place, step) in enumerate(self._tool_steps)
            for where, found in refs.found_in(step.get("args"), (*place, "args"))
        ]

    def _reference_texts(self) -> Iterator[tuple[_Place, str, int]]:
        for where, found, index in self._reference_objects:
            if isinstance(found["$ref"], str):
                yield (*where, "$ref"), found["$ref"], index
        end = len(self._steps)
        for name in ("outputs", "dod"):
            for place, part in _objects(self._document, name):
                for field in ("path", "otherwise"):
                    for where, text in paths.references(part.get(field), (*place, field)):
                        yield where, text, end
        for where, text in paths.references(self._document.get("findings"), ("findings",)):
            yield where, text, end

    def _of_outputs(self) -> Iterator[errors.Flaw]:
        seen: set[str] = set()
        paths_before: set[str | None] = set()
        for place, output in _objects(self._document, "outputs"):
            slot, here, path = _text(output, "slot"), (*place, "slot"), _text(output, "path")
            if path and path in paths_before and output.get("overwrite") is not True and "otherwise" not in output:
                message = "is the path of an earlier output, whose file this one would not replace"
                yield json_schemas.flaw((*place, "path"), "duplicate_path", message)
            paths_before.add(path)
            if slot is None:
                continue
            yield from self._unwritten(slot, len(self._steps), here, "unknown_slot")
            if self._written.get(slot, len(self._steps)) < len(self._tool_steps):
                yield json_schemas.flaw(here, "not_an_artifact", f"{slot} is filled by a tool; only texts are written")
            if slot in seen:
                yield json_schemas.flaw(here, "duplicate_slot", f"{slot} is written twice")
            seen.add(slot)
            for field in ("path", "otherwise"):
                yield from paths.flaws(output.get(field), (*place, field), self._rules())
            if output.get("overwrite") is True and "otherwise" in output:
                message = "is never written: overwrite replaces the file at path"
                yield json_schemas.flaw((*place, "otherwise"), "exclusive_fields", message)

    def _of_checks(self) -> Iterator[errors.Flaw]:
        for place, check in _objects(self._document, "dod"):
            slot, field = _text(check, "slot"), _text(check, "field")
            if slot is not None:
                yield from self._unwritten(slot, len(self._steps), (*place, "slot"), "unknown_slot")
            if field:
                try:
                    refs.read(done.field_path("slot", field))
                except ValueError as error:
                    yield json_schemas.flaw((*place, "field"), "invalid_ref", f"{field!r:.80} {error}")
            yield from paths.flaws(check.get("path"), (*place, "path"), self._rules())

    def _rules(self) -> plain.Object:
        declared = self._document.get("args_schema")
        rules = declared.get("properties") if isinstance(declared, dict) else None
        return rules if isinstance(rules, dict) else {}

    def _of_patterns(self) -> Iterator[errors.Flaw]:
        declared = self._declared()
        patterns = self._document.get("task_patterns")
        for index, pattern in enumerate(patterns if isinstance(patterns, list) else ()):
            if not isinstance(pattern, str):
                continue
            here = ("task_patterns", index)
            try:
                groups = task_patterns.read(pattern).groups
            except ValueError as error:
                yield json_schemas.flaw(here, "invalid_pattern", str(error))
                continue
            for name in sorted(set(groups) - set(declared)):
                yield json_schemas.flaw(here, "undeclared_arg", f"the group {name} is not an argument of the recipe")

    def _of_args_schema(self) -> list[errors.Flaw]:
        if "args_schema" not in self._document:
            return []
        return json_schemas.args_schema_flaws(self._document["args_schema"], ("args_schema",))

    def _unwritten(self, slot: str, before: int, place: _Place, code: str) -> Iterator[errors.Flaw]:
        index = self._written.get(slot)
        if index is None and self._all_known:
            yield json_schemas.flaw(place, code, f"no step fills the slot {slot!r:.80}{self._hint(slot)}")
        elif index is not None and index >= before:
            step = _text(self._steps[index][1], "step_id")
            yield json_schemas.flaw(place, "slot_before_written", f"{slot} is filled only later, by the step {step}")

    def _hint(self, slot: str) -> str:
        for _, step in self._steps:
            if step.get("step_id") == slot:
                return f"; the step {slot} fills {_text(step, 'output_slot')}"
        return json_schemas.nearest(slot, [*self._written, refs.TASK])


def _objects(document: plain.Object, name: str) -> Iterator[tuple[_Place, plain.Object]]:
    parts = document.get(name)
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict):
            yield (name, index), part


def _count(document: plain.Object) -> int:
    phases = [document.get(name, []) for name in ("phase_a", "phase_b")]
    return sum(len(phase) if isinstance(phase, list) else 1 for phase in phases)


def _text(part: plain.Object, name: str) -> str | None:
    value = part.get(name)
    return value if isinstance(value, str) else None
