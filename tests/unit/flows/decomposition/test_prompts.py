"""Tests of the chief's prompt: kinds of tasks, files and rules, as many as fit its size."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import json_schemas, library
from app.flows.decomposition import kinds, prompts, schema, small
from tests.unit.dialects import bench, example
from tests.unit.flows.decomposition import splitting
from tests.unit.flows.decomposition.splitting import INTENT, RECIPES, SCENE_ARGS, Split, recipe

FILES = [{"path": f"Story/{n}.md", "category": "scene", "title": f"Scene {n}"} for n in range(40)]


@functools.cache
def bundled() -> list[Any]:
    """Return the kinds of tasks of the bundled recipes."""
    dialect: Any = bench.DIALECT
    return kinds.frozen(
        dialect.parse(path.read_text(encoding="utf-8"), path.stem) for path in example.RECIPES.glob("*.json")
    )


def asked(tier: library.Tier, intent: str = INTENT, known: Any = None) -> str:
    """Return the prompt of a chief of a tier."""
    size = schema.SIZES[tier]
    fitting = kinds.fitting(bundled() if known is None else known, intent)[: size.kinds]
    if not size.whole:
        return small.request(intent, small.parts(intent, fitting), fitting)
    return prompts.request(size, intent, FILES[: size.files], fitting)


def test_each_routable_recipe_gives_a_kind():
    """Each recipe with task patterns gives its label, plain phrases, and arguments, needed ones first."""
    check, write = kinds.frozen(RECIPES)

    assert check == {
        "label": "The label of check",
        "phrases": ["consistency check", "check consistency"],
        "expressions": [],
        "args": [],
        "done_when": [],
    }
    assert (write["phrases"], write["expressions"]) == (["draft scene", "write scene"], [r"/write .*\.md/"])
    assert [(arg["name"], arg["required"]) for arg in write["args"]] == [
        ("scene_path", True),
        ("canon_paths", True),
        ("outline_path", False),
    ]
    assert write["args"][1] == {
        "name": "canon_paths",
        "required": True,
        "about": "The canon.",
        "form": {"type": "array", "items": {"type": "string"}},
    }


@pytest.mark.parametrize(
    "made",
    [
        recipe("a", "", "x" * 600, "/(/", "fine"),
        recipe("a", "fine", "long " * 30),
        recipe("a", "fine", args={"properties": {"x": True, "y": {"type": ["string", "null"]}, "z": {"$ref": "#"}}}),
        recipe("a", "fine", args={"type": "object", "required": ["gone"]}),
        recipe("a", "fine", args={}),
    ],
)
def test_odd_recipes_are_survived(made):
    """Invalid patterns and sparse schemas are skipped, and the rest is used."""
    (kind,) = kinds.frozen([made])

    assert kind["phrases"] == ["fine"]
    assert all(set(arg) == {"name", "required", "about", "form"} and not arg["required"] for arg in kind["args"])


def test_the_frozen_kinds_are_bounded():
    """The frozen kinds of a run remain small, however many and large the recipes are."""
    rules = {f"arg_{n}": {"type": "string", "description": "word " * 5_000} for n in range(300)}
    many = [
        recipe(f"r{n}", *(f"phrase {n} {m}" for m in range(100)), args={"type": "object", "properties": rules})
        for n in range(300)
    ]

    assert len(json.dumps(kinds.frozen(many))) < 2_000_000


def test_kinds_named_in_the_intent_come_first():
    """Kinds and phrases with words of the intent come before the others, the longest first."""
    fitting = kinds.fitting(bundled(), INTENT)

    assert [kind["phrases"][0] for kind in fitting[:3]] == ["foreshadowing audit", "check consistency", "write scene"]
    assert {kind["label"] for kind in fitting} == {kind["label"] for kind in bundled()}


def test_a_whole_prompt_contains_intent_files_and_kinds():
    """The prompt has intent, files, kinds with phrases and arguments, rules and form, but no recipe and no tool."""
    for tier in ("t3", "t5"):
        prompt = asked(tier)

        assert INTENT in prompt
        assert "- Story/0.md (scene): Scene 0" in prompt
        assert '"write scene" or "draft scene"' in prompt
        assert "scene_path (text, required)" in prompt
        assert "outline_path (text, may be left out)" in prompt
        assert '"tasks"' in prompt
        for name in (*example.TABLE, *example.TOOLS.specs()):
            assert name not in prompt


def test_a_small_prompt_is_short():
    """The prompt of a T1 agent has the parts of the intent and one example, but no files and arguments."""
    small_prompt, middle, large = asked("t1"), asked("t3"), asked("t5")

    assert len(small_prompt) < 1_000 < len(middle) < len(large)
    assert "Parts:\n- write scene 21 and 22\n- check consistency\n- foreshadowing audit\nTasks:" in small_prompt
    assert "canon_paths" not in small_prompt
    assert "Story/" not in small_prompt
    assert "What can be done: consistency check, " in asked("t1", "Make it better")


def test_without_kinds_the_chief_is_asked_for_questions():
    """In a project without recipes to route to, the chief is asked for tasks with questions."""
    assert "ask a scoping_question of every task" in asked("t3", known=[])
    assert asked("t1", known=[])


@given(st.text(min_size=1).filter(str.strip))
def test_an_intent_is_inserted_once_and_unchanged(intent):
    """The prompt contains any intent once and unchanged, without expansion."""
    assert intent.strip() in asked("t3", intent)


@pytest.mark.parametrize("tier", ["t3", "t5"])
def test_a_reply_that_fits_the_form_has_no_flaw(tier):
    """A backend that binds the chief to the form cannot return a reply with a flaw of form."""
    size = schema.SIZES[tier]
    form = schema.form(size, kinds.arguments(bundled()))
    args = {"scene_path": "x", "canon_paths": ["y"]}
    task = {
        "id": 1,
        "description": "Write it",
        "deps": [],
        "dod": "It is there.",
        "args": args,
        "scoping_question": None,
    }

    assert json_schemas.flaws(form, {"tasks": [task]}) == []
    assert json_schemas.flaws(schema.checked(size.tasks), {"tasks": [task]}) == []
    assert json_schemas.flaws(form, {"tasks": [task] * (size.tasks + 1)})


def test_one_name_for_two_forms_allows_both():
    """An argument that has different forms in two kinds may have any form."""
    number = {"type": "object", "properties": {"scene_path": {"type": "integer"}}}
    form: Any = schema.form(
        schema.SIZES["t3"],
        kinds.arguments(kinds.frozen([recipe("a", "x", args=number), recipe("b", "y", args=SCENE_ARGS)])),
        outputs=False,
    )
    properties = form["properties"]["tasks"]["items"]["properties"]["args"]["properties"]

    assert properties["scene_path"] == kinds.ANY_FORM
    assert properties["outline_path"] == {"type": "string"}


@pytest.mark.parametrize("tier", ["t1", "t3", "t5"])
async def test_the_size_goes_by_the_tier(tier, tmp_path):
    """The number of tasks, the tokens and the requested form depend on the chief's tier."""
    size = schema.SIZES[tier]
    replied = splitting.reply(*(splitting.task(n) for n in range(1, size.tasks + 2)))
    split = Split(tmp_path, replied, splitting.REPLY, definition_cache=splitting.stock(tier))
    await split.run()
    call = split.call("chief")

    assert call.max_tokens == size.tokens
    assert ("args" in json.dumps(call.reply_schema)) is size.whole
    assert split.keys[-1] == "chief.correction"


def test_a_correction_counts_the_omitted_flaws():
    """A correction lists as many flaws as fit, and the number of the others."""
    flaws = [errors.Flaw(path=f"$.tasks[{n}]", message="is wrong") for n in range(9)]
    told = prompts.correction("ASKED", schema.SIZES["t1"], "REPLY", flaws)

    assert told.startswith("ASKED\n\nYou answered:\nREPLY\n\n")
    assert told.count("is wrong") == schema.SIZES["t1"].flaws
    assert "and 4 more" in told


def test_a_kind_lists_the_slots_that_its_runs_fill():
    """A kind lists the slots that its runs fill, and a rule shows how a later task names one; the form allows it."""
    prompt = asked("t3", "write scene 21")
    assert "leaves scene_brief, draft, edited_draft (with a file), continuity_report, critique" in prompt
    assert '{"$task": 1, "path": "edited_draft"}' in prompt

    form = schema.form(schema.SIZES["t3"], kinds.arguments(bundled()))
    outputs: list[Any] = [[{"$task": 1, "path": "edited_draft"}], {"$task": 1, "output": "draft"}, ["a.md"]]
    for value in outputs:
        wanted = splitting.task(2, 1) | {"args": {"canon_paths": value}, "scoping_question": None}
        assert json_schemas.flaws(form, {"tasks": [wanted]}) == []

    wrong = splitting.task(2, 1) | {"args": {"canon_paths": [{"$task": 1}]}, "scoping_question": None}
    assert json_schemas.flaws(form, {"tasks": [wrong]}) != []
