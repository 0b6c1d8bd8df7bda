"""Tests of the dialect beside other recipes: restarts, drawings, the published schema and the language reference."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app import errors
from app.dialects import agent_recipes
from app.dialects.agent_recipes import schema
from app.domain import library
from tests.unit.dialects import reference
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import COMMIT, OTHER, RECIPE, parsed, recipe

REFERENCE = recipe_harness.ROOT / "docs" / "reference" / "agent_recipes.md"


def _leading_to(recipe_id: str, target: str, **changes: Any) -> library.Recipe:
    restart = {"action": "restart-new-session", "recipeId": target}
    commit = COMMIT | {"onOutcome": {"committed": restart, "other": OTHER}}
    return parsed(recipe(id=recipe_id, initialStep="commit", steps={"commit": commit}, **changes))


def _registry(*recipes: library.Recipe) -> library.Library:
    return library.Library(recipes={one.recipe_id: one for one in recipes})


def _check(made, *others):
    return [
        (flaw.path, flaw.code, flaw.message) for flaw in recipe_harness.DIALECT.check(made, _registry(made, *others))
    ]


TARGET_AT = "$.steps.commit.onOutcome.committed.recipeId"


def test_a_restart_leads_to_a_recipe_that_is_there():
    """A recipe may restart itself or others, also in circles; all other recipes are frozen with the run."""
    one, two, three = _leading_to("one", "two"), _leading_to("two", "three"), _leading_to("three", "one")

    assert _check(_leading_to("one", "one")) == []
    assert _check(one, two, three) == []
    assert recipe_harness.DIALECT.freeze(one, _registry(one, two, three)) == {
        "recipes": {"two": two.document, "three": three.document}
    }
    assert recipe_harness.DIALECT.freeze(parsed(RECIPE), _registry()) == {"recipes": {}}
    assert (one.leads_to, _leading_to("one", "one").leads_to) == (("two",), ())


def test_a_restart_that_leads_nowhere_is_a_fault():
    """A restart of an unknown recipe, or of one in another language, is a flaw, also in a later recipe."""
    foreign = library.Recipe(recipe_id="two", dialect="control_room", label="", document={}, args_schema={})

    assert _check(_leading_to("one", "tow"), parsed(recipe(id="two"))) == [
        (TARGET_AT, "unknown_recipe", "there is no valid recipe 'tow'; did you mean two?")
    ]
    assert _check(_leading_to("one", "two"), foreign) == [
        (TARGET_AT, "wrong_dialect", "two is a recipe of the dialect control_room")
    ]
    assert [flaw[:2] for flaw in _check(_leading_to("one", "two"), _leading_to("two", "three"))] == [
        ("$", "unknown_recipe")
    ]


@pytest.mark.parametrize(
    ("own", "fits"),
    [
        ({}, False),
        ({"properties": {"branch": {}}}, False),
        ({"properties": {"branch": {}}, "required": ["branch"]}, True),
        ({"properties": {"branch": {"default": "main"}}}, True),
    ],
)
def test_a_restart_has_the_arguments_that_it_needs(own, fits):
    """A required argument of the other recipe must be among the arguments of every run of this one."""
    needing = {"properties": {"branch": {}, "depth": {"default": 3}, "free": {}}, "required": ["branch"]}
    two = parsed(recipe(id="two", args_schema=needing))
    found = _check(_leading_to("one", "two", args_schema=own), two)

    assert found == (
        [] if fits else [("$", "undeclared_arg", "two, which a restart begins, needs the argument branch")]
    )


def test_all_faults_of_a_text():
    """The parser reports the flaws of a broken text; a sound one is checked beside the other recipes."""
    sound = json.dumps(_leading_to("one", "two").document)

    assert [flaw.code for flaw in recipe_harness.DIALECT.flaws("{", "x", _registry())] == ["syntax"]
    assert [flaw.code for flaw in recipe_harness.DIALECT.flaws(sound, "x", _registry())] == ["unknown_recipe"]
    assert recipe_harness.DIALECT.flaws(json.dumps(RECIPE), "x", _registry()) == []


def test_the_graph():
    """Steps, exits and restarts are nodes of the graph, and each outcome is an edge."""
    document = recipe(steps={**RECIPE["steps"], "commit": recipe_harness.AGAIN})
    graph = recipe_harness.DIALECT.graph(parsed(document).document, {})

    assert [(node.id, node.label, node.kind) for node in graph.nodes] == [
        ("(start)", "start", "start"),
        ("review", "review", "agent"),
        ("fix", "fix", "agent"),
        ("commit", "commit", "agent"),
        ("exit:user-provided-other", "user-provided-other", "end"),
        ("restart:small", "small", "recipe"),
    ]
    assert [(edge.source, edge.label, edge.target) for edge in graph.edges] == [
        ("(start)", None, "review"),
        ("review", "no-issues", "commit"),
        ("review", "issues-found", "fix"),
        ("review", "other", "exit:user-provided-other"),
        ("fix", "complete", "review"),
        ("fix", "other", "exit:user-provided-other"),
        ("commit", "committed", "restart:small"),
        ("commit", "other", "exit:user-provided-other"),
        ("restart:small", None, "review"),
    ]


def test_a_recipe_is_drawn():
    """A dry run shows the machine in the form of the document."""
    assert agent_recipes.render(parsed(RECIPE)) == recipe_harness.DRAWN


def test_a_drawing_shows_arguments_and_model_of_a_run():
    """The drawing shows arguments, the recipe's model, restarts and a followed `other` as a run would use them."""
    puzzled = recipe_harness.REVIEW["onOutcome"] | {"other": {"nextStep": "fix", "reason": "puzzled"}}
    steps = {
        "review": recipe_harness.REVIEW | {"onOutcome": puzzled},
        "fix": recipe_harness.FIX,
        "commit": recipe_harness.AGAIN,
    }
    made = parsed(recipe(steps=steps, model="opus", guardrails={"exitOnOther": False}))
    drawn = agent_recipes.render(made)
    changed = agent_recipes.render(made, {"max_steps": 7, "max_visits": 2, "model": "sonnet"})

    assert "other → fix\n      Model: opus" in drawn
    assert "committed → RESTART small, other → EXIT\n      Model: haiku" in drawn
    assert "Guardrails: maxStepVisits=2, maxTotalSteps=7, exitOnOther=false" in changed
    assert changed.count("Model: sonnet") == 3


def test_every_object_of_the_schema_is_strict():
    """No object of the schema accepts unknown fields; steps and outcomes have free names."""
    published = schema.json_schema()
    parts = [published, *(part for name, part in published["$defs"].items() if name != "transition")]

    assert all(part["additionalProperties"] is False for part in parts)


def test_the_recipes_of_the_catalogue_fit_the_schema():
    """The recipes fit the schema as they are in their files, with references."""
    from app.domain import json_schemas

    for path in recipe_harness.CATALOGUE.glob("*.json"):
        assert json_schemas.flaws(schema.json_schema(), json.loads(path.read_text(encoding="utf-8"))) == []


def test_the_reference_documents_every_field():
    """The field tables of docs/reference/agent_recipes.md have the fields of the schema, with type and necessity."""
    published = schema.json_schema()
    tables = reference.tables(REFERENCE.read_text(encoding="utf-8"))
    parts = {"Recipe": published} | {
        title: published["$defs"][name]
        for title, name in {
            "Step": "step",
            "Next step": "next_step",
            "Exit": "exit",
            "Restart in a new session": "restart",
            "Guardrails": "guardrails",
        }.items()
    }

    for title, part in parts.items():
        expected = {
            name: (reference.kind(rule), "yes" if name in part["required"] else "no")
            for name, rule in part["properties"].items()
        }
        assert {row[0]: (row[1], row[2]) for row in tables[title]} == expected, title


def test_the_reference_documents_every_argument_and_default():
    """The documented arguments of every run and values of unset guardrails are those of the code."""
    tables = reference.tables(REFERENCE.read_text(encoding="utf-8"))
    guardrails = {row[0]: row[3] for row in tables["Guardrails"]}

    assert {row[0]: row[1] for row in tables["Arguments of every run"]} == {
        name: rule["type"] for name, rule in schema.RUN_ARGS.items()
    }
    assert guardrails == {name: json.dumps(value) for name, value in schema.GUARDRAILS.items()}


def test_the_reference_names_every_code_and_event():
    """docs/reference/agent_recipes.md contains each code of a flaw or failure, each reason and each event."""
    folder = recipe_harness.ROOT / "app" / "dialects"
    text = "".join(path.read_text(encoding="utf-8") for path in (folder / "agent_recipes").glob("*.py"))
    calls = r'(?:flaw\([^"\n]*?|_Cannot\(|_failed\([^"\n]*?|code=|return |place, )"([a-z]+_[a-z_]+)"'
    codes = set(re.findall(calls, text)) | set(re.findall(r'"(\w+_value|\w+_field|wrong_type)"', text))
    events = set(re.findall(r'_emit_event\("([a-z]+:[a-z]+)"', text))
    told = set(re.findall(r"`([a-z:_-]+)`", REFERENCE.read_text(encoding="utf-8")))

    assert len(codes) > 15
    assert len(events) == 7
    assert codes - told == set()
    assert events - told == set()
    assert {"backend-error", "orchestration-error", "max-total-steps", "max-restarts"} <= told


def test_an_invalid_recipe_is_refused_with_every_flaw():
    """The parser's error contains every flaw, and the first one in its message."""
    with pytest.raises(errors.RecipeInvalid, match=r"\$.id is missing") as caught:
        recipe_harness.DIALECT.parse("{}", "x")

    assert len(caught.value.flaws) == len(RECIPE)
