"""Tests of composition: steps from files beside the recipes, and arguments in prompts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.dialects.agent_recipes import composition, parse
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import AGAIN, COMMIT, FIX, RECIPE, REVIEW, recipe

STEPS = {"review": REVIEW, "fix": FIX, "commit": COMMIT}


class Files:
    """Files beside recipes, with a record of those that were read."""

    def __init__(self, **contents: Any) -> None:
        self.contents = {f"shared/{name}.json": content for name, content in contents.items()}
        self.read: list[str] = []

    def __call__(self, name: str) -> str:
        self.read.append(name)
        if name not in self.contents:
            raise errors.InputRefused("there is no such file")
        content = self.contents[name]
        return content if isinstance(content, str) else json.dumps(content)


def _composed(steps, **files):
    made = composition.compose(json.dumps(recipe(steps=steps)), Files(**files))
    assert made.flaws == ()
    return json.loads(made.source)["steps"]


def _flaws(steps, **files):
    made = composition.compose(json.dumps(recipe(steps=steps)), Files(**files))
    assert json.loads(made.source)["steps"] == steps
    return [(flaw.path, flaw.code, flaw.message) for flaw in made.flaws]


def test_a_text_without_references_stays_as_it_is():
    """A text without references is unchanged: no file is read, and places in the text remain valid."""
    files, source = Files(), json.dumps(RECIPE, indent=7)

    assert composition.compose(source, files).source is source
    assert composition.compose("{broken", files).source == "{broken"
    assert composition.compose("[]", files).source == "[]"
    assert composition.compose('{"steps": 3}', files).source == '{"steps": 3}'
    assert files.read == []


def test_a_step_is_taken_by_reference():
    """A referenced step is the same in the recipe as in its file."""
    steps = {"review": REVIEW, "fix": {"$ref": "shared/s.json#/fix"}, "commit": {"$ref": "shared/s.json#/commit"}}

    assert _composed(steps, s=STEPS) == STEPS


def test_steps_are_taken_in_where_they_are_included():
    """All steps of an included file are inserted at their place, in order; the recipe's own steps override them."""
    own = {**FIX, "prompt": "Mend it here."}
    first = _composed({"$include": "shared/s.json", "fix": own}, s=STEPS)
    last = _composed({"fix": own, "$include": ["shared/s.json", "shared/t.json"]}, s=STEPS, t={"more": FIX})

    assert first == {"review": REVIEW, "commit": COMMIT, "fix": own}
    assert list(first) == ["review", "commit", "fix"]
    assert list(last) == ["fix", "review", "commit", "more"]


def test_fields_beside_a_reference_go_before_those_of_the_step():
    """Fields beside a reference override the step's: transitions are merged by outcome, other fields replaced."""
    reference = {"$ref": "shared/s.json#/commit", "model": "opus", "onOutcome": {"committed": {"nextStep": "fix"}}}
    steps = _composed({**STEPS, "commit": reference}, s=STEPS)

    assert steps["commit"] == {
        **COMMIT,
        "model": "opus",
        "onOutcome": {"committed": {"nextStep": "fix"}, "other": recipe_harness.OTHER},
    }


def test_files_may_lead_on_to_others():
    """References and inclusions in a shared file are followed, and each file is read once."""
    files = Files(a={"$include": "shared/b.json", "fix": {"$ref": "shared/c.json#/deep/fix"}}, b=STEPS)
    files.contents["shared/c.json"] = {"$schema": "x", "deep": {"fix": {"$ref": "shared/b.json#/fix", "model": "opus"}}}
    made = composition.compose(json.dumps(recipe(steps={"$include": "shared/a.json"})), files)

    assert made.flaws == ()
    assert json.loads(made.source)["steps"] == {"review": REVIEW, "commit": COMMIT, "fix": {**FIX, "model": "opus"}}
    assert sorted(files.read) == ["shared/a.json", "shared/b.json", "shared/c.json"]


def test_names_in_pointers_may_be_escaped():
    """`~1` means a slash and `~0` a tilde, as in any JSON pointer."""
    assert _composed({**STEPS, "fix": {"$ref": "shared/s.json#/a~1b/c~0d"}}, s={"a/b": {"c~d": FIX}}) == STEPS


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        ("shared/absent.json#/fix", "unusable_file", "shared/absent.json cannot be used: there is no such file"),
        ("shared/list.json#/fix", "unusable_file", "shared/list.json must be an object, not a list"),
        ("shared/bad.json#/fix", "unusable_file", "shared/bad.json cannot be used: the text is not JSON"),
        ("shared/s.json#/fxi", "unknown_part", "shared/s.json has no 'fxi'; did you mean fix?"),
        ("shared/s.json#/fix/prompt", "unknown_part", "shared/s.json#/fix/prompt is not a step"),
        ("shared/s.json#/fix/prompt/x", "unknown_part", "shared/s.json has no 'x'"),
        ("shared/s.json#fix", "invalid_ref", "must end in #/ and the name of a step"),
        ("shared/s.json", "invalid_ref", "must end in #/ and the name of a step"),
        ("#/steps/fix", "invalid_ref", "'' does not name a JSON file"),
        ("../s.json#/fix", "invalid_ref", "'../s.json' does not name a JSON file"),
        ("shared/../s.json#/fix", "invalid_ref", "does not name a JSON file"),
        ("shared/.hidden.json#/fix", "invalid_ref", "does not name a JSON file"),
        ("/etc/s.json#/fix", "invalid_ref", "does not name a JSON file"),
        ("shared\\s.json#/fix", "invalid_ref", "does not name a JSON file"),
        ("http://example.invalid/s.json#/fix", "invalid_ref", "does not name a JSON file"),
        ("shared/s.txt#/fix", "invalid_ref", "does not name a JSON file"),
        (7, "invalid_ref", "'7' does not name a JSON file"),
        ("shared/round.json#/fix", "cyclic_ref", "leads back to itself: shared/round.json#/fix → shared/round.json#/b"),
        ("shared/own.json#/fix", "cyclic_ref", "leads back to itself"),
    ],
)
def test_a_reference_that_leads_nowhere(reference, code, message):
    """A broken reference is reported at its place and left unchanged, and no file outside the folder is read."""
    rounds = {"fix": {"$ref": "shared/round.json#/b"}, "b": {"$ref": "shared/round.json#/fix"}}
    himself = {"fix": {"$ref": "shared/own.json#/fix"}}
    found = _flaws({**STEPS, "fix": {"$ref": reference}}, s=STEPS, list=[], bad="{", round=rounds, own=himself)

    assert [(path, kind) for path, kind, _ in found] == [("$.steps.fix.$ref", code)]
    assert message in found[0][2]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ("shared/absent.json", "unusable_file"),
        ("../s.json", "invalid_ref"),
        (["shared/s.json", "shared/s.json"], "duplicate_step"),
        (["shared/s.json", 7], "invalid_ref"),
        (None, "invalid_ref"),
        ("shared/round.json", "cyclic_ref"),
        ("shared/wide0.json", "too_many_parts"),
    ],
)
def test_an_inclusion_that_cannot_be_made(files, code):
    """An impossible inclusion is reported at its place; circles and endless multiplication are detected."""
    wide = {f"wide{n}": {"$include": [f"shared/wide{n + 1}.json"] * 3} for n in range(30)}
    found = _flaws({"$include": files}, s=STEPS, round={"$include": "shared/round.json"}, wide30={}, **wide)

    assert [(path, kind) for path, kind, _ in found] == [('$.steps["$include"]', code)]


def test_a_fault_in_a_shared_step_is_reported_in_the_recipe():
    """Shared steps must follow the same rules as the recipe's own."""
    source = json.dumps(recipe(steps={**STEPS, "fix": {"$ref": "shared/s.json#/fix"}}))
    made = composition.compose(source, Files(s={"fix": {**FIX, "model": "large"}}))

    assert made.flaws == ()
    assert recipe_harness.flaws(made.source) == {("$.steps.fix.model", "invalid_value")}


def _located(steps, **files):
    """Return path and message of the flaws of a composed recipe, as people see them."""
    made = composition.compose(json.dumps(recipe(steps=steps)), Files(**files))
    with pytest.raises(errors.RecipeInvalid) as caught:
        parse.parse(made.source)
    return {flaw.path: flaw.message for flaw in made.located(caught.value.flaws)}


def test_a_fault_in_a_part_from_another_file_names_the_place_there():
    """The file to mend is the one with the step, through any number of references; the recipe's own parts are its."""
    inner = {"fix": {**FIX, "model": "large", "onOutcome": {"complete": {"nextStep": "nowhere"}}}}
    outer = {"mend": {"$ref": "shared/inner.json#/fix", "max_output_tokens": -1}}
    reference = {"$ref": "shared/outer.json#/mend", "prompt": " "}
    found = _located({**STEPS, "fix": reference}, inner=inner, outer=outer)

    assert found["$.steps.fix.model"].endswith(" (in shared/inner.json at $.fix.model)")
    assert found["$.steps.fix.onOutcome.complete.nextStep"].endswith(
        " (in shared/inner.json at $.fix.onOutcome.complete.nextStep)"
    )
    assert found["$.steps.fix.max_output_tokens"].endswith(" (in shared/outer.json at $.mend.max_output_tokens)")
    assert found["$.steps.fix.prompt"] == "is blank"


def test_a_fault_in_a_changed_transition_is_the_recipes_own():
    """Of a merged `onOutcome` each transition is in the file that wrote it."""
    reference = {"$ref": "shared/s.json#/fix", "onOutcome": {"extra": {"nextStep": "commit"}}}
    shared = {"fix": {**FIX, "onOutcome": {"other": {"nextStep": "nowhere", "reason": "x"}}}}
    found = _located({**STEPS, "fix": reference}, s=shared)

    assert " (in shared/s.json at $.fix.onOutcome.other.nextStep)" in found["$.steps.fix.onOutcome.other.nextStep"]
    assert "shared/" not in found["$.steps.fix.onOutcome.extra"]


def test_a_fault_in_an_included_step_names_the_place_there():
    """An included step is in the included file under its own name."""
    found = _located({"review": REVIEW, "$include": "shared/s.json"}, s={"fix": {**FIX, "x": 1}, "commit": COMMIT})

    assert found == {"$.steps.fix.x": found["$.steps.fix.x"]}
    assert found["$.steps.fix.x"].endswith(" (in shared/s.json at $.fix.x)")


def test_a_broken_reference_in_a_shared_file_names_that_file():
    """The recipe's reference is sound: the one behind it is not."""
    found = _flaws({**STEPS, "fix": {"$ref": "shared/a.json#/fix"}}, a={"fix": {"$ref": "shared/absent.json#/fix"}})

    assert found[0][2].endswith("there is no such file (named in shared/a.json#/fix)")


def test_a_missing_inclusion_blames_no_step():
    """While an inclusion is missing, a reference to a step is not reported as unknown."""
    source = json.dumps(recipe(steps={"review": REVIEW, "$include": "shared/absent.json"}))
    made = composition.compose(source, Files())

    assert [flaw.code for flaw in made.flaws] == ["unusable_file"]
    assert recipe_harness.flaws(made.source) == {('$.steps["$include"]', "not_composed")}


def test_arguments_are_put_in_once():
    """Texts are inserted unchanged, other values as JSON, and inserted values are not searched for placeholders."""
    args = {"a": "{{args.b}}", "b": "B", "list": [1, {"x": None}], "yes": True}
    prompt = "{{args.a}} {{ args.b }} {{args.list}} {{args.yes}} {{b}} {args.b} {{args.b }}"

    assert composition.filled(prompt, args) == '{{args.b}} B [1,{"x":null}] true {{b}} {args.b} B'
    assert list(composition.placeholders(prompt)) == ["a", "b", "list", "yes", "b"]


def test_a_restart_makes_the_recipe_another():
    """A recipe of the catalogue shares a step and changes one transition of it."""
    reference = {"$ref": "shared/s.json#/commit", "onOutcome": {"committed": AGAIN["onOutcome"]["committed"]}}

    assert _composed({**STEPS, "commit": reference}, s=STEPS)["commit"] == AGAIN


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_reference_is_composed_or_reported(file, pointer):
    """Any text is composed without an exception, and only files below the folder are read."""
    files = Files(s=STEPS)
    source = json.dumps(recipe(steps={**STEPS, "fix": {"$ref": f"{file}#{pointer}"}}))
    made = composition.compose(source, files)

    assert made.flaws or made.source == source
    assert all(".." not in name and not name.startswith("/") for name in files.read)
