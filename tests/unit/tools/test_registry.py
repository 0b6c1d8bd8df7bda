"""The registry and the tool `task_router`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app import errors
from app.tools import registry
from app.tools.task_router import TaskRouter
from tests.unit.tools import stories


@dataclass(frozen=True, kw_only=True)
class Routed:
    """An answer of the router."""

    recipe_id: str | None
    routable: bool
    reason: str
    initial_args: dict[str, Any] = field(default_factory=dict)


def route(text: str) -> Routed:
    """Route every text that contains `draft`."""
    if "draft" in text.lower():
        args = {"scene_path": "Story/x.md", "canon_paths": ["a.md", "b.md"]}
        return Routed(recipe_id="creative_draft_scene", routable=True, reason="matches “draft”", initial_args=args)
    return Routed(recipe_id=None, routable=False, reason="no pattern matches")


@pytest.fixture
def tools():
    """Return all bundled tools."""
    return registry.bundled_tools(route)


def test_all_tools_of_the_recipes_are_there(tools):
    """The registry has the nine tools that the bundled recipes and the chat use."""
    assert tools.names() == [
        "canon_checker",
        "consistency_checker",
        "file_locator",
        "outline_analyzer",
        "prose_analyzer",
        "reader_experience_simulator",
        "scene_draft_validator",
        "stakes_mapper",
        "task_router",
    ]
    assert all(tools.get(name).name == name for name in tools.names())


def test_every_schema_is_valid_closed_and_described(tools):
    """Each schema is valid and closed, and describes every argument with a type and a valid default."""
    for spec in tools.specs().values():
        Draft202012Validator.check_schema(spec.args_schema)

        assert spec.description.endswith(".")
        assert spec.args_schema["additionalProperties"] is False
        for rule in spec.args_schema["properties"].values():
            assert rule["description"].endswith(".")
            assert rule["type"] in {"string", "integer", "boolean", "array"}
            if "default" in rule:
                assert Draft202012Validator(rule).is_valid(rule["default"])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("file_locater", "file_locator"), ("canon", "canon_checker"), ("outline-analyser", "outline_analyzer")],
)
def test_an_unknown_tool_is_answered_with_the_nearest_names(tools, name, nearest):
    """An unknown tool is answered with the nearest names by every function that takes a name."""
    for ask in (tools.get, lambda wrong: tools.flaws(wrong, {})):
        with pytest.raises(errors.ToolFailed) as caught:
            ask(name)
        assert caught.value.code == "unknown_tool"
        assert nearest in caught.value.detail["nearest"]
        assert nearest in caught.value.message


def test_a_tool_that_is_like_no_other_is_answered_with_the_list(tools, tmp_path):
    """A tool name without a similar one is answered with the list of tools, and a hostile name is cut."""
    with pytest.raises(errors.ToolFailed) as caught:
        tools.execute("#" * 10_000, {}, stories.write(tmp_path, {}))

    assert "There are canon_checker, " in caught.value.message
    assert len(caught.value.message) < 500


def test_execution_checks_the_arguments(tools, tmp_path):
    """Wrong arguments fail before the tool is called."""
    with pytest.raises(errors.ToolFailed) as caught:
        tools.execute("prose_analyzer", {"path": "x"}, stories.write(tmp_path, {}))

    assert caught.value.code == "invalid_args"
    assert [flaw.path for flaw in tools.flaws("prose_analyzer", {"path": "x"})] == ["$.path", "$.scene_path"]


def test_a_routed_task_is_returned_as_payload_and_text(tmp_path):
    """A routed task gives recipe, arguments and reason as payload and as text."""
    output = stories.run(TaskRouter(route), stories.write(tmp_path, {}), user_request="Draft scene 21")

    assert output.payload["recipe_id"] == "creative_draft_scene"
    assert output.payload["initial_args"] == {"scene_path": "Story/x.md", "canon_paths": ["a.md", "b.md"]}
    assert output.payload["routable"] is True
    assert output.payload["text"].splitlines()[:2] == ["Recipe: creative_draft_scene", "Reason: matches “draft”"]
    assert "- scene_path: Story/x.md" in output.payload["text"]
    assert output.summary == "routed to creative_draft_scene"


def test_a_task_without_a_recipe_is_answered_with_the_reason(tmp_path):
    """A task without a recipe gives an answer with the reason, not a failure."""
    output = stories.run(TaskRouter(route), stories.write(tmp_path, {}), user_request="Sing")

    assert (output.payload["recipe_id"], output.payload["routable"]) == (None, False)
    assert output.payload["text"].splitlines() == ["No recipe fits this task.", "Reason: no pattern matches"]
    assert output.summary == "not routable: no pattern matches"


def test_an_endless_reason_is_cut(tmp_path):
    """A long reason and long arguments of the router are cut."""
    endless = Routed(recipe_id="x", routable=True, reason="r" * 5_000, initial_args={"a": "b" * 5_000})
    output = stories.run(TaskRouter(lambda text: endless), stories.write(tmp_path, {}), user_request="x")

    assert len(output.payload["reason"]) <= 1_000
    assert len(output.payload["report"]) <= 2_000
