"""The walk through a recipe, with and without the knowledge of each step."""

from __future__ import annotations

from typing import Any

import pytest

from app.dialects.amplifier import walk


def _step(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "agent": "a", "prompt": "p", **fields}


INNER = [_step("c", output="x"), _step("d", substeps=[_step("e"), 7, _step("f")])]
LOOPS = {"foreach": "{{x}}", "nested_foreach": {"foreach": "{{y}}", "nested_foreach": {"foreach": "{{z}}"}}}


@pytest.mark.parametrize(
    "document",
    [
        {"steps": [_step("a"), _step("b", substeps=INNER), None, _step("g", **LOOPS)]},
        {"steps": [_step("a", substeps=INNER, parallel=True), _step("g", substeps=INNER, **LOOPS)]},
        {
            "stages": [
                {"steps": [_step("a")], "approval": {"required": True}},
                3,
                {"steps": [_step("b", substeps=INNER)]},
            ]
        },
        {"steps": {"a": 1}},
        {},
    ],
)
def test_both_ways_come_to_the_same_steps(document: dict[str, Any]) -> None:
    """Both ways of walking visit every step once at its place, including nested ones, in the order of the flow."""
    spots = [spot for spot in walk.spots(document) if isinstance(spot, walk.Spot) and not spot.inner]

    assert list(walk.placed(document)) == [(spot.place, spot.step) for spot in spots]
    assert tuple(step["id"] for _, step in walk.placed(document)) == walk.ids(document)


def test_folders_of_commands_are_found_at_any_depth() -> None:
    """An argument that is the folder of a command counts also in a sub-step, unless a step or a loop sets it."""
    inner = [_step(name, cwd=f"{{{{{name}}}}}") for name in ("given", "made", "item")]
    looped = {"id": "g", "foreach": "{{l}}", "substeps": inner}

    assert walk.path_args({"steps": [_step("a", output="made"), looped]}) == {"given": True}
