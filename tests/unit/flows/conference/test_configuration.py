"""Configurations: which agents and tools a conference can have."""

from __future__ import annotations

import dataclasses

import pytest

from app import errors
from app.domain import library, plain
from tests.unit.flows.conference.round_table import CHIEF, DIALECT, agent, document, flaws, stock


def test_a_configuration_that_fits() -> None:
    """Agents and tools of the library are accepted."""
    assert flaws() == set()
    assert flaws(allowed_tools=[]) == set()
    assert flaws(allowed_tools=["reader"], require_tool=True) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"agents": ["critc"]}, ("$.agents[0]", "unknown_agent")),
        ({"agents": ["critic", "editor", "critic"]}, ("$.agents[2]", "repeated_agent")),
        ({"agents": []}, ("$.agents", "no_participants")),
        ({"agents": [f"a{number}" for number in range(21)]}, ("$.agents", "too_many_agents")),
        ({"allowed_tools": ["finder", "shell"]}, ("$.allowed_tools[1]", "unknown_tool")),
        ({"allowed_tools": [], "require_tool": True}, ("$.require_tool", "no_tool_allowed")),
        ({"max_tool_calls": 0}, ("$.max_tool_calls", "invalid_value")),
        ({"max_tool_calls": 21}, ("$.max_tool_calls", "invalid_value")),
        ({"max_tool_calls": True}, ("$.max_tool_calls", "wrong_type")),
        ({"evidence_characters": 10}, ("$.evidence_characters", "invalid_value")),
        ({"agents": [1]}, ("$.agents[0]", "wrong_type")),
        ({"agents": None}, ("$.agents", "wrong_type")),
        ({"id": "other"}, ("$.id", "invalid_value")),
        ({"more": 1}, ("$.more", "unknown_field")),
    ],
)
def test_each_flaw_of_a_configuration_names_its_place(
    changes: dict[str, plain.Json], expected: tuple[str, str]
) -> None:
    """Each flaw names its place in the configuration."""
    assert expected in flaws(**changes)


def test_agents_that_do_not_confer() -> None:
    """An agent whose modes exclude conferences is refused; one whose modes name them is accepted."""
    definition_cache = stock(agent("a", modes=("pipeline",)), agent("b", modes=("pipeline", "conference")))

    assert flaws(definition_cache, agents=["a", "b"]) == {("$.agents[0]", "agent_not_conferring")}


def test_there_must_be_a_chief() -> None:
    """A conference without a chief, or with a chief that does not confer, is refused."""
    nobody = library.Library(agents=(agent("a"),))
    absent = library.Library(agents=(agent("a"), agent("boss", "chief", modes=("pipeline",))))

    assert flaws(nobody, agents=["a"], allowed_tools=[]) == {("$", "no_chief")}
    assert flaws(absent, agents=["a"], allowed_tools=[]) == {("$", "no_chief")}


@pytest.mark.parametrize("names", [("tool",), ("transcript",), ("a", "a.evidence"), ("a.evidence", "a")])
def test_names_that_would_be_taken_for_steps(names: tuple[str, ...]) -> None:
    """An agent whose name could be mistaken for a slot or a step is refused."""
    found = flaws(stock(*map(agent, names)), agents=list(names))

    assert found == {(f"$.agents[{len(names) - 1}]", "agent_name_taken")}


def test_the_frozen_recipe_has_chief_participants_and_tools() -> None:
    """The frozen recipe has the chief, the participants in order, and the allowed tools with their arguments."""
    recipe = DIALECT.recipe(document(agents=["writer", "critic"], allowed_tools=["reader"]))
    frozen = DIALECT.freeze(recipe, stock())

    assert frozen["chief"] == CHIEF.to_json()
    assert [each["id"] for each in frozen["participants"]] == ["writer", "critic"]
    assert set(frozen["tools"]) == {"reader"}
    assert frozen["tools"]["reader"]["args_schema"]["required"] == ["path"]
    assert set(DIALECT.freeze(DIALECT.recipe(document()), stock())["tools"]) == {"finder", "reader"}


@pytest.mark.parametrize(
    ("changes", "definitions", "asked"),
    [
        ({}, stock(), ["$.chief", "$.agents[0]"]),
        ({"allowed_tools": ["reader"]}, stock(), ["$.chief", "$.agents[0]"]),
        ({"allowed_tools": []}, stock(), ["$.agents[0]"]),
        ({}, dataclasses.replace(stock(), tools={}), ["$.agents[0]"]),
    ],
)
def test_a_chief_without_tools_needs_no_backend(
    changes: dict[str, plain.Json], definitions: library.Library, asked: list[str]
) -> None:
    """The chief's backend is needed only where the chief is asked, which is where it may call a tool."""
    recipe = DIALECT.recipe(document(agents=["critic"], **changes))

    assert [use.path for use in DIALECT.uses(recipe, definitions, {})] == asked


def test_the_recipe_takes_only_a_message() -> None:
    """The recipe takes only a message, and its number of steps is unknown."""
    recipe = DIALECT.recipe(document(agents=["critic"]))

    assert (recipe.recipe_id, recipe.dialect, recipe.total_steps) == ("conference", "conference", None)
    assert list(recipe.args_schema["properties"]) == ["message"]


def test_a_broken_configuration_is_refused() -> None:
    """A broken configuration is not a recipe, and each of its flaws is reported."""
    with pytest.raises(errors.RecipeInvalid) as caught:
        DIALECT.recipe(document(max_tool_calls=0, require_tool="yes"))

    assert len(caught.value.flaws) == 2
