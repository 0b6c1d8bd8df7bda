"""Every state of a session plan and of a task with every action."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app import errors
from app.domain.plans import PLAN_MOVES, TASK_MOVES, Plan, PlanState, TaskState
from app.domain.states import RunState
from app.flows.session_plan import rules, transitions
from app.services.plans import edits
from tests.unit.services.plans.given import ERROR, LATER, asking, done, fact, failed, plan, running, task

DRAFT, APPROVED, RUNNING, PAUSED, DONE, FAILED = PlanState
NO = "wrong_state"

# A failed task, one that it blocks, and one that could begin.
TRIO = (failed(1), task(2, 1), task(3))

PLANS: Mapping[str, Plan] = {
    "draft": plan(*TRIO, status=DRAFT),
    "draft of the chief": plan(status=DRAFT, awaits_chief=True, chief_run_id="run-c"),
    "draft without tasks": plan(status=DRAFT),
    "approved": plan(*TRIO, status=APPROVED),
    "running": plan(*TRIO, status=RUNNING),
    "paused": plan(*TRIO, status=PAUSED),
    "paused without tasks": plan(status=PAUSED),
    "done": plan(done(1), status=DONE),
    "done, written by hand": plan(*TRIO, status=DONE),
    "failed": plan(failed(1), task(2, 1), status=FAILED),
    "failed, could go on": plan(*TRIO, status=FAILED),
    "failed without tasks": plan(status=FAILED, chief_run_id="run-c", error=ERROR),
}

PLAN_ACTIONS: Mapping[str, Callable[[Plan], Plan]] = {
    "approve": lambda it: transitions.approved(it, LATER),
    "start": lambda it: transitions.started(it, LATER),
    "pause": lambda it: transitions.paused(it, LATER),
    "resume": lambda it: transitions.resumed(it, LATER),
    "force": lambda it: transitions.forced(it, 2, LATER),
    "retry": lambda it: transitions.retried(it, 1, LATER, fresh=True),
    "add": lambda it: edits.with_new_task(it, task(it.highest_task_id + 1), LATER),
    "planned": lambda it: transitions.planned(it, TRIO, LATER),
    "unplanned": lambda it: transitions.unplanned(it, ERROR, LATER),
    "ask again": lambda it: transitions.asked_again(it, LATER),
}

GONE = "task_not_found"
NOT_BY_HAND = ("planned", "unplanned", "ask again")
AT_REST = dict.fromkeys(NOT_BY_HAND, NO)
PLAN_TABLE: Mapping[str, Mapping[str, str]] = {
    "draft": AT_REST
    | {"approve": "approved", "start": NO, "pause": NO, "resume": NO, "force": NO, "retry": NO, "add": "draft"},
    "draft of the chief": {"approve": NO, "start": NO, "pause": NO, "resume": NO, "force": GONE, "retry": GONE}
    | {"add": NO, "planned": "draft", "unplanned": "failed", "ask again": NO},
    "draft without tasks": AT_REST
    | {"approve": NO, "start": NO, "pause": NO, "resume": NO, "force": GONE, "retry": GONE, "add": "draft"},
    "approved": AT_REST
    | {"approve": NO, "start": "running", "pause": NO, "resume": NO, "force": NO, "retry": NO, "add": "approved"},
    "running": AT_REST
    | {"approve": NO, "start": "running", "pause": "paused", "resume": NO, "force": "running", "retry": "running"}
    | {"add": "running"},
    "paused": AT_REST
    | {"approve": NO, "start": "running", "pause": NO, "resume": "running", "force": NO, "retry": NO, "add": "paused"},
    "paused without tasks": AT_REST
    | {"approve": NO, "start": NO, "pause": NO, "resume": NO, "force": GONE, "retry": GONE, "add": "paused"},
    "done": AT_REST
    | {"approve": NO, "start": NO, "pause": NO, "resume": NO, "force": GONE, "retry": NO, "add": "paused"},
    "done, written by hand": AT_REST
    | {"approve": NO, "start": "running", "pause": NO, "resume": NO, "force": "running", "retry": "running"}
    | {"add": "paused"},
    "failed": AT_REST
    | {"approve": NO, "start": NO, "pause": NO, "resume": NO, "force": "running", "retry": "running", "add": "failed"},
    "failed, could go on": AT_REST
    | {"approve": NO, "start": "running", "pause": NO, "resume": NO, "force": "running", "retry": "running"}
    | {"add": "failed"},
    "failed without tasks": {"approve": NO, "start": NO, "pause": NO, "resume": NO, "force": GONE, "retry": GONE}
    | {"add": "failed", "planned": NO, "unplanned": NO, "ask again": "draft"},
}

TASKS: Mapping[str, Plan] = {
    "pending": plan(task(1), done(2)),
    "blocked": plan(task(1, 2), task(2)),
    "needs_scoping": plan(asking(1), done(2)),
    "needs_scoping, its recipe known": plan(asking(1, recipe_id="draft"), done(2)),
    "running": plan(running(1), done(2)),
    "running, its run being made": plan(running(1, run_id=None), done(2)),
    "done": plan(done(1), task(2)),
    "failed": plan(failed(1), task(2)),
    "failed without a run": plan(failed(1, run_id=None), task(2)),
}


def _ended(status: RunState | None) -> Callable[[Plan], Plan]:
    return lambda it: rules.reconciled(it, {"run-1": fact(status)})


def _edited(**fields: Any) -> Callable[[Plan], Plan]:
    return lambda it: edits.with_edit(it, dataclasses.replace(edits.editable(it, 1), **fields), LATER)


def _answered(it: Plan) -> Plan:
    answered = dataclasses.replace(edits.answerable(it, 1), scoping_answer="This", recipe_id="draft")
    return edits.with_answer(it, answered, LATER)


def _after(it: Plan) -> Plan:
    return rules.reconciled(it.with_task(done(2)), {})


TASK_ACTIONS: Mapping[str, Callable[[Plan], Plan]] = {
    "begin": lambda it: transitions.begun(it, 1, LATER),
    "run made": lambda it: transitions.with_run(it, 1, "run-1", LATER),
    "run refused": lambda it: transitions.refused(it, 1, ERROR, LATER),
    "run goes on": _ended(RunState.PAUSED),
    "run done": _ended(RunState.DONE),
    "run failed": _ended(RunState.FAILED),
    "run cancelled": _ended(RunState.CANCELLED),
    "run deleted": _ended(None),
    "what it needs is done": _after,
    "force": lambda it: transitions.forced(it, 1, LATER),
    "retry": lambda it: transitions.retried(it, 1, LATER, fresh=False),
    "retry afresh": lambda it: transitions.retried(it, 1, LATER, fresh=True),
    "answer": _answered,
    "take its recipe": _edited(recipe_id=None),
    "make it wait": _edited(deps=(2,)),
    "remove": lambda it: edits.without_task(it, 1, LATER),
}

AWAY, BEGUN = "gone", "task_begun"
NO_RUN = {"run goes on", "run done", "run failed", "run cancelled", "run deleted"}
OPEN = {"begin": NO, "run made": NO, "run refused": NO, "force": NO, "retry": NO, "retry afresh": NO, "answer": NO}
OPEN |= {"take its recipe": "needs_scoping", "remove": AWAY}
SHUT = {"begin": NO, "run made": NO, "run refused": NO, "force": NO, "retry": NO, "retry afresh": NO, "answer": BEGUN}
SHUT |= {"take its recipe": BEGUN, "make it wait": BEGUN, "remove": BEGUN}
TRIED = {"begin": NO, "run made": NO, "run refused": NO, "what it needs is done": "failed", "force": NO, "answer": NO}
TRIED |= {"retry": "running", "retry afresh": "pending", "take its recipe": "failed", "make it wait": "failed"}
TRIED |= {"remove": AWAY}
TASK_TABLE: Mapping[str, Mapping[str, str]] = {
    "pending": OPEN
    | dict.fromkeys(NO_RUN, "pending")
    | {"begin": "running", "what it needs is done": "pending", "make it wait": "pending"},
    "blocked": OPEN
    | dict.fromkeys(NO_RUN, "blocked")
    | {"what it needs is done": "pending", "force": "pending", "make it wait": "blocked"},
    "needs_scoping": OPEN
    | dict.fromkeys(NO_RUN, "needs_scoping")
    | {"what it needs is done": "needs_scoping", "make it wait": "needs_scoping", "answer": "pending"},
    "needs_scoping, its recipe known": OPEN
    | dict.fromkeys(NO_RUN, "needs_scoping")
    | {"what it needs is done": "needs_scoping", "make it wait": "needs_scoping", "answer": "pending"},
    "running": SHUT
    | {"run goes on": "running", "run done": "done", "run failed": "failed", "run cancelled": "failed"}
    | {"run deleted": "failed", "what it needs is done": "running"},
    "running, its run being made": SHUT
    | dict.fromkeys(NO_RUN, "running")
    | {"run made": "running", "run refused": "failed", "what it needs is done": "running"},
    "done": SHUT | dict.fromkeys(NO_RUN, "done") | {"what it needs is done": "done", "remove": AWAY},
    "failed": TRIED
    | {"run goes on": "running", "run done": "done", "run failed": "failed", "run cancelled": "failed"}
    | {"run deleted": "failed"},
    "failed without a run": TRIED | dict.fromkeys(NO_RUN, "failed") | {"retry": "pending"},
}


@pytest.mark.parametrize("action", PLAN_ACTIONS)
@pytest.mark.parametrize("case", PLANS)
def test_every_move_of_a_plan(case: str, action: str) -> None:
    """Each action in each state of a plan leads to the state in the table, or is refused with the code there."""
    before = PLANS[case]
    try:
        after: Plan | None = PLAN_ACTIONS[action](before)
        came = after.status.value if after is not None else ""
    except errors.ControlRoomError as error:
        after, came = None, error.code

    assert came == PLAN_TABLE[case][action]
    if after is not None and after.status is not before.status:
        assert after.status in PLAN_MOVES[before.status]
        assert after.revision == before.revision + 1
        assert after.updated_at == LATER


@pytest.mark.parametrize("action", TASK_ACTIONS)
@pytest.mark.parametrize("case", TASKS)
def test_every_move_of_a_task(case: str, action: str) -> None:
    """Each action in each state of a task leads to the state in the table, or is refused with the code there."""
    before = TASKS[case]
    try:
        found = TASK_ACTIONS[action](before).task(1)
        came = found.status.value if found is not None else AWAY
    except errors.ControlRoomError as error:
        found, came = None, error.code

    assert came == TASK_TABLE[case][action]
    stood = before.tasks[0].status
    if found is not None and found.status is not stood:
        assert found.status in TASK_MOVES[stood]


def test_the_tables_are_whole() -> None:
    """The tables have a row for each case, a column for each action, and a case for each state."""
    assert PLAN_TABLE.keys() == PLANS.keys()
    assert all(row.keys() == PLAN_ACTIONS.keys() for row in PLAN_TABLE.values())
    assert {each.status for each in PLANS.values()} == set(PlanState) == set(PLAN_MOVES)
    assert TASK_TABLE.keys() == TASKS.keys()
    assert all(row.keys() == TASK_ACTIONS.keys() for row in TASK_TABLE.values())
    assert {each.tasks[0].status for each in TASKS.values()} == set(TaskState) == set(TASK_MOVES)


def test_every_drawn_move_can_be_made() -> None:
    """Every move in the tables of the engine is brought about by an action."""
    made = {(PLANS[case].status.value, came) for case, row in PLAN_TABLE.items() for came in row.values()}
    settled = {("running", "done"), ("running", "failed"), ("failed", "done")}
    drawn = {(source.value, target.value) for source, targets in PLAN_MOVES.items() for target in targets}
    moved = {(TASKS[case].tasks[0].status.value, came) for case, row in TASK_TABLE.items() for came in row.values()}
    # An edit may remove or add a dependency or a question; a retry then takes it into account.
    by_edit = {("pending", "blocked"), ("needs_scoping", "blocked"), ("failed", "blocked"), ("failed", "needs_scoping")}
    shown = {(source.value, target.value) for source, targets in TASK_MOVES.items() for target in targets}

    assert drawn - made - settled == set()
    assert shown - moved == by_edit


def test_an_edit_with_an_open_dependency_makes_a_task_wait() -> None:
    """An edit that adds an open dependency or question makes a task wait; a failed one waits after its retry."""
    waits = _edited(deps=(2,))
    open_two = plan(task(1), task(2))
    tried = plan(failed(1), task(2))
    both = plan(asking(1, 2), task(2))

    assert waits(open_two).tasks[1].status is TaskState.BLOCKED
    assert waits(tried).task(1).status is TaskState.FAILED  # type: ignore[union-attr]
    assert transitions.retried(waits(tried), 1, LATER, fresh=False).task(1).status is TaskState.BLOCKED  # type: ignore[union-attr]
    assert transitions.retried(waits(tried), 1, LATER, fresh=True).task(1).status is TaskState.BLOCKED  # type: ignore[union-attr]
    assert _answered(both).task(1).status is TaskState.BLOCKED  # type: ignore[union-attr]
    asks = _edited(recipe_id=None)(tried)
    assert transitions.retried(asks, 1, LATER, fresh=False).task(1).status is TaskState.NEEDS_SCOPING  # type: ignore[union-attr]
    unsure = _edited(scoping_question="Sure?")(tried)
    assert transitions.retried(unsure, 1, LATER, fresh=False).task(1).status is TaskState.NEEDS_SCOPING  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("before", "status"),
    [
        (plan(done(1), done(2), status=APPROVED), DONE),
        (plan(failed(1), task(2, 1), status=APPROVED), FAILED),
        (plan(failed(1), asking(2, 1), status=APPROVED), RUNNING),
        (plan(failed(1), task(2), status=APPROVED), RUNNING),
        (plan(failed(1), running(2), status=APPROVED), RUNNING),
        (plan(task(2, 1), failed(1), task(3, 2), status=APPROVED), FAILED),
    ],
)
def test_the_state_of_a_running_plan_follows_its_tasks(before: Plan, status: PlanState) -> None:
    """A running plan is done when all tasks are, failed when none can continue, else running."""
    assert transitions.started(before, LATER).status is status
