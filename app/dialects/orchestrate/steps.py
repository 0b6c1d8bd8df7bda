"""Rules of single steps beyond the schema: exclusive fields, references and targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app import errors
from app.dialects.orchestrate import providers, schema, scopes, variables
from app.domain import json_schemas, json_text, plain

_BOTH = ("provider", "command")
_ONLY_PROGRAMS = ("input_file", "output_file", "output_capture", "allow_parse_error", "output_schema", "output_require")
_OF_FORMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*_ONLY_PROGRAMS, "env", "secrets", "timeout_sec", "idle_seconds"), _BOTH),
    "provider_params": ("provider",),
    "retries": (*_BOTH, "wait_for"),
}
_JSON_ONLY = ("allow_parse_error", "output_schema", "output_require")
_EXPRESSION = re.compile(r"[*\[\]]")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")

_LIFECYCLE = "lifecycle"
_ITERATION_CHARACTERS = 14
_MOST_CHARACTERS = 200

_Flaws: TypeAlias = Iterator[errors.Flaw]


def flaws(spot: scopes.Spot, document: plain.Object, everywhere: plain.Object) -> _Flaws:
    """Return the flaws of one step; malformed parts are skipped."""
    if spot.repeated:
        yield spot.flaw("duplicate_name", f"{spot.step['name']:.80} is the name of another step beside it", "name")
    yield from _of_name(spot)
    yield from _of_forms(spot)
    yield from _of_capture(spot)
    yield from _of_provider(spot, document)
    yield from _of_command(spot)
    yield from _of_injection(spot)
    yield from _of_requirements(spot)
    yield from _of_jumps(spot, everywhere)
    yield from _of_loop(spot)


def form(step: plain.Object) -> str | None:
    """Return the form of a step: `provider`, `command`, `wait_for` or `for_each`; None unless it has exactly one."""
    present = [name for name in schema.FORMS if name in step]
    return present[0] if len(present) == 1 else None


def _of_name(spot: scopes.Spot) -> _Flaws:
    loops, name = spot.scope.loops(), str(spot.step.get("name"))
    if loops and name == _LIFECYCLE and "on_item_complete" in loops[0]["for_each"]:
        yield spot.flaw("reserved_name", f"{name} is reserved: the state stores the result of an item there", "name")
    # Keys and names of logs contain the names of all loops around a step, with iterations and visits.
    length = len(name) + sum(len(str(loop.get("name"))) + _ITERATION_CHARACTERS for loop in loops)
    if length > _MOST_CHARACTERS:
        message = f"is {length} characters long with the loops around it, more than {_MOST_CHARACTERS}"
        yield spot.flaw("too_deep_loops", message, "name")


def _of_forms(spot: scopes.Spot) -> _Flaws:
    present = [name for name in schema.FORMS if name in spot.step]
    if not present:
        yield spot.flaw("missing_field", f"does nothing: it needs one of {', '.join(schema.FORMS)}")
    if len(present) > 1:
        yield spot.flaw("exclusive_fields", f"has {' and '.join(present)}, which exclude one another")
    kind = form(spot.step)
    for name, forms in _OF_FORMS.items():
        if kind is not None and name in spot.step and kind not in forms:
            hint = "; a wait has its own `timeout_sec`" if (kind, name) == ("wait_for", "timeout_sec") else ""
            yield spot.flaw("misplaced_field", f"does not apply to a step with {kind}{hint}", name)


def _of_capture(spot: scopes.Spot) -> _Flaws:
    step = spot.step
    for name in _JSON_ONLY:
        if step.get("output_capture", "text") != schema.JSON and step.get(name, False) is not False:
            yield spot.flaw("needs_json_capture", "applies only with `output_capture: json`", name)
    for name in ("output_schema", "output_require"):
        if name in step and step.get("allow_parse_error") is True:
            message = "excludes `allow_parse_error: true`: output that need not be JSON cannot be checked"
            yield spot.flaw("exclusive_fields", message, name)


def _of_provider(spot: scopes.Spot, document: plain.Object) -> _Flaws:
    name, declared = spot.step.get("provider"), document.get("providers", {})
    if isinstance(name, str) and isinstance(declared, dict) and name not in {*declared, *providers.BUILT_IN}:
        near = json_schemas.nearest(name, [*declared, *providers.BUILT_IN])
        message = f"there is no provider {name!r:.80}{near}; declare it under `providers`"
        yield spot.flaw("unknown_provider", message, "provider")


def _of_command(spot: scopes.Spot) -> _Flaws:
    command = spot.step.get("command")
    if isinstance(command, list) and command and command[0] == "":
        yield spot.flaw("invalid_value", "names no program", "command", 0)


def _of_injection(spot: scopes.Spot) -> _Flaws:
    needs = spot.step.get("depends_on")
    inject = needs.get("inject", False) if isinstance(needs, dict) else False
    injects = inject is True or (isinstance(inject, dict) and inject.get("mode", "none") != "none")
    kind = form(spot.step)
    has_prompt = kind in (None, "provider") or (kind == "command" and "input_file" in spot.step)
    if injects and not has_prompt:
        message = "has no prompt to go into: only providers have one, and commands with an `input_file`"
        yield spot.flaw("misplaced_field", message, "depends_on", "inject")


def _of_requirements(spot: scopes.Spot) -> _Flaws:
    listed = spot.step.get("output_require")
    for index, requirement in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(requirement, dict):
            continue
        place, pointer = (*spot.place, "output_require", index), requirement.get("pointer")
        if isinstance(pointer, str) and not _POINTER.fullmatch(pointer):
            message = f"{pointer!r:.80} is not a JSON Pointer: it is empty or begins with /, and ~ is written ~0"
            yield json_schemas.flaw((*place, "pointer"), "invalid_pointer", message)
        for name in ("equals", "type"):
            if requirement.get("exists") is False and name in requirement:
                yield json_schemas.flaw((*place, name), "exclusive_fields", "cannot hold for what must not exist")


def _of_jumps(spot: scopes.Spot, everywhere: plain.Object) -> _Flaws:
    branches = spot.step.get("on")
    for event, branch in branches.items() if isinstance(branches, dict) else ():
        target = branch.get("goto") if isinstance(branch, dict) else None
        if isinstance(target, str) and (problem := scopes.problem_of_goto(target, spot, everywhere)) is not None:
            yield json_schemas.flaw((*spot.place, "on", event, "goto"), *problem)


def _of_loop(spot: scopes.Spot) -> _Flaws:
    loop, place = spot.loop, (*spot.place, "for_each")
    if loop is None:
        return
    if "items" not in loop and "items_from" not in loop:
        yield json_schemas.flaw(place, "missing_field", "has no items: it needs `items` or `items_from`")
    if "items" in loop and "items_from" in loop:
        yield json_schemas.flaw(place, "exclusive_fields", "has items and items_from, which exclude one another")
    if loop.get("as") in variables.RESERVED:
        yield json_schemas.flaw((*place, "as"), "reserved_name", f"{loop['as']} has a meaning of its own")
    if isinstance(loop.get("items_from"), str):
        yield from _of_items_from(loop["items_from"], spot, (*place, "items_from"))


def _of_items_from(text: str, spot: scopes.Spot, place: json_text.Parts) -> _Flaws:
    pointer = variables.pointer(text)
    if pointer is None:
        message = f"{text!r:.80} must be steps.NAME.lines, or steps.NAME.json and names behind dots"
        yield json_schemas.flaw(place, "invalid_pointer", message)
        return
    if (part := next((part for part in pointer.path if _EXPRESSION.search(part)), None)) is not None:
        message = f"has the part {part!r:.80}, but a path consists of names, and of positions as in .0: no wildcards"
        yield json_schemas.flaw(place, "invalid_pointer", message)
    source = spot.scope.find(pointer.step)
    if source is None:
        near = json_schemas.nearest(pointer.step, spot.scope.names())
        yield json_schemas.flaw(place, "unknown_step", f"names {pointer.step!r:.80}, which is not a step here{near}")
    elif form(source) is not None and source.get("output_capture", "text") != pointer.field:
        message = f"{pointer.step} does not have `output_capture: {pointer.field}`"
        yield json_schemas.flaw(place, "wrong_capture", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition with its variables substituted; all its parts must hold."""

    equals: tuple[str, str] | None = None  # Two texts that must be equal.
    exists: str | None = None  # Pattern that must match at least one file.
    not_exists: str | None = None  # Pattern that must match no file.

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return the patterns to look up; none if the texts already decide."""
        if self.equals is not None and self.equals[0] != self.equals[1]:
            return ()
        return tuple(dict.fromkeys(pattern for pattern in (self.exists, self.not_exists) if pattern is not None))

    def holds(self, fitting: Mapping[str, int]) -> bool:
        """Return whether the condition holds."""
        if self.equals is not None and self.equals[0] != self.equals[1]:
            return False
        if self.exists is not None and fitting[self.exists] == 0:
            return False
        return self.not_exists is None or fitting[self.not_exists] == 0


def read(when: plain.Object, filler: variables.Filler) -> Condition:
    """Return a step's condition; the filler collects undefined names."""
    equals = when.get("equals")
    return Condition(
        equals=None if equals is None else (_text(equals["left"], filler), _text(equals["right"], filler)),
        exists=_pattern(when.get("exists"), filler),
        not_exists=_pattern(when.get("not_exists"), filler),
    )


def _text(value: plain.Json, filler: variables.Filler) -> str:
    return variables.written(filler.value(value))


def _pattern(template: str | None, filler: variables.Filler) -> str | None:
    return None if template is None else filler.pattern(template)
