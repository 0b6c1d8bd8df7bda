"""Tests of the router: the recipe and arguments for a description, and its behaviour with any text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.dialects import registry
from app.domain import library
from app.services import routing
from tests.examples import examples

RECIPES = Path(__file__).resolve().parents[3] / "recipes" / "control_room"


def _recipe(recipe_id, *patterns, required=(), **properties):
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return library.Recipe(
        recipe_id=recipe_id,
        dialect="control_room",
        label=recipe_id,
        document={},
        args_schema=schema,
        task_patterns=patterns,
    )


def _route(text, *recipes):
    return routing.Router(recipes).route(text)


@pytest.fixture(scope="module")
def bundled():
    """Return the router over the bundled recipes."""
    dialect = registry.DIALECTS["control_room"]
    return routing.Router(
        [dialect.parse(path.read_text(encoding="utf-8"), path.stem) for path in RECIPES.glob("*.json")]
    )


def test_a_phrase_matches_regardless_of_case():
    """A phrase matches regardless of case."""
    found = _route("Please DRAFT scene 21", _recipe("a", "draft scene"), _recipe("b", "check canon"))

    assert found.to_json() == {
        "recipe_id": "a",
        "initial_args": {},
        "routable": True,
        "reason": "The phrase draft scene occurs in the description.",
        "questions": {},
        "candidates": [{"recipe_id": "a", "initial_args": {}, "pattern": "draft scene", "characters": 11}],
    }


def test_every_recipe_that_fits_is_a_candidate():
    """Every recipe that matches is listed once with its arguments, the longest match first."""
    found = _route(
        "draft scene 21", _recipe("b", "draft"), _recipe("a", "draft scene", "draft"), _recipe("c", "scene 21")
    )

    assert [(each.recipe_id, each.pattern, each.characters) for each in found.candidates] == [
        ("a", "draft scene", 11),
        ("c", "scene 21", 8),
        ("b", "draft", 5),
    ]


def test_none_that_fits():
    """A description without a match gets a reason and no arguments, and is not routable."""
    found = _route("Make coffee", _recipe("a", "draft scene"))

    assert (found.recipe_id, found.routable, dict(found.initial_args)) == (None, False, {})
    assert found.reason == "No recipe's task pattern occurs in the description."
    assert _route("  ", _recipe("a", "draft scene")).reason == "The description is empty."
    assert _route("Draft scene").reason == "No recipe has task patterns."


def test_the_longest_match_wins():
    """The longest match wins, whether of a phrase or an expression."""
    short, long = _recipe("a", "scene"), _recipe("b", "draft scene")
    expression = _recipe("c", r"/draft scene \d+ of part \w+/", "/s/")

    assert _route("Draft scene 21", short, long).recipe_id == "b"
    assert _route("Draft scene 21", long, short, expression).recipe_id == "b"
    assert _route("Draft scene 21 of part three", long, short, expression).recipe_id == "c"
    assert "covers more of it than the patterns of a" in _route("Draft scene 21", short, long).reason


def test_a_tie_is_decided_by_id_with_a_reason():
    """Of equally long matches the first recipe by id wins, and the reason names the other."""
    one, other = _recipe("b", "draft"), _recipe("a", "scene")
    found = _route("draft scene", one, other)

    assert found.recipe_id == "a"
    assert found == _route("draft scene", other, one)
    assert "A pattern of b covers as much of it; the first by name was taken." in found.reason


def test_named_groups_become_arguments():
    """Named groups of all matching patterns become arguments of the schema's types; the longer match wins."""
    recipe = _recipe(
        "a",
        r"/scene (?P<number>\d+)/",
        r"/draft scene (?P<number>\d+)(?P<rest> now)? in (?P<style>\w+) at (?P<weight>[\d.]+)/",
        r"/(?P<names>kael)/",
        number={"type": "integer"},
        style={"type": "string"},
        weight={"type": "number"},
        names={"type": "array"},
    )

    assert dict(_route("Draft scene 21 in verse at 1.5 with Kael, scene 3", recipe).initial_args) == {
        "number": 21,
        "style": "verse",
        "weight": 1.5,
        "names": ["Kael"],
    }
    assert dict(_route("scene 3", recipe).initial_args) == {"number": 3}


def test_a_group_that_is_not_a_number_remains_a_text():
    """A group that does not fit its type stays text, so that the check of arguments reports it."""
    recipe = _recipe("a", r"/scene (?P<number>\w+)/", number={"type": "integer"})

    assert dict(_route("scene " + "9" * 400, recipe).initial_args) == {"number": "9" * 400}
    assert dict(_route("scene one", recipe).initial_args) == {"number": "one"}


def test_groups_that_the_recipe_does_not_declare_are_left():
    """A group that the recipe does not declare is dropped."""
    assert dict(_route("scene 3", _recipe("a", r"/scene (?P<number>\d+)/")).initial_args) == {}


SCENE: dict[str, Any] = {"scene_path": {}}
CANON: dict[str, Any] = {"canon_paths": {}}


@pytest.mark.parametrize(
    ("required", "properties", "text", "args"),
    [
        (["scene_path"], SCENE, "go Story/a.md", {"scene_path": "Story/a.md"}),
        (["scene_path"], SCENE, "go", {}),
        (["scene_path"], SCENE, "go a.md b.md", {"scene_path": "a.md"}),
        (["scene_path", "canon_paths"], SCENE | CANON, "go a.md", {"scene_path": "a.md"}),
        (
            ["scene_path", "canon_paths"],
            SCENE | CANON,
            "go a.md, b.md and c.md",
            {"scene_path": "a.md", "canon_paths": ["b.md", "c.md"]},
        ),
        (["canon_paths"], SCENE | CANON, "go a.md", {"canon_paths": ["a.md"]}),
        (["canon_paths"], {"scene_paths": {}} | CANON, "go a.md", {"canon_paths": ["a.md"]}),
        ([], {"scene_paths": {}} | CANON, "go a.md b.md", {"scene_paths": ["a.md", "b.md"]}),
        ([], {"outline_path": {}, "scene_paths": {}}, "go a.md", {"scene_paths": ["a.md"]}),
        ([], {"outline_path": {}}, "go a.md", {"outline_path": "a.md"}),
        ([], {"other": {}}, "go a.md", {}),
    ],
)
def test_paths_become_arguments(required, properties, text, args):
    """The first path is the first required `*_path`, and the rest go to a `*_paths` or to optional arguments."""
    assert dict(_route(text, _recipe("a", "go", required=required, **properties)).initial_args) == args


def test_a_group_keeps_its_argument_from_the_paths():
    """An argument found by a group is not replaced by a path."""
    recipe = _recipe("a", r"/draft (?P<scene_path>\S+)/", required=["scene_path", "canon_paths"], **SCENE, **CANON)

    assert dict(_route("draft x.md from y.md", recipe).initial_args) == {
        "scene_path": "x.md",
        "canon_paths": ["x.md", "y.md"],
    }


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Draft Story/Scenes/SCN-the-arrival.md.", ["Story/Scenes/SCN-the-arrival.md"]),
        ("a.md, b.txt; (c.MD) [d.json]", ["a.md", "b.txt", "c.MD", "d.json"]),
        ("'My Story/Scene 1.md' and `e.md` and “f g.md”", ["My Story/Scene 1.md", "e.md", "f g.md"]),
        ("all in Story/Scenes/ please", ["Story/Scenes/"]),
        ("Story/Scenes/, Compendium/.", ["Story/Scenes/", "Compendium/"]),
        ("a.md a.md", ["a.md"]),
        ("he/she and/or e.g. 3/4 v1.2 i.e. notes.mdx .md / ./", []),
        ("/etc/passwd.md ../up.md x/../y.md ~/z.md https://example.org/q.md", []),
        ("Szenen/Überfahrt-№1.md", ["Szenen/Überfahrt-№1.md"]),
    ],
)
def test_paths_in_a_text(text, paths):
    """Paths of text files and folders are found, quoted ones with spaces; impossible paths are not."""
    assert routing.paths_in(text) == paths


@pytest.mark.parametrize(
    ("text", "recipe_id"),
    [
        ("Draft scene 21", "creative_draft_scene"),
        ("Write Scene 22", "creative_draft_scene"),
        ("Please draft the next scene", "creative_draft_scene"),
        ("Consistency check (scenes 21–22 vs canon)", "analytical_consistency"),
        ("Check Story/Scenes/ for contradictions", "analytical_consistency"),
        ("Review the pacing of Story/Scenes/SCN-the-arrival.md", "analytical_prose"),
        ("Foreshadowing audit", "analytical_foreshadow"),
        ("Validate Story/Scenes/SCN-the-arrival.md", "analytical_scene_validate"),
        ("Update canon from Story/Scenes/SCN-the-arrival.md", "structural_canon"),
        ("Restructure the outline", "structural_outline"),
    ],
)
def test_the_bundled_recipes_are_found(bundled, text, recipe_id):
    """Typical descriptions reach the intended bundled recipe."""
    assert bundled.route(text).recipe_id == recipe_id


def test_a_description_with_paths_starts_the_draft_of_a_scene(bundled):
    """A description with two paths gives both required arguments of `creative_draft_scene`."""
    text = "Draft Story/Scenes/SCN-the-arrival.md with Compendium/Characters/CHAR-kael.md"

    found = bundled.route(text).to_json()
    assert found.pop("candidates")[0]["initial_args"] == found["initial_args"]
    assert found | {"reason": ""} == {
        "recipe_id": "creative_draft_scene",
        "initial_args": {
            "scene_path": "Story/Scenes/SCN-the-arrival.md",
            "canon_paths": ["Compendium/Characters/CHAR-kael.md"],
        },
        "routable": True,
        "reason": "",
        "questions": {},
    }


@settings(max_examples=examples(60))
@given(st.text(max_size=200) | st.text(st.sampled_from(list("draft scene/.md\"'`()\n\\\x00\ud800é")), max_size=200))
def test_any_text_gets_an_answer_and_always_the_same(bundled, text):
    """Any text gets a deterministic answer that can be written as JSON."""
    found = bundled.route(text)

    assert found == bundled.route(text)
    assert found.routable is (found.recipe_id is not None)
    assert found.reason
    json.dumps(found.to_json()).encode("utf-8")
    json.dumps(found.to_json(), ensure_ascii=False).encode("utf-8")


def test_a_hostile_recipe_or_text_does_not_slow_the_router_down():
    """Catastrophic expressions and long texts are routed within ten seconds, and broken patterns are ignored."""
    patterns = ["/(a+)+$/", "/(a|aa)+b/", "/(.*a){12}b/", "/(/", "", "/" + "(a?){100}" * 5 + "/"]
    router = routing.Router([_recipe(f"r{number}", *patterns) for number in range(20)])
    texts = ["a" * 1_000_000 + "!", "/" * 1_000_000, "a/" * 500_000, "." * 1_000_000, '"' * 1_000_000, "a.md" * 250_000]
    began = time.process_time()
    for text in texts:
        router.route(text)
        routing.paths_in(text[: routing.MAX_CHARACTERS])

    assert time.process_time() - began < 10


def test_the_reason_for_a_long_pattern_stays_short():
    """A long pattern is cut in the reason."""
    found = _route("x" * 500, _recipe("a", "x" * 500))

    assert len(found.reason) < 200
