"""Tests of the driver: order, jumps, loops, failures, and the state."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.states import RunState
from tests.unit.dialects.orchestrate.driver_harness import Play
from tests.unit.dialects.orchestrate.workflow_harness import loop, step


def goto(target):
    """Return a branch to a step."""
    return {"goto": target}


async def test_steps_in_order():
    """Steps run in order, and later ones can name the output of earlier ones."""
    play = Play(
        step("A", command=["echo", "one"]),
        step("B", command=["echo", "${steps.A.output}", "${context.x}", "${run.root}"]),
        context={"x": 7},
    )

    assert await play.run() is RunState.DONE
    assert play.state["steps"]["B"]["output"] == "one\n 7 .o/runs/r\n"
    assert play.state["status"] == "completed"
    assert play.state["steps"]["A"].items() >= {"status": "completed", "exit_code": 0, "truncated": False}.items()
    assert play.ended["ending"] == {"reason": "completed", "partial": False, "failed_steps": []}


async def test_the_state_has_its_head():
    """The state contains the workflow, its hash, the start of the run, and its context."""
    play = Play(step(), context={"a": 1}, options={"workflow_file": "workflows/x.yaml"})
    await play.run()

    assert play.state["workflow_file"] == "workflows/x.yaml"
    assert play.state["workflow_checksum"] == f"sha256:{play.recipe.source_sha256}"
    assert play.state["schema_version"] == "1.1.1"
    assert play.state["context"] == {"a": 1}
    assert play.state["run_id"] == play.disk.start.run_id
    assert play.state["started_at"] == play.disk.start.created_at


async def test_a_failure_ends_the_run():
    """A failed step without a handler ends the run, and the state contains the reason."""
    play = Play(step("A", command=["exit", "3"]), step("B"))

    assert await play.run() is RunState.FAILED
    assert play.stub.order() == ["A"]
    assert play.state["status"] == "failed"
    assert play.state["steps"]["A"]["status"] == "failed"
    assert play.state["steps"]["A"]["error"] == {
        "message": "exit code 3",
        "exit_code": 3,
        "stdout_tail": [],
        "stderr_tail": [],
        "context": {"substituted_command": ["exit", "3"]},
    }
    assert play.state["steps"]["B"] == {"status": "pending"}
    assert play.ended["error"]["code"] == "step_failed"
    assert play.ended["error"]["detail"]["exit_code"] == 3


@pytest.mark.parametrize(("strict", "options"), [(False, {}), (True, {"on_error": "continue"})])
async def test_failures_that_are_passed_by(strict, options):
    """If failures do not stop the run, it continues and ends as partial, with the failed steps."""
    play = Play(step("A", command=["false"]), step("B"), strict_flow=strict, options=options)

    assert await play.run() is RunState.DONE
    assert play.ended["ending"] == {"reason": "completed", "partial": True, "failed_steps": ["A"]}
    assert play.state["status"] == "completed"


async def test_on_error_stop_goes_before_a_lax_flow():
    """The command line can stop a run at failures that the workflow would pass over."""
    play = Play(step("A", command=["false"]), step("B"), strict_flow=False, options={"on_error": "stop"})

    assert await play.run() is RunState.FAILED


async def test_jumps_back_and_forth():
    """A jump leads to any step beside; each passage has its own key, and the last result is used."""
    play = Play(
        step("Check", command=["cat"], input_file="n", on={"failure": goto("Make"), "success": goto("Use")}),
        step("Make", command=["true"], on={"success": goto("Check")}),
        step("Use", command=["echo", "${steps.Check.output}"]),
    )
    play.stub.files["n"] = "yes"
    play.stub.results["Check"] = [1]

    assert await play.run() is RunState.DONE
    assert play.stub.order() == ["Check.input", "Check", "Make", "Check#2.input", "Check#2", "Use"]
    assert play.state["steps"]["Use"]["output"] == "yes\n"


async def test_end_is_a_target():
    """`_end` ends the run as done, even if steps follow."""
    play = Play(step("A", command=["false"], on={"always": goto("_end")}), step("B"))

    assert await play.run() is RunState.DONE
    assert play.stub.order() == ["A"]
    assert play.ended["ending"]["partial"] is False


async def test_a_flow_that_runs_in_circles(monkeypatch):
    """A workflow that never ends is stopped."""
    monkeypatch.setattr("app.dialects.orchestrate.driver.MOST_VISITS", 5)
    play = Play(step("A", on={"success": goto("A")}))

    assert await play.run() is RunState.FAILED
    assert play.ended["error"]["code"] == "runs_in_circles"
    assert len(play.stub.asked) == 5


# -- conditions, dependencies, prompts


async def test_conditions():
    """A step whose condition is false is skipped, with a record, and does not jump."""
    play = Play(
        step("A", when={"equals": {"left": "${context.n}", "right": "1"}}, on={"always": goto("_end")}),
        step("B", when={"exists": "a/*"}),
        step("C", when={"exists": "a/*", "not_exists": "b/*"}),
        step("D", when={"equals": {"left": "${context.n}", "right": "2"}}),
        context={"n": 2},
    )
    play.stub.files = {"a/x": ""}

    assert await play.run() is RunState.DONE
    statuses = {name: result["status"] for name, result in play.state["steps"].items()}
    assert statuses == {"A": "skipped", "B": "completed", "C": "completed", "D": "completed"}
    assert play.state["steps"]["A"] == {"status": "skipped", "exit_code": 0}
    assert play.disk.recorded() == ["A", "B.when", "B", "C.when", "C", "D"]


async def test_missing_dependencies():
    """A pattern without a match fails the step with 2 before it begins, and a handler can catch the failure."""
    play = Play(
        step("A", depends_on={"required": ["in/*.csv", "${context.f}"]}, on={"failure": goto("C")}),
        step("B"),
        step("C"),
        context={"f": "x"},
    )
    play.stub.files = {"x": ""}

    assert await play.run() is RunState.DONE
    assert play.state["steps"]["A"]["exit_code"] == 2
    assert play.state["steps"]["A"]["error"]["context"] == {"failed_deps": ["in/*.csv"]}
    assert play.stub.order() == ["A.files", "C"]


async def test_an_injected_prompt():
    """A provider gets its prompt with the list of files, as argument or as input."""
    needs = {"required": ["doc/*"], "optional": ["more/*"], "inject": {"mode": "content", "instruction": "Read:"}}
    play = Play(
        step("A", provider="echo", input_file="p.md", depends_on={"required": ["doc/*"], "inject": True}),
        step("B", provider="cat", input_file="p.md", depends_on=needs),
    )
    play.stub.files = {"p.md": "Do ${context.x}", "doc/a": "AAA", "doc/b": "BBB"}
    await play.run()
    asked: dict[str, Any] = dict(play.stub.asked)

    assert asked["A"].argv[1] == (
        "The following files are required inputs for this task:\n- doc/a\n- doc/b\n\nDo ${context.x}"
    )
    assert asked["B"].stdin.startswith("Read:\n\n=== File: doc/a (3 bytes) ===\nAAA\n\n=== File: doc/b")
    assert asked["B"].stdin.endswith("Do ${context.x}")


async def test_a_missing_prompt():
    """A missing prompt fails the step with 2."""
    play = Play(step("A", provider="cat", input_file="p.md"))

    assert await play.run() is RunState.FAILED
    assert play.state["steps"]["A"]["exit_code"] == 2
    assert "p.md is not there" in play.state["steps"]["A"]["error"]["message"]


@pytest.mark.parametrize(
    ("made", "context"),
    [
        ({"command": ["echo", "${context.gone}"]}, {"undefined_vars": ["${context.gone}"]}),
        ({"command": ["echo"], "output_file": "${context.up}/x"}, {"unsafe_path": "../x"}),
        ({"command": ["echo"], "output_file": "${run.root}/steps.jsonl"}, {"unsafe_path": ".o/runs/r/steps.jsonl"}),
        ({"command": ["echo"], "output_file": "./.o//runs/r/x"}, {"unsafe_path": "./.o//runs/r/x"}),
        ({"command": ["echo"], "depends_on": {"required": ["${context.up}"]}}, {"unsafe_path": ".."}),
        ({"wait_for": {"glob": "${context.root}*"}}, {"unsafe_path": "/*"}),
        ({"when": {"exists": "${context.root}"}, "command": ["true"]}, {"unsafe_path": "/"}),
        ({"provider": "echo", "input_file": "big"}, {"prompt_too_large": "echo"}),
    ],
)
async def test_steps_that_cannot_be_begun(made, context):
    """A step is not executed if variables are undefined, paths lead out, or the prompt is too long for an argument."""
    play = Play(step("A", **made), context={"up": "..", "root": "/"})
    play.stub.files["big"] = "x" * 100_001

    assert await play.run() is RunState.FAILED
    assert play.state["steps"]["A"]["exit_code"] == 2
    assert play.state["steps"]["A"]["error"]["context"] == context
    assert "A" not in play.stub.order()


async def test_artifacts():
    """A step may write below `artifacts/` of its run."""
    play = Play(step("A", command=["echo", "x"], output_file="${run.root}/artifacts/a/b"))

    assert await play.run() is RunState.DONE


async def test_waiting():
    """A wait reports the files that it found; one that found too few ends with 124."""
    play = Play(
        step("A", wait_for={"glob": "in/*", "timeout_sec": 9}),
        step("B", wait_for={"glob": "in/*", "min_count": 2}, on={"failure": goto("_end")}),
    )
    play.stub.files = {"in/x": ""}
    await play.run()
    a, b = play.state["steps"]["A"], play.state["steps"]["B"]

    assert {name: a[name] for name in ("files", "wait_duration_ms", "poll_count", "timed_out", "exit_code")} == {
        "files": ["in/x"], "wait_duration_ms": 7, "poll_count": 1, "timed_out": False, "exit_code": 0,
    }  # fmt: skip
    assert (b["exit_code"], b["timed_out"], b["error"]["context"]) == (
        124,
        True,
        {"timed_out": True, "timeout_sec": 300},
    )


# -- retries


async def test_retries():
    """Providers are retried after 1 and 124 by the command line's rule; commands by their own, and never after 2."""
    play = Play(
        step("A", provider="echo"),
        step("B", command=["true"], retries={"max": 2, "delay_ms": 0}),
        step("C", command=["true"]),
        options={"max_retries": 1, "retry_delay_ms": 0},
        strict_flow=False,
    )
    play.stub.results = {"A": [1, 0], "B": [7, 2], "C": [1]}

    assert await play.run() is RunState.DONE
    assert play.stub.order() == ["A", "A", "B", "B", "C"]
    assert [play.state["steps"][name]["exit_code"] for name in "ABC"] == [0, 2, 1]
    assert play.ended["ending"]["failed_steps"] == ["B", "C"]


# -- loops


async def test_a_loop():
    """Steps of a loop run for each item, see their own iteration, and are reported by iteration."""
    play = Play(
        step("List", command=["echo", "a\nb"], output_capture="lines"),
        loop(
            "Each",
            step("One", command=["echo", "${it} ${loop.index}/${loop.total}"]),
            step("Two", command=["echo", "${steps.One.output}${steps.List.lines}"]),
            items_from="steps.List.lines",
            **{"as": "it"},
        ),
        step("End"),
    )

    assert await play.run() is RunState.DONE
    assert [turn["One"]["output"] for turn in play.state["steps"]["Each"]] == ["a 0/2\n", "b 1/2\n"]
    assert play.state["steps"]["Each"][1]["Two"]["output"] == 'b 1/2\n["a","b"]\n'
    assert play.state["for_each"] == {"Each": {"items": ["a", "b"], "completed_indices": [0, 1], "current_index": None}}
    assert play.stub.order() == ["List", "Each[0].One", "Each[0].Two", "Each[1].One", "Each[1].Two", "End"]
    assert list(play.last.view().board.slots) == [
        "List", "Each[0].One", "Each[0].Two", "Each[1].One", "Each[1].Two", "End",
    ]  # fmt: skip


async def test_loops_in_loops():
    """Loops can be nested; the inner one sees the item of the outer one."""
    inner = loop("In", step("S", command=["echo", "${x}${y}"]), items=["1", "2"], **{"as": "y"})
    play = Play(loop("Out", inner, items=["a", "b"], **{"as": "x"}))
    await play.run()

    assert [[turn["S"]["output"] for turn in out["In"]] for out in play.state["steps"]["Out"]] == [
        ["a1\n", "a2\n"],
        ["b1\n", "b2\n"],
    ]


async def test_a_failing_item_stops_the_run():
    """The state shows how far the loop got."""
    play = Play(loop("Each", step("S", command=["true"])))
    play.stub.results["Each[1].S"] = [4]

    assert await play.run() is RunState.FAILED
    assert play.state["for_each"]["Each"] == {"items": ["x", "y"], "completed_indices": [0], "current_index": 1}
    assert [turn["S"]["status"] for turn in play.state["steps"]["Each"]] == ["completed", "failed"]


async def test_a_loop_without_a_list_fails_and_can_be_caught():
    """A loop without a list fails with 2 and names the reference, and the failure can be caught."""
    play = Play(
        step("J", command=["echo", '{"a": 1}'], output_capture="json"),
        {**loop("Each", step("S"), items_from="steps.J.json.a"), "on": {"failure": goto("_end")}},
        step("Never"),
    )

    assert await play.run() is RunState.DONE
    assert play.state["steps"]["Each"]["exit_code"] == 2
    assert play.state["steps"]["Each"]["error"]["context"]["invalid_reference"][0]["reference"] == "steps.J.json.a"


async def test_a_jump_out_of_a_loop():
    """A jump out of a loop skips the other items."""
    play = Play(
        loop("Each", step("S", on={"success": goto("End")}), step("T")),
        step("Between"),
        step("End"),
    )
    await play.run()

    assert play.stub.order() == ["Each[0].S", "End"]


# -- lifecycle


MOVES = {"success": {"move_to": "ok/${loop.index}"}, "failure": {"move_to": "bad"}}


def queue(*steps, **more):
    """Return a loop over two task files."""
    return loop("Q", *steps, items=["in/a", "in/b"], on_item_complete=MOVES, **more)


async def test_files_of_items_are_moved():
    """Success moves a file to one folder, an uncaught failure to the other; the state has both moves."""
    play = Play(queue(step("S"), step("T")), strict_flow=False)
    play.stub.files = {"in/a": "", "in/b": ""}
    play.stub.results["Q[1].S"] = [1]
    await play.run()

    assert set(play.stub.files) == {"ok/0/a", "bad/b"}
    assert [turn["lifecycle"] for turn in play.state["steps"]["Q"]] == [
        {"result": "success", "action": "move", "from": "in/a", "to": "ok/0/a", "action_applied": True, "error": None},
        {"result": "failure", "action": "move", "from": "in/b", "to": "bad/b", "action_applied": True, "error": None},
    ]
    assert play.stub.order()[-1] == "Q.moved[1]"


async def test_a_failure_that_is_caught_is_a_success():
    """A failure that a handler inside the loop catches is not a failure of the item."""
    play = Play(queue(step("S", on={"failure": goto("T")}), step("T")))
    play.stub.files = {"in/a": "", "in/b": ""}
    play.stub.results["Q[0].S"] = [1]

    assert await play.run() is RunState.DONE
    assert set(play.stub.files) == {"ok/0/a", "ok/1/b"}


@pytest.mark.parametrize(
    ("on", "version", "folder"),
    [
        ({}, 3, "bad"),
        ({"failure": goto("T")}, 3, "ok/0"),
        ({"always": goto("T")}, 3, "ok/0"),
        ({"always": goto("T")}, 2, "bad"),
    ],
)
async def test_a_loop_inside_an_item_fails_it_unless_a_jump_follows(on, version, folder):
    """A failed loop fails the item around it, unless `on.failure` or `on.always` of the loop leads to a next step."""
    inner = {**loop("In", step("S"), items=["x"]), **({"on": on} if on else {})}
    queued = loop("Q", inner, step("T"), items=["in/a"], on_item_complete=MOVES)
    play = Play(queued, strict_flow=False, driver_version=version)
    play.stub.files = {"in/a": ""}
    play.stub.results["Q[0].In[0].S"] = [1]

    assert await play.run() is RunState.DONE
    assert set(play.stub.files) == {f"{folder}/a"}


@pytest.mark.parametrize(
    ("steps", "results", "moved"),
    [
        ([step("S", on={"success": goto("_end")}), step("T")], {}, "bad/a"),
        ([step("S"), step("T", on={"failure": goto("End")})], {"Q[0].T": [1]}, "bad/a"),
        ([step("S"), step("T", on={"success": goto("End")})], {}, "ok/0/a"),
    ],
)
async def test_jumps_out_of_an_item(steps, results, moved):
    """A jump out of a loop before its end is a failure of the item; one after its last step is not."""
    play = Play(queue(*steps), step("End"))
    play.stub.files = {"in/a": "", "in/b": ""}
    play.stub.results = results

    assert await play.run() is RunState.DONE
    assert set(play.stub.files) == {moved, "in/b"}


async def test_a_failure_that_ends_the_run_moves_first():
    """The file of the item that failed is moved before the run ends."""
    play = Play(queue(step("S")))
    play.stub.files = {"in/a": "", "in/b": ""}
    play.stub.results["Q[0].S"] = [1]

    assert await play.run() is RunState.FAILED
    assert set(play.stub.files) == {"bad/a", "in/b"}
    assert play.ended["error"]["key"] == "Q[0].S"


async def test_a_move_that_fails_changes_nothing():
    """A missing file is reported as an error of the lifecycle, and the item keeps its result."""
    play = Play(queue(step("S")))
    play.stub.files = {"in/b": ""}

    assert await play.run() is RunState.DONE
    told = play.state["steps"]["Q"][0]["lifecycle"]
    assert (told["result"], told["action_applied"], told["to"]) == ("success", False, None)
    assert "in/a is not there" in told["error"]
    assert play.ended["ending"]["partial"] is False


# -- debugging


async def test_debugging():
    """A run with debugging reports how commands were made; its steps are the same."""
    steps = (step("A", provider="echo", input_file="p", provider_params={"unused": 1}),)
    quiet, debugged = Play(*steps), Play(*steps, options={"debug": True})
    for play in (quiet, debugged):
        play.stub.files["p"] = "Hi"
        await play.run()

    assert "debug" not in quiet.state["steps"]["A"]
    assert debugged.state["steps"]["A"]["debug"] == {
        "command": ["echo", "Hi"], "cwd": "/workspace", "ignored_params": ["unused"], "env_count": 3,
    }  # fmt: skip
    assert quiet.stub.asked == debugged.stub.asked
