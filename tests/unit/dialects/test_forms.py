"""Tests of forms: no message of a recipe shows a regular expression of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.dialects import registry
from app.domain import library

STEP = {"prompt": "p", "outcomes": ["a b"], "onOutcome": {"a b": {"action": "exit", "reason": " "}}}
RECIPE = {"id": "A B", "label": "l", "description": "d", "initialStep": "a b", "guardrails": {}, "steps": {"a b": STEP}}


@pytest.mark.parametrize(
    ("dialect", "document", "count"),
    [
        ("agent_recipes", RECIPE, 4),
        ("control_room", {"recipe_id": "a b", "phase_a": [{"step_id": "a b", "tool": "t", "output_slot": "."}]}, 3),
        (
            "orchestrate",
            {
                "version": "1.1",
                "providers": {"a b": {"command": ["x"]}},
                "steps": [
                    {"name": "a b", "for_each": {"items": [], "as": "1", "steps": [{"name": "c", "command": ["x"]}]}}
                ],
            },
            3,
        ),
    ],
)
def test_a_malformed_name_is_explained_in_words(dialect: str, document: dict[str, Any], count: int) -> None:
    """Each language says what its names consist of."""
    found = registry.DIALECTS[dialect].flaws(json.dumps(document), "r", library.Library())
    told = [flaw.message for flaw in found if " is not allowed here: it must " in flaw.message]

    assert len(told) == count, [flaw.message for flaw in found]
    assert not any("does not have the form" in flaw.message for flaw in found)
