"""Bounds: calls that a run can still make after some of its steps are finished."""

from __future__ import annotations

from typing import Any

import pytest

from app.dialects.amplifier import bounds as recipe_bounds
from app.dialects.orchestrate import bounds as workflow_bounds

RETRIED = {"id": "a", "agent": "x", "retry": {"max_attempts": 3}}
LOOP = {"id": "b", "agent": "x", "foreach": "{{l}}", "max_iterations": 7}
CHILD = {"id": "c", "type": "recipe", "recipe": "other"}
LAST = {"id": "d", "agent": "x"}
ASK = {"name": "Ask", "provider": "claude", "retries": {"max": 2}}
EACH = {"name": "Each", "for_each": {"items_from": "steps.List.lines", "steps": [ASK]}}
BACK = {"name": "Back", "command": ["true"], "on": {"failure": {"goto": "Ask"}}}
END = {"name": "End", "provider": "claude"}


@pytest.mark.parametrize(
    ("steps", "finished", "asked", "most"),
    [
        ([RETRIED, LAST], [], ["a"], 4),
        ([RETRIED, LAST], ["a"], ["d"], 1),
        ([LOOP, LAST], ["b[0]", "b[1]"], ["b[2]"], 6),
        ([LOOP, LAST], ["b[0]", "b[1]"], ["d"], 1),
        ([CHILD, LAST], [], ["c"], None),
        ([CHILD, LAST], [], ["d"], 1),
        ([RETRIED, LOOP, LAST], ["a"], ["approval:one"], 10),
        ([RETRIED, LOOP, LAST], ["a", "b[0]"], ["approval:one"], 7),
        ([RETRIED, {"id": "g", "substeps": [LOOP]}, LAST], ["a", "g.b[0]"], ["g.b[1]:break_if"], 7),
    ],
)
def test_calls_left_of_recipes(
    steps: list[dict[str, Any]], finished: list[str], asked: list[str], most: int | None
) -> None:
    """A step that is over settles the attempts, iterations and unknown calls that it did not need."""
    over, settled = recipe_bounds.progress({"steps": steps}, finished, asked)

    assert recipe_bounds.most_calls({"steps": steps}, {}, {}, over).less(settled).most == most


@pytest.mark.parametrize(("when", "most"), [("after", 1), ("before", 8), ("before_stage", 8)])
def test_calls_left_at_a_question(when: str, most: int) -> None:
    """A question after its stage settles the stage's steps; one before it settles those of the stages before."""
    asked = {"name": "two", "steps": [LOOP], "approval": {"required": True, "prompt": "?", "when": when}}
    document = {"stages": [{"name": "one", "steps": [RETRIED]}, asked, {"name": "three", "steps": [LAST]}]}
    over, settled = recipe_bounds.progress(document, ["a", *(["b[0]"] if most == 1 else [])], ["approval:two"])

    assert recipe_bounds.most_calls(document, {}, {}, over).less(settled).most == most


@pytest.mark.parametrize(
    ("steps", "finished", "asked", "most"),
    [
        ([ASK, END], ["Ask"], ["End.input"], 1),
        ([EACH, END], ["Each[0].Ask"], ["Each[1].Ask"], None),
        ([EACH, END], ["Each[0].Ask"], ["End"], 1),
        ([ASK, BACK, END], ["Ask", "Ask#2"], ["Back#2"], None),
        ([ASK, BACK, END], ["Ask", "Ask#2"], ["End"], 1),
        ([ASK, END], ["Ask"], ["Ask#2"], 3),
    ],
)
def test_calls_left_of_workflows(
    steps: list[dict[str, Any]], finished: list[str], asked: list[str], most: int | None
) -> None:
    """Steps that the flow has passed make no more calls, unless a later one can jump back."""
    over, settled = workflow_bounds.progress({"steps": steps}, finished, asked)

    assert workflow_bounds.calls({"steps": steps}, {}, over).less(settled).most == most
