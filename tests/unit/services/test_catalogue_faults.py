"""The catalogue reports all flaws of a broken recipe at once, including those that depend on the library."""

from __future__ import annotations

import json

from app import clock
from app.bootstrap import catalogue as bootstrap_catalogue
from app.dialects import registry
from app.domain import library
from app.services import recipes
from tests.unit.services import small_recipes

BROKEN = {
    "recipe_id": "broken",
    "phase_a": [
        {"step_id": "one", "tool": "nothing", "output_slot": "a"},
        {"step_id": "one", "tool": "finder", "args": {}, "output_slot": "b", "colour": "red"},
    ],
}
PATHS_AND_CODES = {
    ("$.phase_a[0].tool", "unknown_tool"),
    ("$.phase_a[1].step_id", "duplicate_step_id"),
    ("$.phase_a[1].colour", "unknown_field"),
    ("$.phase_a[1].args.query", "missing_field"),
}


def _catalogue(root):
    schema = {"type": "object", "properties": {"query": {}}, "required": ["query"], "additionalProperties": False}
    definition_cache = library.Library(
        tools={"finder": library.ToolSpec(name="finder", description="", args_schema=schema)}
    )
    layers = bootstrap_catalogue.recipe_layers(root / "bundled", root / "project", registry.DIALECTS)
    return recipes.Catalogue(
        layers=layers,
        dialects=registry.DIALECTS,
        library=lambda: definition_cache,
        readiness=small_recipes.READY,
        clock=clock.SystemClock(),
    )


def _paths_and_codes(flaws):
    return {(flaw.path, flaw.code) for flaw in flaws}


def test_all_faults_of_a_text_are_reported_together(tmp_path):
    """An unknown tool is reported together with a repeated step id."""
    examined = _catalogue(tmp_path).examine(json.dumps(BROKEN), "control_room")

    assert examined.recipe_version is None
    assert _paths_and_codes(examined.flaws) == PATHS_AND_CODES


def test_an_undeclared_argument_breaks_only_its_own_recipe(tmp_path):
    """A reference to an argument that an open schema does not declare is a flaw where a tool requires it."""
    (tmp_path / "project" / "recipes").mkdir(parents=True)
    step = {"step_id": "one", "tool": "finder", "args": {"query": {"$ref": "task.args.q"}}, "output_slot": "a"}
    recipe = {"recipe_id": "open", "args_schema": {"additionalProperties": True}, "phase_a": [step]}
    (tmp_path / "project" / "recipes" / "open.json").write_text(json.dumps(recipe))
    (found,) = _catalogue(tmp_path).all()

    assert ("$.phase_a[0].args.query", "optional_arg") in _paths_and_codes(found.flaws)


def test_a_broken_file_is_listed_with_all_its_faults(tmp_path):
    """The list has the same flaws as the examination of the text."""
    (tmp_path / "project" / "recipes").mkdir(parents=True)
    (tmp_path / "project" / "recipes" / "broken.json").write_text(json.dumps(BROKEN))
    (tmp_path / "project" / "recipes" / "worse.json").write_text("{")
    broken, worse = _catalogue(tmp_path).all()

    assert (broken.recipe_id, _paths_and_codes(broken.flaws)) == ("broken", PATHS_AND_CODES)
    assert _paths_and_codes(worse.flaws) == {("$", "syntax")}
