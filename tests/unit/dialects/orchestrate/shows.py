"""Workflows with many features, ready to run."""

from __future__ import annotations

from tests.unit.dialects.orchestrate.driver_harness import Play
from tests.unit.dialects.orchestrate.workflow_harness import loop, step

MOVES = {"success": {"move_to": "ok/${run.timestamp_utc}"}, "failure": {"move_to": "bad"}}


def queue() -> Play:
    """Return a queue of tasks, one of which fails, with conditions, dependencies, prompts, a wait and a lifecycle."""
    needs = {"required": ["doc/*"], "optional": ["none/*"], "inject": {"mode": "content"}}
    play = Play(
        step("Begin", command=["echo", "${context.who}"], when={"equals": {"left": "${context.on}", "right": "true"}}),
        step("Never", when={"exists": "none/*"}),
        step("Wait", wait_for={"glob": "in/*", "min_count": 2}),
        step("List", command=["echo", "in/a\nin/b\nin/c"], output_capture="lines"),
        loop(
            "Each",
            step("Ask", provider="cat", input_file="p.md", depends_on=needs),
            step("Judge", command=["echo", '{"ok": true, "item": "${task}"}'], output_capture="json"),
            step("Assert", command=["true"], when={"equals": {"left": "${steps.Judge.json.ok}", "right": "true"}}),
            items_from="steps.List.lines",
            **{"as": "task"},
            on_item_complete=MOVES,
        ),
        step("Late", provider="cat", input_file="gone"),
        step("End", command=["echo", "${run.id}"]),
        context={"who": "me", "on": True},
        strict_flow=False,
    )
    play.stub.files = {"in/a": "", "in/b": "", "p.md": "Do it. " * 10_000, "doc/x": "X", "doc/y": "Y"}
    play.stub.results["Each[1].Assert"] = [1]
    return play


def winding() -> Play:
    """Return a workflow of nested loops, jumps back, jumps out, and retried steps."""
    inner = loop(
        "In",
        step("S", command=["echo", "${x}${y}"], on={"failure": {"goto": "Fix"}}),
        step("T", command=["true"], on={"success": goto("U")}),
        step("Fix", command=["true"], on={"always": goto("S")}),
        step("U", provider="echo", provider_params={"n": "${loop.index}"}),
        items=["1", "2"],
        **{"as": "y"},
    )
    play = Play(
        step("A", command=["true"], retries={"max": 3, "delay_ms": 0}),
        loop("Out", inner, step("V", on={"failure": goto("B")}), items=["a", "b", "c"], **{"as": "x"}),
        step("Skipped"),
        step("B", command=["true"], on={"failure": goto("A")}),
        step("C", command=["echo", "${steps.A.exit_code}"]),
        context={},
        options={"max_retries": 2, "retry_delay_ms": 0},
    )
    play.stub.results = {
        "A": [1, 1, 0],
        "Out[0].In[1].S": [1],
        "Out[1].In[0].U": [1, 124, 0],
        "Out[1].V": [3],
        "B": [1],
        "Out#2[2].V": [1],
    }
    return play


def failing() -> Play:
    """Return a loop whose second item ends the run."""
    play = Play(loop("Each", step("S", command=["echo", "${context.who}"]), step("T")), context={"who": "me"})
    play.stub.results["Each[1].S"] = [9]
    return play


def names(version: int = 2) -> Play:
    """Return a workflow of the second version's features: merged parameters, names with wildcards, reported waits.

    From the third version on, a call of a provider names it.
    """
    needs = {"required": ["${task}"], "inject": True}
    ask = step("Ask", provider="gemini", provider_params={"o": {"a": 1}}, input_file="p.md", depends_on=needs)
    play = Play(
        step("Begin", command=["echo", "${context.who}"], when={"equals": {"left": "${context.on}", "right": "true"}}),
        loop("Each", ask, step("Wait", wait_for={"glob": "${task}"}), items=["in/a[1]", "in/b*"], **{"as": "task"}),
        context={"who": "me", "on": True},
        driver_version=version,
    )
    play.stub.files = {"in/a[1]": "", "in/a1": "", "in/b*": "", "p.md": "Do it."}
    play.stub.programs["gemini"] = play.stub.programs["echo"]
    play.stub.results["Each[0].Ask"] = [1, 0]
    return play


def goto(target: str) -> dict[str, str]:
    """Return a branch to a step."""
    return {"goto": target}
