"""Graphs of golden runs: every recorded step has a node, and the graph shows how the run went."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.dialects import registry
from app.domain import graphs, records, states, views
from app.flows import registry as flows
from app.services import graph_trace, run_graphs
from tests.replay import golden

DRIVERS = {**registry.DIALECTS, **flows.DRIVERS}
SHOWN = [name for name in golden.names() if not name.startswith("session_plan/")]


def drawn(run: golden.Golden) -> graphs.Drawing:
    """Return the graph of a golden run's recipe."""
    return run_graphs.drawn(DRIVERS[run.start.dialect], run.start.recipe, run.start.frozen)


def traced(run: golden.Golden, lines: int | None = None) -> tuple[dict[str, Any], set[tuple[str, str, str | None]]]:
    """Return the nodes by id, and the edges taken, after some lines of a golden run; by default after all lines."""
    counted = [record for record in run.records()[:lines] if record.final]
    ended = lines is None
    view = views.RunView(
        start=run.start,
        status=states.RunState(run.ended["status"]) if ended else states.RunState.RUNNING,
        records=counted,
        ending=run.ended["ending"] if ended else None,
    )
    trace = graph_trace.Trace(drawn(run))
    for record in counted:
        trace.add(record)
    nodes, edges = trace.shown(view)
    return {node.id: node for node in nodes}, {(e.source, e.target, e.label) for e in edges if e.taken}


def _bare(key: str) -> str:
    return re.sub(r"#[0-9]+|\[[0-9]+\]|restart[0-9]+/|:result$", "", key)


def _parts(key: str) -> list[str]:
    parts = _bare(key).split(".")
    return [".".join(parts[begin:end]) for end in range(1, len(parts) + 1) for begin in range(end)]


@pytest.mark.parametrize("name", SHOWN)
def test_every_recorded_key_finds_its_node(name: str) -> None:
    """Each step of a golden run has a node, in the groups that the place of the step names."""
    run = golden.load(name)
    drawing = drawn(run)
    by_id = {node.id: node for node in drawing.nodes}
    locate = drawing.locator()
    for record in run.records():
        location = locate(record.key, record)

        assert location is not None, record.key
        path = [passage.node for passage in location.path]
        assert [by_id[node].group for node in path] == [None, *path[:-1]], record.key
        assert _bare(path[-1].rpartition("/")[2]) in (
            _bare(record.key).replace("finding", "findings"),
            *_parts(record.key),
        )


@pytest.mark.parametrize("name", SHOWN)
def test_a_graph_is_sound(name: str) -> None:
    """Node ids are unique, edges join existing nodes, and each group of a node is itself a node."""
    drawing = drawn(golden.load(name))
    ids = [node.id for node in drawing.nodes]

    assert len(ids) == len(set(ids)) > 0
    assert {end for edge in drawing.edges for end in (edge.source, edge.target)} <= set(ids)
    assert {node.group for node in drawing.nodes} - {None} <= set(ids)


@pytest.mark.parametrize("name", SHOWN)
def test_each_prefix_of_a_run_leads_on(name: str) -> None:
    """After each prefix of a run, all edges taken join reached nodes, and only an empty prefix reaches none."""
    run = golden.load(name)
    for lines in range(len(run.lines) + 1):
        nodes, taken = traced(run, lines)
        reached = {node for node in nodes if nodes[node].status is not None}

        assert (lines == 0) == (reached == set())
        assert {end for source, target, _ in taken for end in (source, target)} <= reached


def test_a_loop_of_outcomes_counts_its_visits() -> None:
    """Steps of a state machine count their visits, and only edges of reported outcomes are taken."""
    nodes, taken = traced(golden.load("agent_recipes/loop"))

    assert {name: node.visits for name, node in nodes.items() if node.status} == {
        "(start)": 1,
        "review": 2,
        "fix": 1,
        "commit": 1,
        "exit:changes-committed": 1,
    }
    assert nodes["review"].key == "review#2"
    assert {label for _, _, label in taken} == {None, "issues-found", "complete", "no-issues", "committed"}


def test_a_guardrail_reaches_no_exit() -> None:
    """A machine that a guardrail ended reaches no exit."""
    nodes, _ = traced(golden.load("agent_recipes/visits"))

    assert not [node for node in nodes.values() if node.kind == "end" and node.status]


def test_restarts_lead_to_the_recipe_that_they_begin() -> None:
    """Steps after a restart with another recipe belong to that recipe, in a group of their own."""
    nodes, taken = traced(golden.load("agent_recipes/in_turn"))

    assert nodes["other/commit"].group == "restart:other"
    assert nodes["other/commit"].key == "restart1/commit"
    assert nodes["restart:other"].status is states.StepState.DONE
    assert ("commit", "restart:other", "committed") in taken
    assert ("restart:other", "other/commit", None) in taken


def test_a_restart_of_the_same_recipe_comes_to_its_own_steps() -> None:
    """When a recipe restarts itself, the restart leads to its own steps, which count further visits."""
    nodes, taken = traced(golden.load("agent_recipes/tasks"))
    (restart,) = [node for node in nodes.values() if node.id.startswith("restart:")]

    assert nodes["implement"].visits == 3
    assert restart.visits == 2
    assert (restart.id, "implement", None) in taken


def test_loops_over_lists_count_their_iterations() -> None:
    """A loop over a list counts its iterations, and so do the steps in it; moving a file adds none."""
    nodes, taken = traced(golden.load("orchestrate/queue"))

    assert (nodes["Each"].kind, nodes["Each"].visits, nodes["Each"].status) == ("loop", 3, states.StepState.DONE)
    assert nodes["Each.Ask"].visits == 3
    assert nodes["Each.Ask"].key == "Each[2].Ask"
    assert ("Each", "Each.Ask", "each") in taken


def test_groups_of_a_loop_are_entered_once_per_item() -> None:
    """Steps of a loop over a list are in the group of its node."""
    nodes, _ = traced(golden.load("amplifier/steps_of_loops"))

    assert (nodes["each"].kind, nodes["each"].visits) == ("loop", 2)
    assert {name for name, node in nodes.items() if node.group == "each"} == {"look", "judge"}


def test_a_failed_check_shows_as_failed() -> None:
    """A check of the definition of done shows as failed if it led to an issue, although opening the issue succeeded."""
    run = golden.load("control_room/not_done")
    nodes, _ = traced(run)
    failed = {line["key"].removesuffix(".issue") for line in run.lines if line["key"].endswith(".issue")}

    assert failed
    assert {name for name, node in nodes.items() if node.status is states.StepState.FAILED} == failed


def test_micro_steps_are_parts_of_their_step_in_order() -> None:
    """The micro-steps of a small agent's step are its parts, in order."""
    nodes, taken = traced(golden.load("control_room/micro_steps"))
    parts = [name for name, node in nodes.items() if node.group == "judge"]

    assert parts == ["judge.triage", "judge.finding", "judge.evidence"]
    assert nodes["judge"].status is nodes["judge.evidence"].status is states.StepState.DONE
    assert ("judge.triage", "judge.finding", None) in taken


def test_a_step_that_is_only_prepared_is_not_done() -> None:
    """Preparing a step does not complete it."""
    run = golden.load("orchestrate/queue")
    prepared = next(at for at, line in enumerate(run.lines, 1) if line["key"].endswith(".input"))
    nodes, _ = traced(run, prepared)

    assert nodes["Each.Ask"].status is states.StepState.RUNNING


def test_open_steps_run() -> None:
    """A step in progress shows as running with its visit, and so does each group that contains it."""
    run = golden.load("agent_recipes/loop")
    counted = run.records()[:2]
    trace = graph_trace.Trace(drawn(run))
    for record in counted:
        trace.add(record)
    opened = views.OpenStep(
        key="review#2",
        attempt=1,
        kind="agent_call",
        place=records.Place(step_id="review"),
        facts={},
        started_at="2026-02-10T14:30:00.000Z",
    )
    view = views.RunView(start=run.start, status=states.RunState.RUNNING, records=counted, open=[opened])
    nodes = {node.id: node for node in trace.shown(view)[0]}

    assert (nodes["review"].status, nodes["review"].visits) == (states.StepState.RUNNING, 2)
    assert nodes["review"].key == "review#2"
