"""Tests of the parser: the form of a recipe, and every fault with its place (agent-recipes, 8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import RECIPE, REVIEW, recipe, with_step

REVIEW_AT, ON = "$.steps.review", "$.steps.review.onOutcome"


def _on(**transitions):
    given = {name.replace("_", "-"): value for name, value in transitions.items()}
    return with_step("review", onOutcome=REVIEW["onOutcome"] | given)


def test_a_recipe():
    """Unset guardrails are filled in, so that they remain the same for the whole run."""
    made = recipe_harness.parsed(RECIPE)

    assert (made.recipe_id, made.dialect, made.label, made.task_patterns) == ("small", "agent_recipes", "Small", ())
    assert made.document["guardrails"] == {"maxStepVisits": 3, "maxTotalSteps": 100, "exitOnOther": True}
    assert made.document == {**RECIPE, "guardrails": made.document["guardrails"]}
    assert made.total_steps is None
    assert recipe_harness.parsed(made.document) == made


def test_a_recipe_without_a_loop_has_a_number_of_steps():
    """If no step can repeat, the total number of steps is known."""
    steps = {"commit": RECIPE["steps"]["commit"]}

    assert recipe_harness.parsed(recipe(initialStep="commit", steps=steps)).total_steps == 1


def test_every_run_takes_the_same_arguments():
    """Every recipe also takes backend, model, limits, system prompt and conversation; only backend has a default."""
    own = {"properties": {"subject": {"type": "string"}}, "required": ["subject"]}
    schema = recipe_harness.parsed(recipe(args_schema=own)).args_schema
    usual = recipe_harness.parsed(RECIPE).args_schema

    assert list(schema["properties"]) == ["subject", *usual["properties"]]
    assert list(usual["properties"]) == [
        "backend",
        "model",
        "max_steps",
        "max_visits",
        "max_restarts",
        "system_prompt",
        "agent_session_id",
    ]
    assert schema["required"] == ["subject"]
    assert schema["additionalProperties"] is usual["additionalProperties"] is False
    assert {name: rule["default"] for name, rule in usual["properties"].items() if "default" in rule} == {
        "backend": "claude-code"
    }


@pytest.mark.parametrize(
    ("document", "told"),
    [
        # rule 1
        (recipe(initialStep="start"), {("$.initialStep", "unknown_step")}),
        # rule 2, and coverage
        (_on(done={"nextStep": "fix"}), {(f"{ON}.done", "unknown_outcome")}),
        (with_step("review", outcomes=[*REVIEW["outcomes"], "fine"]), {(f"{ON}.fine", "missing_transition")}),
        (
            with_step("review", outcomes=["no-issues", "other"]),
            {(f'{ON}["issues-found"]', "unknown_outcome")},
        ),
        # rule 3
        (_on(no_issues={"nextStep": "push"}), {(f'{ON}["no-issues"].nextStep', "unknown_step")}),
        # rule 4
        (_on(no_issues={"action": "exit"}), {(f'{ON}["no-issues"].reason', "missing_field")}),
        (_on(no_issues={"action": "exit", "reason": ""}), {(f'{ON}["no-issues"].reason', "invalid_value")}),
        (_on(no_issues={"action": "exit", "reason": " "}), {(f'{ON}["no-issues"].reason', "invalid_value")}),
        # rule 5
        (_on(other={"nextStep": "fix"}), {(f"{ON}.other.reason", "missing_field")}),
        (_on(other={"action": "restart-new-session", "recipeId": "small"}), {(f"{ON}.other.reason", "missing_field")}),
        (_on(other={"nextStep": "fix", "reason": "puzzled"}), set()),
        # rule 6
        (with_step("commit", model="gpt-4"), {("$.steps.commit.model", "invalid_value")}),
        (recipe(model="large"), {("$.model", "invalid_value")}),
        (recipe(model="opus"), set()),
        # rule 7
        (
            recipe(steps={**RECIPE["steps"], "fix": {}}),
            {(f"$.steps.fix.{name}", "missing_field") for name in ("prompt", "outcomes", "onOutcome")},
        ),
        (with_step("review", prompt=3), {(f"{REVIEW_AT}.prompt", "wrong_type")}),
        (with_step("review", prompt=""), {(f"{REVIEW_AT}.prompt", "invalid_value")}),
        (with_step("review", prompt=" \n"), {(f"{REVIEW_AT}.prompt", "invalid_value")}),
        (with_step("review", outcomes="no-issues"), {(f"{REVIEW_AT}.outcomes", "wrong_type")}),
        (with_step("review", onOutcome=[]), {(f"{REVIEW_AT}.onOutcome", "wrong_type")}),
        # three forms of transitions
        (_on(no_issues="fix"), {(f'{ON}["no-issues"]', "wrong_type")}),
        (
            _on(no_issues={}),
            {(f'{ON}["no-issues"]', "missing_field")},
        ),
        (
            _on(no_issues={"nextStep": "fix", "action": "exit"}),
            {(f'{ON}["no-issues"]', "exclusive_fields")},
        ),
        (
            _on(no_issues={"action": "restart-new-session"}),
            {(f'{ON}["no-issues"].recipeId', "missing_field")},
        ),
        (
            _on(no_issues={"action": "leave", "reason": "x"}),
            {(f'{ON}["no-issues"].action', "invalid_value")},
        ),
        (
            _on(no_issues={"nextStep": "fix", "reason": "x"}),
            {(f'{ON}["no-issues"].reason', "unknown_field")},
        ),
        # guardrails
        (recipe(guardrails={"maxStepVisits": 0}), {("$.guardrails.maxStepVisits", "invalid_value")}),
        (recipe(guardrails={"maxTotalSteps": -1}), {("$.guardrails.maxTotalSteps", "invalid_value")}),
        (recipe(guardrails={"maxTotalSteps": "10"}), {("$.guardrails.maxTotalSteps", "wrong_type")}),
        (recipe(guardrails={"exitOnOther": 1}), {("$.guardrails.exitOnOther", "wrong_type")}),
        (recipe(guardrails={"maxVisits": 1}), {("$.guardrails.maxVisits", "unknown_field")}),
        # the rest of the shape
        (recipe(id="Small_Recipe"), {("$.id", "invalid_value")}),
        (recipe(steps={}), {("$.steps", "no_steps")}),
        (recipe(steps=[]), {("$.steps", "wrong_type")}),
        (recipe(setps={}), {("$.setps", "unknown_field")}),
        ({}, {(f"$.{name}", "missing_field") for name in RECIPE}),
        ([], {("$", "wrong_type")}),
        ("{", {("$", "syntax")}),
        ('{"id": "a", "id": "b"}', {("$.id", "repeated_name")}),
        (recipe(initialStep="fix/it", steps={"fix/it": RECIPE["steps"]["commit"]}), {("$.steps", "invalid_value")}),
        # arguments
        (recipe(args_schema={"properties": {"model": {}}}), {("$.args_schema.properties.model", "reserved_name")}),
        (recipe(args_schema={"required": ["agent_session_id"]}), set()),
        (recipe(args_schema={"type": "array"}), {("$.args_schema.type", "invalid_value")}),
        (recipe(args_schema=3), {("$.args_schema", "wrong_type")}),
        (with_step("review", prompt="On {{args.branch}}"), {(f"{REVIEW_AT}.prompt", "undeclared_arg")}),
        (with_step("review", prompt="{{ args.x }}{{args.}}"), {(f"{REVIEW_AT}.prompt", "undeclared_arg")}),
        (with_step("review", prompt="{{branch}} {{ slot.x }} {args.y}"), set()),
        # steps in other files
        (recipe(steps={"$include": "shared/x.json"}), {('$.steps["$include"]', "not_composed")}),
        (
            recipe(steps={**RECIPE["steps"], "fix": {"$ref": "shared/x.json#/fix"}}),
            {("$.steps.fix.$ref", "not_composed")},
        ),
    ],
)
def test_each_fault_has_its_exact_path_and_kind(document, told):
    """Path and kind of each fault are exact, and no other fault is reported."""
    assert recipe_harness.flaws(document) == told


@pytest.mark.parametrize(
    ("rule", "required", "told"),
    [
        ({"type": "string"}, [], "optional_arg"),
        ({"type": "string", "default": "main"}, [], None),
        ({"type": "string"}, ["branch"], None),
    ],
)
def test_an_argument_of_a_prompt_is_always_there(rule, required, told):
    """A prompt may name required arguments and those with a default, which every run has."""
    schema = {"properties": {"branch": rule}, "required": required}
    document = with_step("review", prompt="On {{args.branch}}.") | {"args_schema": schema}

    assert recipe_harness.flaws(document) == ({(f"{REVIEW_AT}.prompt", told)} if told else set())


def test_a_fault_names_the_missing_part_and_the_nearest_name():
    """The message names the missing thing and suggests the nearest name."""
    document = recipe(initialStep="revue", model="opsu")
    messages = {flaw.path: flaw.message for flaw in recipe_harness.all_flaws(document)}

    assert messages["$.initialStep"] == "Initial step not found in steps: revue; did you mean review?"
    assert messages["$.model"] == "'opsu' is not allowed; did you mean opus?"
    next_step = recipe_harness.all_flaws(_on(no_issues={"nextStep": "comit"}))
    assert [flaw.message for flaw in next_step] == ["Next step not found in steps: comit; did you mean commit?"]


def test_all_faults_of_a_recipe_are_reported_together():
    """All faults are reported at once."""
    broken = {"prompt": "{{args.x}}", "outcomes": ["a"], "onOutcome": {"b": {"nextStep": "c"}}}
    document = recipe(label=3, initialStep="d", steps={"e": broken})

    assert recipe_harness.flaws(document) == {
        ("$.label", "wrong_type"),
        ("$.initialStep", "unknown_step"),
        ("$.steps.e.prompt", "undeclared_arg"),
        ("$.steps.e.onOutcome.a", "missing_transition"),
        ("$.steps.e.onOutcome.b", "unknown_outcome"),
        ("$.steps.e.onOutcome.b.nextStep", "unknown_step"),
    }


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*RECIPE, "args_schema", "model", "steps.review", "steps.review.onOutcome"]), _json)
def test_any_value_anywhere_is_read_or_refused(place, value):
    """Any JSON value is either refused or read, and a read recipe can be read again."""
    document = recipe()
    *outer, name = place.split(".")
    inside = document
    for part in outer:
        inside = inside[part]
    inside[name] = value
    try:
        made = recipe_harness.parsed(document)
    except errors.RecipeInvalid:
        made = None

    assert (made is None) is bool(recipe_harness.flaws(document))
    assert made is None or recipe_harness.parsed(made.document) == made


@pytest.mark.parametrize(
    ("transition", "place", "message"),
    [
        (
            {"nextStep": "fix", "action": "exit", "reason": "x"},
            "",
            "has nextStep beside action: a transition leads to a step, or does an action",
        ),
        (
            {"nextStep": "fix", "action": "restart-new-session", "recipeId": "small"},
            "",
            "has nextStep beside action and recipeId: a transition leads to a step, or does an action",
        ),
        (
            {"action": "exit", "reason": "x", "recipeId": "small"},
            ".recipeId",
            "applies only to the action restart-new-session",
        ),
        ({"recipeId": "small"}, ".recipeId", "applies only to the action restart-new-session"),
        ({"reason": "x"}, "", "needs nextStep, or the action exit or restart-new-session"),
        ({"nextstep": "fix"}, ".nextstep", "is not a known field; did you mean nextStep?"),
        ({"action": "restart"}, ".action", "'restart' is not allowed; there are exit, restart-new-session"),
    ],
)
def test_a_transition_without_one_form_is_reported_once(transition, place, message):
    """The message names the forms that were mixed, instead of the fields that one of them lacks."""
    found = recipe_harness.all_flaws(_on(no_issues=transition))

    assert [(flaw.path, flaw.message) for flaw in found] == [(f'{ON}["no-issues"]{place}', message)]
