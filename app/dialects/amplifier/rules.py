"""Rules beyond the schema: exclusive fields, references and the syntax of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from app import errors
from app.dialects.amplifier import conditions, declarations, schema, templates, walk
from app.domain import json_schemas, json_text, plain

MOST_STEPS = 2_000  # Most steps of one recipe, including those inside of others.

_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "agent": (
        "agent", "prompt", "mode", "agent_config", "provider", "model", "provider_preferences", "max_tokens",
        "reply_schema", "retry", "timeout", "idle_seconds", "parse_json",
    ),
    "bash": ("command", "cwd", "env", "secrets", "output_exit_code", "retry", "timeout", "idle_seconds", "parse_json"),
    "recipe": ("recipe", "context", "timeout"),
    "substeps": ("substeps", "steps"),
}  # fmt: skip
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "agent": ("agent", "prompt"),
    "bash": ("command",),
    "recipe": ("recipe",),
    "substeps": (),
}
_KINDS = frozenset(name for names in _OF_TYPE.values() for name in names)

_OF_LOOP: Mapping[str, tuple[str, ...]] = {
    "as": ("foreach",),
    "nested_foreach": ("foreach",),
    "break_if": ("foreach",),
    "collect": ("foreach", "while_condition"),
    "index_as": ("foreach", "while_condition"),
    "max_iterations": ("foreach", "while_condition"),
    "max_while_iterations": ("while_condition",),
    "continue_on_error": ("foreach", "while_condition", "substeps", "steps"),
    "parallel": ("foreach", "substeps", "steps"),
    "update_context": ("while_condition",),
    "break_when": ("while_condition", "foreach"),
}
_TOGETHER = (
    ("foreach", "while_condition"),
    ("provider_preferences", "provider"),
    ("provider_preferences", "model"),
    ("parse_json", "reply_schema"),
    ("substeps", "steps"),
    ("break_if", "break_when"),
    ("max_iterations", "max_while_iterations"),
)
_NAMES = ("as", "index_as", "collect", "output", "output_exit_code")
_CONDITIONS = ("condition", "while_condition", "break_if", "break_when")

_Flaws: TypeAlias = Iterator[errors.Flaw]


def flaws(document: plain.Object, version: str) -> _Flaws:
    """Return the flaws of a recipe beyond its schema; malformed parts are skipped."""
    yield from _of_parts(document)
    yield from _of_args(document, version)
    if len(walk.ids(document)) > MOST_STEPS:
        yield json_schemas.flaw((), "too_many_steps", f"has more than {MOST_STEPS} steps")
        return
    for place in walk.too_deep(document):
        yield json_schemas.flaw((*place, "id"), "too_deep", f"stands too deep: keys have {walk.MOST_KEY} characters")
    ids, everywhere = set[str](), frozenset(walk.given(document) | walk.made(document))
    for spot in walk.spots(document):
        check = _Checks(version, everywhere)
        if isinstance(spot, walk.Question):
            yield from _of_approval(spot, check)
            continue
        if not spot.inner:
            yield from _of_id(spot, ids)
            yield from _of_dependencies(spot, document)
            if version != schema.FIRST:
                yield from _of_type(spot)
            if "reply_schema" in spot.step:
                yield from json_schemas.schema_flaws(spot.step["reply_schema"], (*spot.place, "reply_schema"))
        yield from _of_loop(spot, version)
        yield from _of_texts(spot, check)
    for name in (name for name in ("final_output", "output") if isinstance(document.get(name), str)):
        if document[name] not in everywhere:
            near = json_schemas.nearest(document[name], everywhere)
            yield json_schemas.flaw((name,), "undefined_variable", f"{document[name]:.80} is set nowhere{near}")


# -- the whole recipe


def _of_parts(document: plain.Object) -> _Flaws:
    for one, other in (("steps", "stages"), ("final_output", "output")):
        if one in document and other in document:
            yield json_schemas.flaw((), "exclusive_fields", f"has {one} and {other}, which exclude one another")
    names: list[plain.Json] = []
    for place, stage in walk.stages(document):
        if place and stage.get("name") in names:
            yield json_schemas.flaw((*place, "name"), "duplicate_name", "is the name of another stage")
        if place and stage.get("name") == "result" and "approval" in walk.ids(document):
            # `approval:result` would be the key of the stage's approval, and of a result that the step cannot use.
            yield json_schemas.flaw((*place, "name"), "duplicate_name", "needs another name beside a step `approval`")
        names.append(stage.get("name"))


def _of_args(document: plain.Object, version: str) -> _Flaws:
    yield from declarations.flaws(document.get("context"), version)
    schema = document.get("args_schema")
    if isinstance(schema, dict):
        given = document.get("context")
        known = {*(given if isinstance(given, dict) else ()), *walk.made(document)}
        yield from json_schemas.args_schema_flaws(schema, ("args_schema",), known)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for place, names in ((("context",), document.get("context")), (("args_schema", "properties"), properties)):
        for name in names if isinstance(names, dict) else ():
            if name in walk.reserved(version):
                yield _reserved((*place, name), name)


def _of_approval(spot: walk.Question, check: _Checks) -> _Flaws:
    approval, prompt = spot.approval, spot.approval.get("prompt")
    if approval.get("required") is True and "prompt" not in approval:
        yield spot.flaw("missing_field", "is missing: it contains the question", "prompt")
    if isinstance(prompt, str):
        yield from check.template((*spot.place, "prompt"), prompt, spot.known, "approvals")
    if approval.get("output") in walk.reserved(check.version):
        yield _reserved((*spot.place, "output"), approval["output"])


# -- one step


def _of_id(spot: walk.Spot, ids: set[str]) -> _Flaws:
    name = spot.step.get("id")
    if isinstance(name, str):
        if name in ids:
            yield spot.flaw("duplicate_id", f"{name:.80} is the id of another step", "id")
        ids.add(name)


def _of_dependencies(spot: walk.Spot, document: plain.Object) -> _Flaws:
    needed = spot.step.get("depends_on")
    for index, name in enumerate(needed if isinstance(needed, list) else ()):
        if not isinstance(name, str) or name in spot.earlier:
            continue
        place = (*spot.place, "depends_on", index)
        if name == spot.step.get("id"):
            yield json_schemas.flaw(place, "circular_dependency", "is the step itself")
        elif name in walk.ids(document):
            message = f"{name:.80} is not before this step; steps are taken in the order of the file"
            yield json_schemas.flaw(place, "later_dependency", message)
        else:
            near = json_schemas.nearest(name, spot.earlier)
            yield json_schemas.flaw(place, "unknown_step", f"there is no step {name!r:.80}{near}")


def _of_type(spot: walk.Spot) -> _Flaws:
    step = spot.step
    kind = step.get("type", schema.TYPES[0]) if schema.body_of(step) is None else "substeps"
    if not isinstance(kind, str) or kind not in _OF_TYPE:
        return
    if kind == "substeps" and "type" in step:
        yield spot.flaw("exclusive_fields", "does not apply beside substeps", "type")
    for name in (name for name in _NEEDED[kind] if name not in step):
        yield spot.flaw("missing_field", f"is missing in a step of type {kind}", name)
    for name in step:
        if name in _KINDS and name not in _OF_TYPE[kind]:
            where = "beside substeps" if kind == "substeps" else f"in a step of type {kind}"
            instead = "write it on the steps of that recipe" if kind == "recipe" else "remove it"
            yield spot.flaw("misplaced_field", f"means nothing {where}; {instead}", name)


def _of_loop(spot: walk.Spot, version: str) -> _Flaws:
    step = spot.step
    known = {field.name for field in schema.KINDS["step"] if field.known_in(version)}
    for name, loops in _OF_LOOP.items():
        if name in step and name in known and not any(loop in step for loop in loops):
            yield spot.flaw("misplaced_field", f"means nothing without {' or '.join(loops)}", name)
    for one, other in _TOGETHER:
        if one in step and other in step:
            yield spot.flaw("exclusive_fields", f"has {one} and {other}, which exclude one another")
    breaks = schema.break_of(step)
    # The steps of a loop with a condition can run at the same time, but not its iterations.
    if breaks is not None and "while_condition" not in step and step.get("parallel") not in (None, False):
        yield spot.flaw("exclusive_fields", "cannot end a loop whose iterations run at the same time", breaks)
    if "index_as" in step and step["index_as"] == step.get("as", schema.DEFAULT_ITEM):
        yield spot.flaw("exclusive_fields", "is the name of the item", "index_as")
    looped = step.get("foreach")
    if isinstance(looped, str) and templates.reference(looped) is None and templates.problem_of(looped) is None:
        yield spot.flaw("no_variable", "must be one variable, as in {{files}}, whose value is a list", "foreach")


def _of_texts(spot: walk.Spot, check: _Checks) -> _Flaws:
    step = spot.step
    for name in _NAMES:
        if isinstance(step.get(name), str) and step[name] in walk.reserved(check.version):
            yield _reserved((*spot.place, name), step[name])
    updated = step.get("update_context")
    for name in updated if isinstance(updated, dict) else ():
        if name in walk.reserved(check.version):
            yield _reserved((*spot.place, "update_context", name), name)
    for field in schema.KINDS["nested_foreach" if spot.inner else "step"]:
        if field.filled and field.name in step:
            # The variables that a text may name depend on its time: before the loop, in it, or after an iteration.
            known = spot.inside
            if field.name in ("break_if", "break_when", "update_context"):
                known = spot.after
            elif field.name in ("condition", "foreach", "while_condition"):
                known = spot.before
            for place, text in json_text.texts(step[field.name], (*spot.place, field.name)):
                yield from check.text(place, text, known, condition=field.name in _CONDITIONS)


class _Checks:
    def __init__(self, version: str, everywhere: frozenset[str]) -> None:
        self.version = version
        self._everywhere = everywhere

    def text(self, place: json_text.Parts, text: str, known: frozenset[str], *, condition: bool) -> _Flaws:
        if not condition:
            yield from self.template(place, text, known)
            return
        try:
            parsed = conditions.parse(text, self.version)
        except conditions.ConditionInvalid as error:
            yield json_schemas.flaw(place, "invalid_condition", str(error))
        else:
            yield from self._undefined(place, conditions.variables(parsed), known)

    def template(self, place: json_text.Parts, text: str, known: frozenset[str], where: str = "") -> _Flaws:
        problem = templates.problem_of(text)
        if problem is not None:
            yield json_schemas.flaw(place, "invalid_template", problem)
        yield from self._undefined(place, templates.names(text), known, where)

    def _undefined(
        self, place: json_text.Parts, names: Iterable[str], known: frozenset[str], where: str = ""
    ) -> _Flaws:
        for name in dict.fromkeys(names):
            root, *path = name.split(".")
            if root in walk.reserved(self.version):
                there = walk.RESERVED_PARTS[root]
                if len(path) != 1 or path[0] not in there or (root == "step" and where):
                    message = f"{{{{{name:.80}}}}} does not exist here; {root} has {', '.join(there)}"
                    yield json_schemas.flaw(place, "undefined_variable", message)
            elif root not in known:
                yield json_schemas.flaw(place, "undefined_variable", self._missing(root, known))

    def _missing(self, name: str, known: frozenset[str]) -> str:
        if name in self._everywhere:
            return f"{{{{{name:.80}}}}} is set only later in the flow; give it a value in context"
        near = json_schemas.nearest(name, known)
        return f"{{{{{name:.80}}}}} is set nowhere before{near}"


def _reserved(place: json_text.Parts, name: str) -> errors.Flaw:
    return json_schemas.flaw(place, "reserved_name", f"{name} has a meaning of its own; no variable can be called so")
