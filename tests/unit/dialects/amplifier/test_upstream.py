"""Recipes of later versions of Amplifier: accepted under schema 1.7, or refused with what to write instead."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from app.dialects.amplifier import agents, parse
from app.domain import library, operations, records
from app.domain.states import StepState
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import (
    broke,
    flaws,
    later,
    own_flaws,
    parsed,
    printed,
    ran,
    recipe,
    staged,
    step,
)

BACKENDS = {"cloud": {"haiku": "claude-haiku-5", "sonnet": "claude-sonnet-5", "opus": "claude-opus-5"}, "script": {}}


def _checked(text: str, **registry: Any) -> dict[str, tuple[int | None, str]]:
    definition_cache = library.Library(
        agents=(library.Agent(id="helper", archetype="helper", tier="t3", backend="script"),), **registry
    )
    return {flaw.code: (flaw.line, flaw.path) for flaw in recipe_harness.DIALECT.flaws(text, "x", definition_cache)}


def _exited(stdout: str) -> Any:
    return records.Result(
        status=StepState.FAILED,
        output=printed(stdout, 3),
        error=records.StepError(code="exit_code", message="code 3"),
    )


# -- refused by name


@pytest.mark.parametrize("field", parse.INSTEAD)
@pytest.mark.parametrize("schema", ["1.1", "1.7"])
def test_fields_of_later_recipes_are_named(field: str, schema: str) -> None:
    """A field of later recipes only is refused in any schema, with what to write instead."""
    top = {"schema_version", "dependencies", "agents", "capabilities", "orchestrator"}
    stage = {"approval_required", "approval_message", "auto_approve_if", "condition"}
    document: dict[str, Any] = recipe(step(), schema=schema)
    if field in top:
        document[field] = 2
    elif field in stage:
        document = staged({"name": "s", "steps": [step()], field: "x"})
    elif field in ("class", "required"):
        document = later(step(provider_preferences=[{"provider": "p", field: "x"}]))
    elif field == "reset_after_success":
        document = later(step(), rate_limiting={"backoff": {field: 3}})
    else:
        document["steps"][0][field] = "x"
    (found,) = own_flaws(document)

    assert found.code == "unknown_field"
    assert found.message == f"belongs to later recipes of Amplifier; {parse.INSTEAD[field]}"


def test_one_flaw_for_a_missing_schema_line() -> None:
    """A recipe of 1.7 without the schema line has one flaw for it, beside those that it would have in 1.7."""
    steps = [{"id": f"s{number}", "type": "bash", "command": "ls", "output": "x"} for number in range(30)]
    found = own_flaws(recipe(*steps, step("tell", prompt="{{nothing}}"), rate_limiting={}))

    assert [(flaw.path, flaw.code) for flaw in found] == [
        ("$.steps[0].type", "needs_schema"),
        ("$.steps[30].prompt", "undefined_variable"),
    ]
    assert "and so do 60 other fields" in found[0].message


@pytest.mark.parametrize(
    "document",
    [
        recipe(step(), name="my recipe " * 40),
        recipe(step("an id with blanks")),
        recipe(step(output="a b")),
        recipe(step(prompt=" ")),
        recipe(step(), version="1"),
        recipe(step(), description="d" * 5000),
        recipe(step(agent="?" * 5000)),
        later({"id": "a", "type": "recipe", "recipe": "{{which}}.yaml"}),
        later({"id": "a", "type": "recipe", "recipe": "@recipes:x.yaml"}),
        later({"id": "a", "type": "bash", "command": "ls", "env": {"A B": "c"}}),
        recipe(step(depends_on=["a b"])),
        recipe(step(), context={"a b": 1}),
        later(step(timeout="{{budget}}"), context={"budget": 30}),
    ],
)
def test_messages_are_short_and_in_words(document: dict[str, Any]) -> None:
    """A message contains neither a regular expression nor a long text in full."""
    found = own_flaws(document)

    assert found
    for flaw in found:
        assert not any(sign in flaw.message for sign in ("[A-Za", "^", "\\S", "{1,", "d" * 100, "?" * 100))


# -- what shows only beside the project


def test_every_flaw_has_a_line() -> None:
    """Flaws found beside agents, recipes, backends and commands have a line, like all others."""
    text = """\
schema: "1.7"
name: "x"
description: "d"
version: "1.0.0"
context: { focus: "security" }
steps:
  - id: "a"
    agent: "nobody"
    prompt: "{{focus.kind}}"
  - id: "b"
    type: "recipe"
    recipe: "nowhere"
  - id: "c"
    type: "bash"
    command: |
      echo fine
      eval {{focus}}
    cwd: "/tmp/x"
  - id: "d"
    agent: "helper"
    provider: "nothing"
    prompt: "p"
"""

    assert _checked(text, backends=BACKENDS) == {
        "unknown_agent": (8, "$.steps[0].agent"),
        "undefined_variable": (9, "$.steps[0].prompt"),
        "unknown_recipe": (12, "$.steps[1].recipe"),
        "evaluated_variable": (15, "$.steps[2].command"),
        "absolute_cwd": (18, "$.steps[2].cwd"),
        "unknown_backend": (21, "$.steps[3].provider"),
    }


@pytest.mark.parametrize(
    ("cwd", "why"),
    [("../x", "it holds '..'"), ("{{focus}}/../x", "it holds '..'"), ("a/.git", ".git does not belong to it")],
)
def test_a_folder_outside_of_the_workspace_is_found(cwd: str, why: str) -> None:
    """No value of a variable makes the folder allowed."""
    step = f'steps: [{{id: a, type: bash, command: ls, cwd: "{cwd}"}}]'
    text = f'schema: "1.7"\nname: x\ndescription: d\nversion: 1.0.0\ncontext: {{focus: b}}\n{step}\n'
    found = recipe_harness.DIALECT.flaws(text, "x", library.Library())

    assert [(flaw.code, flaw.message) for flaw in found] == [
        ("absolute_cwd", f"is not a path inside the workspace: {why}")
    ]


@pytest.mark.parametrize(
    ("preferred", "faulty"), [(["nothing", "cloud"], False), (["nothing", "never"], True), (["cloud"], False)]
)
def test_one_known_backend_of_several_is_enough(preferred: list[str], faulty: bool) -> None:
    """At least one backend of an order of preference must exist."""
    document = later(step(provider_preferences=[{"provider": name} for name in preferred]))

    assert ("unknown_backend" in _checked(json.dumps(document), backends=BACKENDS)) is faulty


@pytest.mark.parametrize(
    ("prompt", "context", "faulty"),
    [
        ("{{x.part}}", {"x": "text"}, True),
        ("{{x.3}}", {"x": [1, 2]}, True),
        ("{{x.1}}", {"x": [1, 2]}, False),
        ("{{x.a.b}}", {"x": {"a": 5}}, True),
        ("{{x.part}}", {"x": ""}, False),
        ("{{x.part}}", {"x": {}}, False),
        ("{{x.0.name}}", {"x": []}, False),
        ("{{x.part}}", {"x": 0}, True),
        ("{{item.part}}", {"item": "text", "x": [{}]}, False),
        ("{{made.part}}", {"made": "text", "x": [1]}, False),
    ],
)
def test_paths_into_values_of_the_context(prompt: str, context: dict[str, Any], faulty: bool) -> None:
    """A path into a missing part of a context value is a fault, unless the variable may have another value then."""
    looped = {"foreach": "{{x}}"} if isinstance(context.get("x"), list) and "item" in context else {}
    found = flaws(recipe(step("first", output="made"), step("b", prompt=prompt, **looped), context=context))

    assert found == ({("$.steps[1].prompt", "undefined_variable")} if faulty else set())


def test_recipes_by_their_files() -> None:
    """A recipe can be found by its file, relative to its caller; ids of files are frozen with the run."""
    folder = "/p/.control-room/recipes/amplifier"
    ids = {"one.yaml": "one", "in/two.yml": "two", "../up.yaml": "up"}
    document = later(*({"id": name, "type": "recipe", "recipe": file} for file, name in ids.items()))
    others = {name: parsed(recipe(step(), name=name)) for name in ("one", "two", "up")}
    paths = {"one": f"{folder}/sub/one.yaml", "two": f"{folder}/sub/in/two.yml", "up": f"{folder}/up.yaml"}
    definition_cache = library.Library(
        agents=(),
        recipes={name: dataclasses.replace(other, path=paths[name]) for name, other in others.items()},
    )
    made = dataclasses.replace(parsed(document), path=f"{folder}/sub/small.yaml")

    assert recipe_harness.DIALECT.freeze(made, definition_cache)["recipes"] == ids
    assert [flaw.code for flaw in recipe_harness.DIALECT.check(made, definition_cache)] == []


# -- names beside ours


async def test_steps_are_substeps() -> None:
    """`steps` in a loop is its body, whose result is the last step's; `output` names the run's result."""
    body = [step("look", output="seen"), step("judge", prompt="Judge {{seen}}.")]
    run = await ran(
        later(
            {"id": "each", "foreach": "{{rows}}", "steps": body, "collect": "all"},
            context={"rows": [1, 2]},
            output="all",
        )
    )

    assert run.prompts["each[1].judge"] == "Judge each[1].look said."
    assert run.slots["final_output"] == '["each[0].judge said","each[1].judge said"]'


async def test_the_counters_of_loops_with_a_condition() -> None:
    """A loop with a condition counts its iterations from 0 and from 1, and `max_while_iterations` bounds it."""
    looped = {
        "while_condition": "{{n}} < 10",
        "update_context": {"n": "{{_loop_iteration}}"},
        "break_when": "{{n}} >= 3",
    }
    run = await ran(
        later(step("a", prompt="{{_loop_index}} {{_loop_iteration}}", **looped), context={"n": 0}),
    )
    bounded = await ran(later(step("a", **looped, max_while_iterations=2), context={"n": 0}))

    assert list(run.prompts.values()) == ["0 1", "1 2", "2 3"]
    assert bounded.error["code"] == "too_many_iterations"


async def test_names_of_stages() -> None:
    """A stage knows its name and position, and the message of the last approval, which may come before it."""
    run = await ran(
        staged(
            {"name": "plan", "steps": [step("p", prompt="{{stage.name}} {{stage.index}}")], "description": "First."},
            {
                "name": "act",
                "steps": [step("a", prompt="{{stage.name}}: {{_approval_message}}")],
                "approval": {"required": True, "prompt": "Go?", "when": "before_stage"},
            },
        ),
        {"approval:act": {"decision": "approve", "message": "be quick", "by_default": False}},
    )

    assert list(run.prompts.values()) == ["plan 0", "act: be quick"]


def test_declared_values_of_the_context() -> None:
    """A declared value of the context is a schema; it is required, optional, or has a default."""
    declared = {
        "depth": {"type": "string", "enum": ["quick", "full"], "default": "quick"},
        "ticket": {"type": "string", "required": True},
        "note": {"type": "any", "description": "May be left out."},
        "empty": {"default": ""},
        "literal": {"type": "string", "colour": "red"},
    }
    made = parsed(later(step(prompt="{{depth}} {{ticket}} {{note}}"), context=declared)).args_schema
    first = parsed(recipe(step(), context={"depth": declared["depth"]})).args_schema

    assert made["required"] == ["ticket"]
    assert made["properties"]["depth"] == {"type": "string", "enum": ["quick", "full"], "default": "quick"}
    assert made["properties"]["note"] == {"description": "May be left out."}
    assert made["properties"]["literal"] == {"default": declared["literal"]}
    assert first["properties"]["depth"] == {"default": declared["depth"]}


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        ({"type": "text"}, "type"),
        ({"required": "yes"}, "required"),
        ({"enum": []}, "enum"),
        ({"default": 3, "enum": [1, 2]}, "default"),
        ({"type": "integer", "default": "many"}, "default"),
        ({"description": 5}, "description"),
    ],
)
def test_broken_declarations(declared: dict[str, Any], path: str) -> None:
    """A declaration that contradicts itself is refused at its place."""
    assert {place for place, _ in flaws(later(step(), context={"x": declared}))} == {f"$.context.x.{path}"}


async def test_a_declared_value_that_is_left_out() -> None:
    """An omitted optional value is not a variable; a default is its value."""
    context = {"note": {"type": "string"}, "depth": {"default": "quick"}}
    run = await ran(later(step("a", prompt="{{depth}}"), step("b", prompt="{{note}}"), context=context))

    assert run.prompts == {"a": "quick"}
    assert run.error["code"] == "undefined_variable"


# -- failures


async def test_a_failed_steps_variables_are_null() -> None:
    """After `on_error: continue` a step's variables are null, and a command's output is what it printed."""
    run = await ran(
        later(
            step("a", on_error="continue", output="seen"),
            {"id": "b", "type": "bash", "command": "x", "on_error": "continue", "output": "said"},
            step("c", condition="{{seen}} == 'null'", prompt="{{seen}} {{said}}"),
        ),
        {"a": broke(), "b": _exited("half\n")},
    )

    assert run.prompts["c"] == "null half"
    assert run.manifest["ending"]["failed_steps"] == ["a", "b"]


async def test_a_failed_command_in_a_loop() -> None:
    """The element of a failed command in a loop is the text that it printed."""
    run = await ran(
        later(
            {"id": "a", "type": "bash", "command": "x", "foreach": "{{l}}", "on_error": "continue", "collect": "all"},
            step("b", prompt="{{all}}"),
            context={"l": [1, 2]},
        ),
        {"a[0]": _exited("half\n"), "a[1]": printed("whole\n")},
    )

    assert run.prompts["b"] == '["half","whole"]'


# -- replies and models


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ('Take {} or this:\n```json\n{"a": [1, 2]}\n```\nNot [3].', {"a": [1, 2]}),
        ('First {"a": 1}, then {"b": [1, 2, 3], "c": {"d": 4}}.', {"b": [1, 2, 3], "c": {"d": 4}}),
        ("{{{{[[[[ if (x) { y } " * 300 + '{"found": true}', {"found": True}),
        ("```json\n5\n```", 5),
    ],
)
async def test_json_is_asked_for_and_chosen(said: str, value: Any) -> None:
    """With `parse_json: true` the prompt asks for JSON, and the largest value is used, not the first."""
    run = await ran(later(step("a", parse_json=True, output="x"), step("b", prompt="{{x}}")), {"a": said})

    assert "JSON" in run.prompts["a"]
    assert json.loads(run.prompts["b"]) == value


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        ("claude-haiku-*", "claude-haiku-5"),
        ("claude-*", "claude-sonnet-5"),
        ("other-opus-?", "opus"),
        ("gpt-*", None),
        ("claude-haiku-5", "claude-haiku-5"),
        ("haiku", "haiku"),
    ],
)
def test_patterns_of_models(pattern: str, model: str | None) -> None:
    """A pattern means a backend's model, else the haiku, sonnet or opus in it, else the default; a name is kept."""
    assert agents.resolved(pattern, BACKENDS["cloud"]) == model


def test_patterns_are_resolved_at_the_start() -> None:
    """The models to which patterns are compared are frozen with the run."""
    definition_cache = library.Library(agents=(), backends=BACKENDS)
    frozen = recipe_harness.DIALECT.freeze(parsed(later(step(provider="cloud", model="*haiku*"))), definition_cache)
    plain = recipe_harness.DIALECT.freeze(parsed(later(step(provider="cloud", model="haiku"))), definition_cache)

    assert frozen["models"]["cloud"]["haiku"] == "claude-haiku-5"
    assert "models" not in plain


async def test_the_time_of_a_recipe_step() -> None:
    """The time-out of a step that runs a recipe is that of the called run."""
    run = await ran(later({"id": "a", "type": "recipe", "recipe": "other", "timeout": 30}))

    assert run.stub.operations["a"] == operations.ChildRun(recipe_id="other", timeout_seconds=30)
