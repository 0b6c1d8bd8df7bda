"""The parser: convert a text into a recipe, or report all its flaws (agent-recipes, 8)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import TypeAlias

from app import errors
from app.dialects import forms, json_source
from app.dialects.agent_recipes import composition, schema, transitions
from app.domain import json_schemas, json_text, library, plain

DIALECT = "agent_recipes"  # Name of this dialect.
SPEAKS_THROUGH = "backend"  # Argument that names the backend of its runs.

_TRANSITION = ("nextStep", "action", "recipeId", "reason")  # Fields of all forms of a transition.

_Flaws: TypeAlias = Iterator[errors.Flaw]
_Names: TypeAlias = frozenset[str] | None


def parse(source: str) -> library.Recipe:
    """Read a composed recipe; missing guardrails get their defaults."""
    document = json_source.document(source)
    found = json_schemas.flaws(schema.json_schema(), document, lenient=_formless(document))
    if isinstance(document, dict):
        found = json_schemas.first_flaws(itertools.chain(forms.in_words(found, schema.FORMS), _unsound(document)))
    if found:
        first = found[0]
        raise errors.RecipeInvalid(f"The recipe is not valid: {first.path} {first.message}", flaws=found)
    whole = document | {"guardrails": {**schema.GUARDRAILS, **document["guardrails"]}}
    return library.Recipe(
        recipe_id=whole["id"],
        dialect=DIALECT,
        label=whole["label"],
        document=whole,
        args_schema=schema.args_schema(own_args(whole)),
        total_steps=None if transitions.loops(whole) else len(whole["steps"]),
        holds_workspace=True,
        speaks_through=SPEAKS_THROUGH,
        leads_to=tuple(dict.fromkeys(target for _, target in transitions.restarts(whole) if target != whole["id"])),
    )


def own_args(document: plain.Object) -> plain.Object:
    """Return the schema of the arguments that a recipe itself declares."""
    declared = document.get("args_schema")
    return declared if isinstance(declared, dict) else {}


def certain_args(document: plain.Object) -> set[str]:
    """Return the recipe's own arguments that every run has: those that are required or have a default."""
    own = own_args(document)
    properties, required = own.get("properties"), own.get("required")
    rules = properties if isinstance(properties, dict) else {}
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else ()
    return {name for name, rule in rules.items() if name in needed or (isinstance(rule, dict) and "default" in rule)}


def _formless(document: plain.Json) -> json_schemas.Lenience:
    """Ignore the fields of transitions without one form: the schema would compare them with a form by chance."""
    steps = document.get("steps") if isinstance(document, dict) else None
    places = {
        ("steps", name, "onOutcome", outcome)
        for name, step in (steps.items() if isinstance(steps, dict) else ())
        for outcome, transition in _transitions(step).items()
        if isinstance(transition, dict) and not _has_one_form(transition)
    }
    return lambda place, keyword: place in places and keyword in ("required", "additionalProperties")


def _transitions(step: plain.Json) -> plain.Object:
    following = step.get("onOutcome") if isinstance(step, dict) else None
    return following if isinstance(following, dict) else {}


def _has_one_form(transition: plain.Object) -> bool:
    if "nextStep" in transition:
        return "action" not in transition and "recipeId" not in transition
    action = transition.get("action")
    return action == schema.RESTART or (action == schema.EXIT and "recipeId" not in transition)


def _of_form(transition: plain.Object, place: json_text.Parts) -> _Flaws:
    unknown = [name for name in transition if name not in _TRANSITION]
    for name in unknown:
        hint = json_schemas.nearest(name, _TRANSITION)
        yield json_schemas.flaw((*place, name), "unknown_field", f"is not a known field{hint}")
    if "nextStep" in transition:
        beside = " and ".join(name for name in ("action", "recipeId") if name in transition)
        message = f"has nextStep beside {beside}: a transition leads to a step, or does an action"
        yield json_schemas.flaw(place, "exclusive_fields", message)
    elif "recipeId" in transition and transition.get("action", schema.EXIT) == schema.EXIT:
        message = f"applies only to the action {schema.RESTART}"
        yield json_schemas.flaw((*place, "recipeId"), "exclusive_fields", message)
    elif "action" not in transition and not unknown:
        message = f"needs nextStep, or the action {schema.EXIT} or {schema.RESTART}"
        yield json_schemas.flaw(place, "missing_field", message)


def _unsound(document: plain.Object) -> _Flaws:
    params = document.get("steps")
    steps = params if isinstance(params, dict) else {}
    if isinstance(params, dict) and not params:
        yield json_schemas.flaw(("steps",), "no_steps", "has no steps")
    yield from _uncomposed(steps)
    # Without the steps from other files, the names of all steps are unknown.
    known = None if composition.INCLUDE in steps or not steps else frozenset(steps)
    initial = document.get("initialStep")
    if isinstance(initial, str) and known is not None and initial not in known:
        message = f"Initial step not found in steps: {initial:.80}{json_schemas.nearest(initial, known)}"
        yield json_schemas.flaw(("initialStep",), "unknown_step", message)
    properties = own_args(document).get("properties")
    args = _Args(declared=properties if isinstance(properties, dict) else {}, certain=certain_args(document))
    for name, step in steps.items():
        if isinstance(step, dict) and composition.REF not in step and name != composition.INCLUDE:
            yield from _Step(name, step).flaws(known, args)
    yield from _of_args_schema(document)


def _uncomposed(steps: plain.Object) -> _Flaws:
    for name, step in steps.items():
        place = ("steps", name)
        if name == composition.INCLUDE:
            yield json_schemas.flaw(place, "not_composed", "names files, which are read only in a folder of recipes")
        elif isinstance(step, dict) and composition.REF in step:
            message = "names a file, which is read only in a folder of recipes"
            yield json_schemas.flaw((*place, composition.REF), "not_composed", message)


def _of_args_schema(document: plain.Object) -> _Flaws:
    if "args_schema" in document:
        yield from json_schemas.args_schema_flaws(document["args_schema"], ("args_schema",), schema.RUN_ARGS)
    properties = own_args(document).get("properties")
    for name in properties if isinstance(properties, dict) else ():
        if name in schema.RUN_ARGS:
            place = ("args_schema", "properties", name)
            yield json_schemas.flaw(place, "reserved_name", f"every run takes {name} already")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Args:
    declared: plain.Object
    certain: Set[str]


class _Step:
    def __init__(self, name: str, step: plain.Object) -> None:
        self._place: json_text.Parts = ("steps", name)
        self._step = step
        outcomes, following = step.get("outcomes"), step.get("onOutcome")
        named = dict.fromkeys(one for one in outcomes if isinstance(one, str)) if isinstance(outcomes, list) else None
        self._outcomes = named
        self._transitions = following if isinstance(following, dict) else None

    def flaws(self, known: _Names, args: _Args) -> _Flaws:
        yield from self._of_coverage()
        for outcome, transition in (self._transitions or {}).items():
            if isinstance(transition, dict):
                yield from self._of_transition(outcome, transition, known)
        yield from self._of_prompt(args)

    def _of_coverage(self) -> _Flaws:
        if self._outcomes is None or self._transitions is None:
            return
        place = (*self._place, "onOutcome")
        for outcome in self._outcomes:
            if outcome not in self._transitions:
                yield json_schemas.flaw((*place, outcome), "missing_transition", "is an outcome without a transition")
        for outcome in self._transitions:
            if outcome not in self._outcomes:
                hint = json_schemas.nearest(outcome, self._outcomes)
                message = f"is not among the outcomes of the step{hint}"
                yield json_schemas.flaw((*place, outcome), "unknown_outcome", message)

    def _of_transition(self, outcome: str, transition: plain.Object, known: _Names) -> _Flaws:
        place = (*self._place, "onOutcome", outcome)
        target = transition.get("nextStep")
        if isinstance(target, str) and known is not None and target not in known:
            message = f"Next step not found in steps: {target:.80}{json_schemas.nearest(target, known)}"
            yield json_schemas.flaw((*place, "nextStep"), "unknown_step", message)
        if not _has_one_form(transition):
            yield from _of_form(transition, place)
            return
        leads_on = "nextStep" in transition or transition.get("action") == schema.RESTART
        if leads_on and outcome == schema.OTHER and "reason" not in transition:
            message = "is missing: it says why the run ends where `exitOnOther` ends it"
            yield json_schemas.flaw((*place, "reason"), "missing_field", message)
        if leads_on and outcome != schema.OTHER and "reason" in transition:
            message = "does not apply here: only an exit, or the outcome other, has a reason"
            yield json_schemas.flaw((*place, "reason"), "unknown_field", message)

    def _of_prompt(self, args: _Args) -> _Flaws:
        prompt = self._step.get("prompt")
        if not isinstance(prompt, str):
            return
        place = (*self._place, "prompt")
        if prompt and not prompt.strip():
            yield json_schemas.flaw(place, "invalid_value", "is blank")
        for name in dict.fromkeys(composition.placeholders(prompt)):
            if name not in args.declared:
                message = f"names the argument {name!r:.80}, which args_schema does not declare"
                yield json_schemas.flaw(place, "undeclared_arg", message + json_schemas.nearest(name, args.declared))
            elif name not in args.certain:
                message = f"names the argument {name}, which is neither required nor has a default"
                yield json_schemas.flaw(place, "optional_arg", message)
