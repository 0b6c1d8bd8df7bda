"""Tests of loops: one row of each table, each numbered edge case, and the features of later versions."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.dialects.amplifier import loops
from app.domain.states import RunState
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import broke, later, ran, recipe, step


def _each(id="each", **more):
    return step(id, **{"foreach": "{{files}}", "prompt": "Look at {{item}}.", **more})


def _over(*steps, files=("a", "b", "c"), **more):
    return recipe(*steps, context={"files": list(files), **more})


def _later(*steps):
    return later(*steps, context={"files": ["a", "b"]})


# -- the table of cases, and the numbered edge cases


async def test_a_list_is_gone_through():
    """The step runs once for each item, in order, with the item in its variable."""
    run = await ran(_over(_each(collect="all"), step("after", prompt="{{all}}")), {"each[1]": "second"})

    assert run.prompts == {
        "each[0]": "Look at a.",
        "each[1]": "Look at b.",
        "each[2]": "Look at c.",
        "after": '["each[0] said","second","each[2] said"]',
    }
    assert json.loads(run.slots["all"]) == ["each[0] said", "second", "each[2] said"]


@pytest.mark.parametrize("more", [{}, {"parallel": True}], ids=["in_order", "parallel"])
async def test_an_output_named_like_the_loop_variable_stays(more):
    """After a loop whose `output` has the name of its loop variable, that variable holds the last result."""
    document = later(_each(output="item", **more), step("after", prompt="{{item}}"), context={"files": ["a", "b"]})
    run = await ran(document)

    assert run.prompts == {"each[0]": "Look at a.", "each[1]": "Look at b.", "after": "each[1] said"}


async def test_an_empty_list_skips_the_step():
    """Edge case 1: for an empty list no agent is asked, no step fails, and the collected list is empty."""
    run = await ran(_over(_each(collect="all", output="last"), step("after", prompt="{{all}}"), files=[]))

    assert run.statuses() == {"each": "skipped", "after": "done"}
    assert run.prompt("after") == "[]"
    assert run.skipped == [{"id": "each", "reason": "the list is empty"}]
    assert set(run.slots) == {"all"}


async def test_a_single_item():
    """Edge case 2: one item is one iteration."""
    run = await ran(_over(_each(output="x"), step("after", prompt="{{x}}"), files=["only"]))

    assert list(run.prompts) == ["each[0]", "after"]
    assert run.prompt("after") == "each[0] said"


@pytest.mark.parametrize(
    ("count", "limits", "status"),
    [(100, {}, "done"), (101, {}, "failed"), (3, {"max_iterations": 3}, "done"), (3, {"max_iterations": 2}, "failed")],
)
async def test_very_large_lists(count, limits, status):
    """Edge case 3: more items than `max_iterations`, by default a hundred, fail the run before the first."""
    run = await ran(_over(_each(**limits), files=list(range(count))))

    assert run.manifest["status"] == status
    if status == "failed":
        assert run.stub.asked == []
        assert run.error["code"] == "too_many_iterations"
        assert f"has {count} items; max_iterations allows {limits.get('max_iterations', 100)}" in run.error["message"]


async def test_a_list_inside_of_a_variable():
    """Edge case 4: dots lead to the list."""
    run = await ran(
        recipe(step("find", output="results"), _each(foreach="{{results.deep.files}}")),
        {"find": '{"deep": {"files": ["x", "y"]}}'},
    )

    assert [run.prompt(key) for key in ("each[0]", "each[1]")] == ["Look at x.", "Look at y."]


async def test_the_item_hides_the_context():
    """Edge case 5: inside the loop the item hides the context's value, which is back afterwards."""
    run = await ran(_over(_each(), step("after", prompt="{{item}}"), item="outer"))

    assert (run.prompt("each[0]"), run.prompt("after")) == ("Look at a.", "outer")


@pytest.mark.parametrize(("wanted", "taken"), [("true", 3), ("false", 0)])
async def test_the_condition_comes_before_the_loop(wanted, taken):
    """Edge case 6: the condition is evaluated once; if it is false, the whole loop is skipped."""
    run = await ran(_over(_each(condition="{{wanted}} == 'true'"), wanted=wanted))

    assert len(run.stub.asked) == taken
    assert run.statuses().get("each") == (None if taken else "skipped")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("a text", "which is a text, not a list"),
        ({"a": 1}, "which is an object, not a list"),
        (3, "which is a number, not a list"),
        (False, "which is true or false, not a list"),
    ],
)
async def test_a_value_that_is_not_a_list_fails_the_run(value, told):
    """A value that is not a list fails the run, for any value of `on_error`."""
    run = await ran(recipe(_each(on_error="continue"), step("after"), context={"files": value}))

    assert (run.error["code"], run.error["key"]) == ("not_a_list", "each")
    assert told in run.error["message"]
    assert run.stub.asked == []


async def test_a_long_text_is_not_a_list():
    """A reply that the journal stores as a blob is a text."""
    run = await ran(recipe(step("find", output="files"), _each()), {"find": "long " * 20_000})

    assert run.error["code"] == "not_a_list"


async def test_an_undefined_list():
    """An undefined list fails the run, and the error lists the variables."""
    run = await ran(
        recipe(step("find", condition="{{x}} == 'q'", output="files"), _each(), context={"x": "y"}),
    )

    assert run.error["code"] == "undefined_variable"
    assert run.error["message"] == "Step 'each' foreach error: Undefined variable in foreach: {{files}}. Available: x"


async def test_the_first_failure_ends_the_loop():
    """No iteration follows a failed one, and the run fails; a resume continues with that iteration."""
    run = await ran(_over(_each(collect="all"), step("after", prompt="{{all}}")), {"each[1]": broke()})

    assert run.statuses() == {"each[0]": "done", "each[1]": "failed"}
    assert (run.manifest["status"], run.error["key"]) == ("failed", "each[1]")
    run.replies["each[1]"] = "mended"
    assert await run.resume() is RunState.DONE
    assert [key for key, _ in run.stub.asked] == ["each[0]", "each[1]", "each[1]", "each[2]", "after"]
    assert run.prompt("after") == '["each[0] said","mended","each[2] said"]'


async def test_a_loop_continues_after_a_failed_iteration():
    """With `on_error: continue` the element of a failed iteration is null, and the loop continues."""
    run = await ran(
        _over(_each(on_error="continue", collect="all"), step("after", prompt="{{all}}")), {"each[1]": broke()}
    )

    assert run.statuses() == {"each[0]": "done", "each[1]": "failed", "each[2]": "done", "after": "done"}
    assert run.prompts["after"] == '["each[0] said",null,"each[2] said"]'
    assert run.manifest["ending"]["failed_steps"] == ["each[1]"]
    assert run.manifest["ending"]["partial"] is True


# -- names


async def test_names_of_loops():
    """The item and its position have the recipe's names; dots lead into data."""
    run = await ran(
        later(
            step(
                "each", foreach="{{rows}}", prompt="{{n}}: {{row.name}}", index_as="n", output="last", **{"as": "row"}
            ),
            step("after", prompt="{{last}}"),
            context={"rows": [{"name": "x"}, {"name": "y"}]},
        )
    )

    assert run.prompts == {"each[0]": "0: x", "each[1]": "1: y", "after": "each[1] said"}


async def test_time_out_and_retries_count_for_each_iteration():
    """Every iteration has the whole time-out and all of its attempts."""
    run = await ran(
        _over(_each(timeout=7, retry={"max_attempts": 2, "initial_delay": 1})),
        {"each[0]": [broke("rate_limited"), "x"], "each[2]": [broke("agent_timeout"), "y"]},
    )

    assert run.manifest["status"] == "done"
    assert run.stub.asked == [("each[0]", 1), ("each[0]", 2), ("each[1]", 1), ("each[2]", 1), ("each[2]", 2)]
    assert run.stub.operations["each[2]"].timeout_seconds == 7


# -- later versions


async def test_a_loop_that_ends_early():
    """`break_if` is evaluated after each iteration, with its result."""
    run = await ran(
        later(
            _each(output="found", collect="all", break_if="{{found.done}} and {{item}} == 'b'"),
            step("after", prompt="{{found.n}} {{all}}"),
            context={"files": ["a", "b", "c"]},
        ),
        {"each[0]": '{"done": true, "n": 1}', "each[1]": '{"done": true, "n": 2}'},
    )

    assert [key for key, _ in run.stub.asked] == ["each[0]", "each[1]", "after"]
    assert run.prompt("after").startswith('2 [{"done":true,"n":1},')


async def test_loops_inside_of_loops():
    """The inner loop processes its list for each outer item; results are lists of lists."""
    nested = {"foreach": "{{row.cells}}", "as": "cell", "index_as": "n"}
    run = await ran(
        later(
            step(
                "each",
                foreach="{{rows}}",
                nested_foreach=nested,
                prompt="{{cell}}{{n}}",
                collect="all",
                **{"as": "row"},
            ),
            step("after", prompt="{{all}}"),
            context={"rows": [{"cells": ["a", "b"]}, {"cells": []}, {"cells": ["c"]}]},
        )
    )

    assert run.prompts == {
        "each[0][0]": "a0",
        "each[0][1]": "b1",
        "each[2][0]": "c0",
        "after": '[["each[0][0] said","each[0][1] said"],[],["each[2][0] said"]]',
    }


async def test_a_failed_iteration_leaves_no_exit_code_of_an_earlier_one():
    """After a failed command that a loop passes, the variable of the exit code is null."""
    lists = {"type": "bash", "command": "ls {{item}}", "output_exit_code": "code", "on_error": "continue"}
    run = await ran(
        _later(step("each", foreach="{{files}}", **lists), step("after", prompt="{{code}}")),
        {"each[1]": broke("timeout")},
    )

    assert (run.statuses()["each[0]"], run.prompt("after")) == ("done", "null")


@pytest.mark.parametrize("parallel", [False, True], ids=["in_order", "parallel"])
async def test_a_failed_sub_step_leaves_no_value_of_an_earlier_iteration(parallel):
    """The variables of a sub-step that its group passes are null; no step gets the value of the iteration before."""
    group = {"id": "g", "continue_on_error": True, "parallel": parallel, "substeps": [step("look", output="seen")]}
    body = {"id": "each", "foreach": "{{files}}", "steps": [group, step("use", prompt="{{seen}}")]}
    run = await ran(_later(body), {"each[1].g.look": broke()})

    assert [run.prompt(f"each[{number}].use") for number in range(2)] == ["each[0].g.look said", "null"]


async def test_a_loop_with_a_condition_continues_after_a_failed_iteration():
    """A failed iteration evaluates no `break_when`, and changes only what does not need its result."""
    document = later(
        step(
            "refine",
            while_condition="{{n}} < 3",
            prompt="{{draft}}",
            output="review",
            on_error="continue",
            update_context={"draft": "{{review.text}}", "n": "{{_loop_iteration}}"},
            break_when="{{review}} == 'null'",
        ),
        context={"draft": "first", "n": 0},
    )
    run = await ran(document, {"refine[0]": '{"text": "second"}', "refine[1]": broke(), "refine[2]": '{"text": ""}'})

    assert run.prompts == {"refine[0]": "first", "refine[1]": "second", "refine[2]": "second"}
    assert run.manifest["ending"] == {"reason": "completed", "partial": True, "failed_steps": ["refine[1]"]}


async def test_the_last_iteration_of_a_loop_leaves_its_variables_even_if_it_fails():
    """What an iteration has set before one of its steps ends the loop is the value after the loop."""
    steps = [step("look", output="seen"), step("act", on_error="skip_remaining")]
    run = await ran(_later({"id": "each", "foreach": "{{files}}", "steps": steps}), {"each[1].act": broke()})

    assert run.slots == {"seen": "each[1].look said"}


async def test_a_resume_repeats_each_iteration_that_failed_at_once():
    """If several parallel iterations fail before the run ends, one resume repeats all of them, and keeps the others."""
    document = later(_each(parallel=True, collect="all"), context={"files": ["a", "b", "c", "d"]})
    run = await ran(document, {"each[1]": broke(), "each[2]": broke()})
    failed = run.manifest["ending"]["failed_steps"]
    run.replies.clear()

    assert failed == ["each[1]", "each[2]"]
    assert await run.resume() is RunState.DONE, run.error
    assert [key for key, _ in run.stub.asked[4:]] == ["each[1]", "each[2]"]


async def test_a_resume_keeps_the_failures_that_parallel_steps_have_passed():
    """A parallel step whose failure was handled, in its branch or around it, is not repeated with the fatal one."""
    passed = step("a", on_error="continue")
    handled = {"id": "g", "on_error": "continue", "parallel": True, "substeps": [step("c"), step("d")]}
    last = step("e", retry={"max_attempts": 3})
    document = later({"id": "all", "parallel": True, "substeps": [passed, handled, last]}, step("after"))
    falls = {"all.a": broke(), "all.g.c": broke(), "all.g.d": broke(), "all.e": broke("rate_limited")}
    run = await ran(document, falls)
    run.replies.clear()

    assert run.manifest["ending"]["failed_steps"] == ["all.e"]
    assert await run.resume() is RunState.DONE, run.error
    assert [key for key, _ in run.stub.asked[6:]] == ["all.e", "after"]


async def test_iterations_that_may_fail():
    """With `continue_on_error` the others continue; a failed one gives null, and the run is done in part."""
    document = later(
        _each(collect="all", continue_on_error=True),
        step("after", prompt="{{all}}"),
        context={"files": ["a", "b", "c"]},
    )
    run = await ran(document, {"each[1]": broke()})

    assert run.prompt("after") == '["each[0] said",null,"each[2] said"]'
    assert run.manifest["ending"] == {"reason": "completed", "partial": True, "failed_steps": ["each[1]"]}


async def test_a_loop_while_something_holds():
    """`update_context` changes variables after each iteration, and `break_when` ends the loop."""
    document = later(
        step(
            "refine",
            while_condition="{{score}} < 8",
            prompt="{{n}}: {{draft}}",
            output="review",
            index_as="n",
            collect="all",
            update_context={"draft": "{{review.text}}", "score": "{{review.score}}"},
            break_when="{{review.text}} == 'enough'",
        ),
        step("after", prompt="{{draft}} {{score}} {{all.0.score}}"),
        context={"draft": "first", "score": 0},
    )
    said = {f"refine[{n}]": json.dumps({"text": f"draft {n}", "score": 3 * n}) for n in range(5)}
    run = await ran(document, said)
    ended = await ran(document, {**said, "refine[1]": '{"text": "enough", "score": 1}'})
    never = await ran(document, score=9)

    assert {key: text for key, text in run.prompts.items() if key != "after"} == {
        "refine[0]": "0: first",
        "refine[1]": "1: draft 0",
        "refine[2]": "2: draft 1",
        "refine[3]": "3: draft 2",
    }
    assert run.prompt("after") == "draft 3 9 0"
    assert ended.prompt("after") == "enough 1 0"
    assert never.statuses()["refine"] == "skipped"


async def test_parallel_steps_in_a_loop_with_a_condition():
    """`parallel` applies to the sub-steps of such a loop, whose iterations follow one another and can be ended."""
    body = {"parallel": True, "break_when": "{{n}} == 2", "update_context": {"n": "{{_loop_iteration}}"}}
    looped = {"id": "w", "while_condition": "{{n}} < 9", "substeps": [step("a"), step("b")], **body}
    run = await ran(later(looped, context={"n": 0}))

    assert [key for key, _ in run.stub.asked] == ["w[0].a", "w[0].b", "w[1].a", "w[1].b"]
    assert run.stub.most == 2


async def test_a_loop_that_never_ends():
    """A condition that stays true fails the run at `max_iterations`."""
    run = await ran(later(step("a", while_condition="{{x}} == 'x'", max_iterations=3), context={"x": "x"}))

    assert (run.error["code"], len(run.stub.asked)) == ("too_many_iterations", 3)


async def test_steps_in_a_loop():
    """Sub-steps run in order for each item, with their own conditions; their variables last into the next item."""
    group = {
        "id": "each",
        "foreach": "{{files}}",
        "collect": "all",
        "substeps": [
            step("look", prompt="{{item}} after {{seen}}", output="seen"),
            step("mend", condition="{{seen}} == 'bad'", prompt="Mend {{item}}."),
        ],
    }
    run = await ran(
        later(group, step("after", prompt="{{seen}} {{all.1.look}}"), context={"files": ["a", "b"], "seen": "nothing"}),
        {"each[0].look": "bad", "each[1].look": "good"},
    )

    assert run.statuses() == {
        "each[0].look": "done",
        "each[0].mend": "done",
        "each[1].look": "done",
        "each[1].mend": "skipped",
        "after": "done",
    }
    assert run.prompt("each[1].look") == "b after bad"
    assert run.prompt("after") == "good good"


async def test_parallel_steps():
    """Parallel sub-steps run at once; their results are one object, in the order of the recipe."""
    group = {
        "id": "scan",
        "parallel": True,
        "output": "found",
        "substeps": [step("security", output="risks"), step("speed", output="slow"), step("style")],
    }
    run = await ran(later(group, step("after", prompt="{{found}} {{risks}} {{slow}}")), {"scan.security": "none"})

    assert run.stub.most == 3
    assert run.prompt("after") == (
        '{"security":"none","speed":"scan.speed said","style":"scan.style said"} none scan.speed said'
    )


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize(("on_error", "of_group"), [("skip_remaining", "fail"), ("fail", "continue")])
async def test_variables_of_finished_steps_outlast_a_failure_beside_them(parallel, on_error, of_group):
    """A sub-step's variable is kept after its neighbour failed, whether they ran at once or in order."""
    group = step(
        "g",
        substeps=[step("x", output="found"), step("y", on_error=on_error)],
        parallel=parallel,
        on_error=of_group,
    )
    run = await ran(later(group, final_output="found"), {"g.y": broke()})

    assert run.manifest["status"] == "done"
    assert run.manifest["ending"]["partial"]
    assert run.slots["final_output"] == "g.x said"


@pytest.mark.parametrize("fails", [True, False])
async def test_parallel_steps_that_fail(fails):
    """The first failure ends the other branches, or only its own."""
    group = {"id": "g", "parallel": True, "continue_on_error": not fails, "substeps": [step("a"), step("b"), step("c")]}
    made = recipe_harness.Run(later(group, step("after")))
    made.replies["g.b"] = broke()
    made.stub.held = {"g.c": asyncio.Event()} if fails else {}
    await made.run()

    assert made.manifest["status"] == ("failed" if fails else "done")
    assert made.stub.cut == (["g.c"] if fails else [])
    assert made.manifest["ending"]["failed_steps"] == ["g.b"]


async def test_twenty_iterations_four_at_a_time():
    """Never more than four agents are asked at once, all are asked, and results keep the order of the items."""
    run = await ran(
        later(
            _each(parallel=4, collect="all"),
            step("after", prompt="{{all}}"),
            context={"files": [f"f{number}" for number in range(20)]},
        )
    )

    assert run.stub.most == 4
    assert json.loads(run.prompt("after")) == [f"each[{number}] said" for number in range(20)]


async def test_a_failure_cancels_the_other_iterations():
    """In a parallel loop the first failure cancels running iterations and begins none; a resume repeats the rest."""
    made = recipe_harness.Run(
        later(_each(parallel=4, collect="all"), step("after", prompt="{{all}}"), context={"files": list(range(20))})
    )
    made.replies["each[5]"] = broke()
    made.stub.held = {f"each[{number}]": asyncio.Event() for number in (6, 7, 8, 9, 10, 11)}
    await made.run()
    done = {key for key, status in made.statuses().items() if status == "done"}

    assert made.manifest["status"] == "failed"
    assert made.stub.cut
    assert set(made.stub.cut) <= set(made.stub.held)
    assert {f"each[{number}]" for number in range(4)} <= done
    assert len(made.stub.asked) < 10
    made.stub.held.clear()
    made.replies["each[5]"] = "mended"
    first = len(made.stub.asked)
    assert await made.resume() is RunState.DONE
    assert done.isdisjoint(key for key, _ in made.stub.asked[first:])
    assert json.loads(made.prompt("after"))[5] == "mended"


@pytest.mark.parametrize(
    ("parallel", "limit", "most"), [(True, 3, 3), (True, None, 8), (4, 2, 2), (2, 5, 2), (True, 1, 1)]
)
async def test_agents_at_a_time(parallel, limit, most):
    """The recipe's limit overrides the loop's."""
    limits = {"max_concurrent_llm": limit} if limit else {}
    run = await ran(later(_each(parallel=parallel), rate_limiting=limits, context={"files": list(range(8))}))

    assert run.stub.most == most


async def test_agents_at_a_time_in_nested_loops():
    """Nested loops share the limit."""
    nested = {"foreach": "{{files}}", "as": "other", "parallel": True}
    run = await ran(
        later(
            _each(parallel=True, nested_foreach=nested, collect="all"),
            rate_limiting={"max_concurrent_llm": 4},
            context={"files": [1, 2, 3, 4, 5]},
        )
    )

    assert run.stub.most <= 4
    assert len(run.stub.asked) == 25


async def test_conditions_end_parallel_runs():
    """A failure of the run in one branch cancels the others too."""
    group = {
        "id": "g",
        "parallel": True,
        "continue_on_error": True,
        "substeps": [step("a"), step("b", condition="{{n}} > 3", on_error="continue")],
    }
    run = await ran(later(group, context={"n": "many"}))

    assert (run.manifest["status"], run.error["code"]) == ("failed", "undecidable_condition")


async def test_loop_variables_may_be_called_anything():
    """A loop variable may have any name, including those used inside the program."""
    run = await ran(later(_each(prompt="{{self}} {{key}}", index_as="key", **{"as": "self"}), context={"files": ["a"]}))

    assert run.prompt("each[0]") == "a 0"


def test_how_wide():
    """The recipe's limit bounds the branches, and each branch's share bounds its inner ones."""
    assert loops.width(False, 5, None) is None
    assert loops.width(True, 5, None) == 5
    assert loops.width(3, 2, None) == 2
    assert loops.width(3, 9, 2) == 2
    assert loops.width(True, 0, None) == 1
    assert loops.lanes_inside(None, 3) is None
    assert loops.lanes_inside(7, 3) == 2
    assert loops.lanes_inside(2, 3) == 1
