"""Session plans as text for people."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from app.cli import exit_codes, plan_following, plan_formats
from app.domain import plans
from app.domain.plans import PlanState, TaskState
from app.domain.task_reviews import Proposal, ProposalKind

AT = "2026-02-10T14:30:00.000Z"
ERROR = {"code": "empty_reply", "message": "the agent said nothing", "key": "draft", "detail": {}}
RUN = "20260210T143000Z-k3x9af"
SCENE, AUDIT = "creative_draft_scene", "analytical_consistency"
MISFIT: dict[str, Any] = {"code": "args_invalid", "message": "Which file is the scene?", "key": None, "detail": {}}
TASKS = (
    plans.Task(
        id=1,
        description="Write scene 21",
        recipe_id=SCENE,
        status=TaskState.DONE,
        run_id=RUN,
        started_at=AT,
        ended_at="2026-02-10T14:30:12.250Z",
    ),
    plans.Task(id=2, description="Write scene 22", recipe_id=SCENE, deps=(1,), status=TaskState.RUNNING, run_id=RUN),
    plans.Task(id=3, description="Check\nboth", recipe_id=AUDIT, deps=(1, 2), status=TaskState.BLOCKED),
    plans.Task(id=4, description="Audit", scoping_question="Which themes?", status=TaskState.NEEDS_SCOPING),
    plans.Task(id=5, description="Pace it", recipe_id=AUDIT, status=TaskState.FAILED, run_id=RUN, error=ERROR),
    plans.Task(id=6, description="Sweep up", recipe_id=AUDIT, status=TaskState.PENDING),
)
"""A task in each state."""


def plan(status: PlanState, *tasks: plans.Task, **fields: Any) -> dict[str, Any]:
    """Return a plan as JSON."""
    made = plans.Plan(session_id="sp_x", status=status, created_at=AT, updated_at=AT, tasks=tasks)
    return dataclasses.replace(made, **fields).to_json()


def with_states(status: PlanState, *states: TaskState, **fields: Any) -> dict[str, Any]:
    """Return a plan with tasks in these states."""
    tasks = [
        plans.Task(id=number, description="x", recipe_id="quick", status=state)
        for number, state in enumerate(states, 1)
    ]
    return plan(status, *tasks, **fields)


def test_a_task_that_is_done_in_part_is_remarked():
    """A partial task has a remark with the command that shows its run."""
    partly = dataclasses.replace(TASKS[0], partial=True)

    assert list(plan_formats.remarks(plan(PlanState.DONE, partly))) == [
        f"task 1 is done in part: control-room runs show {RUN}"
    ]
    assert list(plan_formats.remarks(plan(PlanState.DONE, TASKS[0]))) == []


def test_plan_is_a_checklist():
    """A plan lists the mark, state, dependencies, recipe and run of each task, then questions and commands."""
    lines = plan_formats.plan(
        plan(PlanState.RUNNING, *TASKS, intent="Scenes 21 and 22", labels={"book": "one"})
    ).splitlines()

    assert lines[:3] == ["plan sp_x running (revision 1)", "intent: Scenes 21 and 22", "labels: book=one"]
    assert lines[4].split() == ["TASK", "STATUS", "AFTER", "RECIPE", "RUN", "DESCRIPTION"]
    assert [line[:3] for line in lines[5:11]] == ["[x]", "[>]", "[ ]", "[?]", "[!]", "[ ]"]
    assert lines[5].split() == ["[x]", "1", "done", "-", "creative_draft_scene", RUN, "Write", "scene", "21"]
    assert lines[7].split()[2:] == ["3", "blocked", "1,", "2", AUDIT, "-", "Check", "both"]
    assert lines[12:14] == ["task 4 asks: Which themes?", "task 5 failed: the agent said nothing [empty_reply]"]
    assert lines[15:] == ['next: control-room plan answer sp_x 4 "…"', "next: control-room plan retry sp_x 5"]


def test_an_open_gate_is_printed_with_its_question():
    """An open gate of a task's run, or of a run below, is printed with the beginning of its question and its answers.

    Each answer has a command of its own, which a shell takes as it is printed.
    """
    asked = {"prompt": "Ship it?\n\n" + "all " * 99, "options": ["yes", "not now"]}
    gate = {"gate_id": "g1", "run_id": RUN, "key": "ship"} | asked
    below = gate | {"gate_id": "g2", "run_id": "another"}
    lines = plan_formats.plan(plan(PlanState.RUNNING, TASKS[1]), [gate, below]).splitlines()

    assert lines[5].startswith("task 2 waits at the gate ship: Ship it? all all")
    assert lines[6].startswith("run another waits at the gate ship: Ship it?")
    assert len(lines[5]) < 200
    assert lines[8:] == [
        "next: control-room gates answer g1 yes",
        "next: control-room gates answer g1 'not now'",
        "next: control-room gates answer g2 yes",
        "next: control-room gates answer g2 'not now'",
        "next: control-room plan follow sp_x",
    ]


def test_a_paused_run_is_printed_with_the_command_that_sends_it_on():
    """A paused run is printed with its reason and, if a single one sends it on, the command, each command once."""
    own, below = f"run {RUN} is paused: paused_by_person", "run another is paused: workspace_not_allowed"
    pauses = [(own, f"control-room runs unpause {RUN}"), (below, None), (own, f"control-room runs unpause {RUN}")]
    lines = plan_formats.plan(plan(PlanState.RUNNING, TASKS[1]), pauses=pauses).splitlines()

    assert lines[5:8] == [own, below, own]
    assert lines[9:] == [f"next: control-room runs unpause {RUN}", "next: control-room plan follow sp_x"]


def test_a_forced_task_is_marked():
    """A task that a person forced is marked as forced."""
    forced = dataclasses.replace(TASKS[1], forced=True)

    assert "running, forced" in plan_formats.plan(plan(PlanState.RUNNING, forced))


def test_a_plan_names_the_run_of_its_chief():
    """While the chief is at work the plan names its run, and after a failure the error."""
    at_work = plan(PlanState.DRAFT, awaits_chief=True, chief_run_id=RUN, intent="All")
    failed = plan(PlanState.FAILED, chief_run_id=RUN, error=ERROR)

    assert f"the chief splits the intent into tasks, in run {RUN}" in plan_formats.plan(at_work)
    assert "error: the agent said nothing [empty_reply]" in plan_formats.plan(failed)


@pytest.mark.parametrize(
    ("found", "commands"),
    [
        (plan(PlanState.DRAFT, awaits_chief=True), ["follow sp_x"]),
        (plan(PlanState.DRAFT), []),
        (with_states(PlanState.DRAFT, TaskState.PENDING), ["approve sp_x"]),
        (with_states(PlanState.DRAFT, TaskState.NEEDS_SCOPING), ['answer sp_x 1 "…"', "approve sp_x"]),
        (with_states(PlanState.APPROVED, TaskState.PENDING), ["start sp_x"]),
        (with_states(PlanState.RUNNING, TaskState.RUNNING), ["follow sp_x"]),
        (with_states(PlanState.RUNNING, TaskState.DONE, TaskState.NEEDS_SCOPING), ['answer sp_x 2 "…"']),
        (with_states(PlanState.PAUSED, TaskState.PENDING), ["resume sp_x"]),
        (with_states(PlanState.FAILED, TaskState.FAILED, TaskState.BLOCKED), ["retry sp_x 1"]),
        (with_states(PlanState.FAILED, *[TaskState.FAILED] * 9), [f"retry sp_x {number}" for number in (1, 2, 3)]),
        (with_states(PlanState.FAILED, TaskState.FAILED, TaskState.PENDING), ["retry sp_x 1", "start sp_x"]),
        (plan(PlanState.FAILED, error=ERROR), ["start sp_x"]),
        (with_states(PlanState.DONE, TaskState.DONE), []),
    ],
)
def test_next_command_is_named(found: dict[str, Any], commands: list[str]):
    """A plan lists the next commands to type, answers to its questions first."""
    assert plan_formats.next_commands(found) == [f"control-room plan {command}" for command in commands]


@pytest.mark.parametrize(
    ("code", "option"),
    [("args_invalid", "--arg NAME=…"), ("unknown_recipe", "--recipe ID"), ("recipe_invalid", "--recipe ID")],
)
def test_a_task_that_a_retry_alone_does_not_help_is_edited_first(code: str, option: str) -> None:
    """A retry alone would start the same run with the same recipe and arguments, so the change is offered first."""
    task = plans.Task(id=1, description="x", recipe_id=SCENE, status=TaskState.FAILED, error=MISFIT | {"code": code})

    assert plan_formats.next_commands(plan(PlanState.FAILED, task)) == [
        f"control-room plan edit sp_x 1 {option}",
        "control-room plan retry sp_x 1",
    ]


def test_a_proposal_about_a_begun_task_can_only_be_dismissed() -> None:
    """The command that accepts a proposal is not named once the plan would refuse it."""
    kinds = ((ProposalKind.EDIT_TASK, 1), (ProposalKind.REMOVE_TASK, 3), (ProposalKind.ADD_TASK, None))
    proposals = tuple(
        Proposal(id=number, after_task=1, kind=kind, task=task) for number, (kind, task) in enumerate(kinds, 1)
    )
    found = plan(PlanState.PAUSED, *TASKS[:3], proposals=proposals)

    assert [command.split(" ", 2)[2] for command in plan_formats.next_commands(found)] == [
        "resume sp_x",
        "dismiss sp_x 1",
        "accept sp_x 2",
        "accept sp_x 3",
    ]


def test_answer_that_is_about_arguments_names_their_option():
    """For a question about arguments, the command to type includes the option for arguments."""
    asking = dataclasses.replace(TASKS[3], recipe_id=SCENE, asked_by="system")

    assert plan_formats.next_commands(plan(PlanState.RUNNING, asking)) == [
        'control-room plan answer sp_x 4 "…" --arg NAME=…'
    ]


def test_long_questions_are_cut_where_they_are_in_the_way():
    """`plan show` prints a question completely, and following a plan prints its beginning."""
    asking = plan(PlanState.RUNNING, dataclasses.replace(TASKS[3], scoping_question="Which one? " * 50))
    (whole,), (cut,) = plan_formats.remarks(asking), plan_formats.remarks(asking, 160)

    assert whole == f"task 4 asks: {'Which one? ' * 50}"
    assert len(cut) <= len("task 4 asks: ") + 160
    assert cut.endswith("…")
    assert whole in plan_formats.plan(asking)
    assert cut in plan_formats.outline(asking)


def test_changes_are_lines():
    """A change of a task is one line with its run, time, error or dependencies."""
    lines = [plan_formats.change(task).split() for task in plan(PlanState.RUNNING, *TASKS)["tasks"]]

    assert lines[0] == ["1", "done", "Write", "scene", "21", "12.2", "s"]
    assert lines[1][-2:] == ["run", RUN]
    assert lines[2][-3:] == ["after", "1,", "2"]
    assert lines[3] == ["4", "needs_scoping", "Audit"]
    assert lines[4][-1] == "[empty_reply]"
    assert lines[5] == ["6", "pending", "Sweep", "up"]


def test_plans_are_a_list():
    """A list has each plan with its number of tasks per state, and an empty list is a sentence."""
    summary = plans.summary(
        dataclasses.replace(plans.Plan(session_id="sp_x", created_at=AT, updated_at=AT), tasks=TASKS)
    )
    listed = plan_formats.plans([summary.to_json()])

    assert listed.splitlines()[1].startswith(
        "sp_x        draft   1 done, 1 running, 1 pending, 1 blocked, 1 needs_scoping"
    )
    assert plan_formats.plans([]) == "there are no such plans"


@pytest.mark.parametrize(
    ("found", "rests"),
    [
        (plan(PlanState.DRAFT, awaits_chief=True), False),
        (with_states(PlanState.DRAFT, TaskState.PENDING), True),
        (with_states(PlanState.RUNNING, TaskState.PENDING), False),
        (with_states(PlanState.RUNNING, TaskState.NEEDS_SCOPING, TaskState.BLOCKED), True),
        (with_states(PlanState.PAUSED, TaskState.RUNNING), False),
        (with_states(PlanState.PAUSED, TaskState.PENDING), True),
        (with_states(PlanState.FAILED, TaskState.FAILED, TaskState.RUNNING), False),
        (with_states(PlanState.DONE, TaskState.DONE), True),
    ],
)
def test_plan_rests_when_nothing_happens_by_itself(found: dict[str, Any], rests: bool):
    """A plan is at rest when no task runs or will begin and the chief is not at work."""
    assert plan_following.rests(found) is rests


@pytest.mark.parametrize(
    ("status", "code"), [("done", 0), ("failed", 1), ("paused", 1), ("running", 1), ("draft", 0), ("approved", 0)]
)
def test_rest_has_its_exit_code(status: str, code: int):
    """The state of a followed plan decides the exit code; a running one at rest waits for an answer."""
    assert exit_codes.of_plan(PlanState(status).value) == code


def test_a_plan_before_its_start_lists_definitions_of_done() -> None:
    """A plan before its start lists each definition of done, in words or as checks; a running one does not."""
    path: dict[str, Any] = {"check": "file_exists", "path": {"$ref": "task.outputs.draft"}}
    checks = ({"check": "slot_not_null", "slot": "draft"}, path)
    tasks = (
        plans.Task(id=1, description="Write", dod="It is there."),
        plans.Task(id=2, description="Look", dod=checks),
    )
    told = plan_formats.plan(plan(PlanState.DRAFT, *tasks))

    assert "task 1 will be done when: It is there." in told
    assert "task 2 will be done when: slot_not_null draft; file_exists task.outputs.draft" in told
    assert "done when" not in plan_formats.plan(plan(PlanState.RUNNING, *tasks))
