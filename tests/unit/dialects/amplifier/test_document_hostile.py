"""Malicious or odd recipes, replies and restarts: none parks a run, loses a value or hides a failure."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from app.dialects.amplifier import calls, replies
from app.domain import decisions, library, records
from app.domain.states import RunState
from app.engine import resume_rules
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import broke, flaws, later, parsed, ran, recipe, step
from tests.unit.engine import logs

# -- keys


@pytest.mark.parametrize(
    ("looped", "name"),
    [
        ({"foreach": "{{l}}", "break_if": "{{item}} > 3"}, "break_if"),
        ({"while_condition": "{{w}} > 3"}, "while_condition"),
        ({"while_condition": "{{w}} == 'x'", "break_when": "{{w}} > 3"}, "break_when"),
        ({"while_condition": "{{w}} == 'x'", "update_context": {"y": "{{o.n}}"}}, "update_context"),
    ],
)
async def test_no_step_takes_the_key_of_a_condition(looped: dict[str, Any], name: str) -> None:
    """A step may have the name of a field: a condition that cannot be decided fails the run under its own key."""
    document = later(
        {"id": "each", **looped, "substeps": [step(name, output="o")]}, context={"l": ["a"], "w": "x", "o": {"n": 1}}
    )
    run = await ran(document)

    assert run.manifest["status"] == "failed"
    assert run.error["code"] in ("undecidable_condition", "undefined_variable")
    assert run.error["key"] == f"each[0]:{name}"


def _nested(depth: int, **more: Any) -> dict[str, Any]:
    made = step("z" * 50)
    for number in range(depth):
        made = {"id": chr(ord("a") + number) * 50, "substeps": [made], **more}
    return made


async def test_keys_have_a_length() -> None:
    """Nested steps whose keys would be too long are a fault of the recipe; every accepted recipe runs."""
    deepest = later(_nested(4))
    run = await ran(deepest)
    looped = {"foreach": "{{l}}", "max_iterations": 100_000}

    assert run.manifest["status"] == "done"
    assert max(len(key) for key, _ in run.stub.asked) == 254
    assert {code for _, code in flaws(later(_nested(8)))} == {"too_deep"}
    assert ("$.steps[0].substeps[0].substeps[0].substeps[0].substeps[0].id", "too_deep") in flaws(
        later(_nested(4, **looped), context={"l": [1]})
    )


async def test_inner_loops_have_long_keys_too() -> None:
    """The positions of inner loops count towards the length of a key."""
    many = {"foreach": "{{l}}", "max_iterations": 100_000}
    inner: dict[str, Any] = many
    for _ in range(45):
        inner = {**many, "nested_foreach": inner}

    assert flaws(later(step("a", foreach="{{l}}", nested_foreach=inner), context={"l": [1]})) == {
        ("$.steps[0].id", "too_deep")
    }


# -- settings of agents


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"backend": 5}, "backend"),
        ({"backend": ""}, "backend"),
        ({"model": ["opus"]}, "model"),
        ({"role": {"a": 1}}, "role"),
        ({"instruction": 5}, "instruction"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"providers": [{"module": "p", "config": {"model": 5}}]}, "providers[0].config.model"),
        ({"providers": [{"module": "p", "config": {"max_tokens": 0}}]}, "providers[0].config.max_tokens"),
    ],
)
def test_settings_that_cannot_be(config: dict[str, Any], path: str) -> None:
    """A setting of the wrong form is a fault, so that no agent is asked with it."""
    assert {place for place, _ in flaws(recipe(step(agent_config=config)))} == {f"$.steps[0].agent_config.{path}"}


# -- values


@pytest.mark.parametrize(
    ("command", "faulty"),
    [
        ("echo $(( {{n}} + 1 ))", True),
        ("a=$((\n{{n}}\n))", True),
        ("for ((i=0;i<{{n}};i++)); do ls; done", True),
        ("if [[ {{n}} -gt 3 ]]; then ls; fi", True),
        ("eval {{n}}", True),
        ("cd x && eval echo {{n}}", True),
        ("if true; then let x={{n}}; fi", True),
        ('[ "{{n}}" -gt 3 ]', False),
        ("[[ {{n}} == 3 ]]", False),
        ("python eval.py {{n}}", False),
        ("jq --eval {{n}}", False),
        ("echo let it be {{n}}", False),
        ("let x=3\necho {{n}}", False),
        ("( (echo {{n}}) )", False),
    ],
)
def test_where_bash_would_evaluate(command: str, faulty: bool) -> None:
    """A variable is refused where bash would evaluate its value, and accepted where it is an ordinary word."""
    found = flaws(later({"id": "a", "type": "bash", "command": command}, context={"n": "1"}))

    assert found == ({("$.steps[0].command", "evaluated_variable")} if faulty else set())


async def test_skipping_the_rest_loses_nothing() -> None:
    """The output that a step set before its failure is kept, as with `continue`, and can be the run's result."""
    looped = step("each", foreach="{{l}}", output="x", on_error="skip_remaining")
    group = {"id": "g", "substeps": [step("a", output="y"), step("b", on_error="skip_remaining")]}
    after_loop = await ran(
        later(looped, step("last"), context={"l": [1, 2, 3]}, final_output="x"), {"each[1]": broke()}
    )
    after_group = await ran(later(group, step("last"), final_output="y"), {"g.b": broke()})

    assert after_loop.slots == {"x": "each[0] said", "final_output": "each[0] said"}
    assert after_group.slots == {"y": "g.a said", "final_output": "g.a said"}
    assert after_group.manifest["ending"]["failed_steps"] == ["g.b"]


async def test_a_failed_iteration_does_not_end_the_loop() -> None:
    """With `continue_on_error`, the condition that ends a loop is evaluated only after iterations with a result."""
    run = await ran(
        later(
            step(
                "each",
                foreach="{{l}}",
                output="x",
                collect="all",
                continue_on_error=True,
                break_if="{{x.done}} == 'true'",
            ),
            step("after", prompt="{{all}}"),
            context={"l": [1, 2, 3]},
        ),
        {"each[0]": broke(), "each[1]": '{"done":true}'},
    )

    assert run.statuses() == {"each[0]": "failed", "each[1]": "done", "after": "done"}
    assert run.prompt("after") == '[null,{"done":true}]'
    assert run.manifest["ending"]["failed_steps"] == ["each[0]"]


def test_the_result_of_a_recipe_is_all_that_counts() -> None:
    """A long variable does not keep a recipe from returning its `final_output`."""
    blob = records.BlobRef(sha256="0" * 64, size_bytes=100_000, text=True).to_json()
    slots = {"report": {"text": None, "blob": blob}, "final_output": {"text": '{"n": 1}', "blob": None}}

    assert calls.result_of_child({"slots": slots}, replies.NEWEST) == {"n": 1}
    with pytest.raises(OverflowError):
        calls.result_of_child({"slots": {"report": slots["report"]}}, replies.NEWEST)


def test_a_recipe_that_runs_itself_is_checked() -> None:
    """A recipe that calls itself is checked for missing and unknown arguments, like any other."""
    calling = {"id": "a", "type": "recipe", "recipe": "small", "context": {"dept": 1}}
    found = recipe_harness.DIALECT.check(parsed(later(calling, context={"depth": ""})), library.Library())

    assert {(flaw.path, flaw.code) for flaw in found} == {
        ("$.steps[0].context.depth", "missing_arg"),
        ("$.steps[0].context.dept", "undeclared_arg"),
    }


# -- restarts


class _Opening(asyncio.Event):
    """Release another step as soon as this one is performed."""

    def __init__(self, other: asyncio.Event) -> None:
        super().__init__()
        self._other = other

    async def wait(self) -> Literal[True]:
        self._other.set()
        return True


async def _send_on(made: recipe_harness.Run, key: str) -> None:
    log = logs.ListLog(made.disk)
    dead = sorted(resume_rules.dead_positions(log.loaded, key))
    await log.decide(decisions.DecisionKind.RESUMED, {"dead": decisions.ranges(dead), "overrides": {}})
    made.disk.row = RunState.PENDING


async def test_an_earlier_iteration_can_be_gone_back_to() -> None:
    """A resume from one of several parallel iterations repeats only that one, and keeps those beside it."""
    made = recipe_harness.Run(
        later(
            step("each", foreach="{{l}}", parallel=2, collect="all"),
            step("after", prompt="{{all}}"),
            context={"l": [1, 2, 3, 4]},
        ),
    )
    made.replies["after"] = broke()
    made.stub.held["each[1]"] = held = asyncio.Event()
    made.stub.held["each[3]"] = _Opening(held)
    await made.run()
    await _send_on(made, "each[0]")
    before = len(made.stub.asked)
    made.replies.update({"each[0]": "anew", "after": "fine"})

    assert [line["key"] for line in made.lines()][:2] == ["each[0]", "each[2]"]
    assert await made.run() is RunState.DONE
    assert made.stub.asked[before:] == [("each[0]", 2), ("after", 2)]
    assert made.prompt("after") == '["anew","each[1] said","each[2] said","each[3] said"]'


async def test_the_recipe_decides_which_prompts_wait() -> None:
    """The recipe decides which prompts wait for `min_delay_ms`, so that one branch alone can be repeated."""

    def branch(name: str) -> dict[str, Any]:
        return {"id": name, "substeps": [{"id": f"look-{name}", "type": "bash", "command": "ls"}, step(f"ask-{name}")]}

    group = {"id": "g", "parallel": True, "substeps": [branch("a"), branch("b")]}
    made = recipe_harness.Run(later(group, step("after"), rate_limiting={"min_delay_ms": 100}))
    made.replies["after"] = broke()
    made.stub.held["g.a.look-a"] = held = asyncio.Event()
    made.stub.held["g.b.ask-b"] = _Opening(held)
    await made.run()
    pauses = {key for key, _ in made.stub.asked if key.endswith(".delay")}
    await _send_on(made, "g.b.look-b")
    made.replies["after"] = "fine"

    assert pauses == {"g.b.ask-b.delay", "after.delay"}
    assert await made.run() is RunState.DONE
