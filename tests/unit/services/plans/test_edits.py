"""Edits of a plan by people: each flaw is reported with its place, and begun tasks are not changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from app import errors
from app.domain.plans import Plan, PlanState, Scoping, TaskState
from app.flows.session_plan import rules, transitions
from app.services.plans import edits, requests
from tests.unit.services.plans.given import LATER, asking, done, failed, places_and_codes, plan, running, states, task

DRAFT = PlanState.DRAFT


def edited(before: Plan, task_id: int, **fields: Any) -> Plan:
    """Change fields of a task."""
    return edits.with_edit(before, dataclasses.replace(edits.editable(before, task_id), **fields), LATER)


def ids(found: Plan) -> list[int]:
    """Return the ids of a plan's tasks in order."""
    return [each.id for each in found.tasks]


class TestOrder:
    """The order in which tasks are shown and begun."""

    def test_any_that_keeps_dependencies(self) -> None:
        """Tasks are begun in their new order."""
        after = edits.reordered(plan(task(1), task(2), task(3, 1), status=DRAFT), [2, 1, 3], LATER)

        assert ids(after) == [2, 1, 3]
        assert [
            each.id for each in rules.startable(transitions.started(transitions.approved(after, LATER), LATER), 1)
        ] == [2]

    def test_all_flaws_of_a_new_task_are_reported(self) -> None:
        """Missing, unknown and repeated tasks, and those before their dependency, are reported together."""
        before = plan(task(1), task(2, 1), task(3), task(4, 2, 3), status=DRAFT)
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.reordered(before, [2, 1, 9, 4, 2], LATER)

        assert places_and_codes(refused.value) == [
            ("$.order", "order_incomplete"),
            ("$.order[0]", "order_breaks_dependency"),
            ("$.order[2]", "order_unknown_task"),
            ("$.order[4]", "order_repeats_task"),
        ]
        assert refused.value.code == "order_incomplete"

    def test_an_unchanged_order_leaves_the_plan_unchanged(self) -> None:
        """An unchanged order leaves the plan unchanged."""
        before = plan(task(1), task(2))

        assert edits.reordered(before, [1, 2], LATER) is before

    def test_a_new_dependency_puts_a_task_behind(self) -> None:
        """A task with a new dependency on a later one moves behind it, and the others keep their order."""
        after = edited(plan(task(1), task(2), task(3), task(4)), 1, deps=(3,))

        assert ids(after) == [2, 3, 1, 4]


class TestNewTasks:
    """New tasks."""

    def test_numbers_are_never_given_twice(self) -> None:
        """The number of a removed task is not used again."""
        after = edits.without_task(plan(task(1), task(7)), 7, LATER)

        assert after.highest_task_id == 7
        for number in (7, 3, 1):
            with pytest.raises(errors.RequestInvalid) as refused:
                edits.with_new_task(after, task(number), LATER)
            assert places_and_codes(refused.value) == [("$.id", "duplicate_task")]
        assert ids(edits.with_new_task(after, task(8, 1), LATER)) == [1, 8]

    def test_numbers_come_to_an_end(self) -> None:
        """A task number above the maximum is refused."""
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.with_new_task(plan(task(999_999)), task(1_000_000), LATER)

        assert places_and_codes(refused.value) == [("$.id", "invalid")]

    def test_all_flaws_of_a_new_task_are_reported(self) -> None:
        """A wrong number and wrong dependencies of a new task are reported together, with places in the task."""
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.with_new_task(plan(task(1), task(2)), task(2, 2, 9, 1, 1), LATER)

        assert refused.value.code == "tasks_invalid"
        assert places_and_codes(refused.value) == [
            ("$.id", "duplicate_task"),
            ("$.deps[0]", "self_dependency"),
            ("$.deps[1]", "unknown_dependency"),
            ("$.deps[3]", "repeated_dependency"),
        ]

    def test_a_plan_has_a_limit(self) -> None:
        """A full plan accepts no further task."""
        before = plan(*(task(number + 1) for number in range(requests.TASKS)))
        with pytest.raises(errors.Conflict) as refused:
            edits.with_new_task(before, task(requests.TASKS + 1), LATER)

        assert refused.value.code == "too_many_tasks"

    def test_a_done_plan_waits_for_a_person(self) -> None:
        """A task added to a done plan pauses the plan, and a resume begins the task."""
        after = edits.with_new_task(plan(done(1), status=PlanState.DONE), task(2, 1), LATER)

        assert (after.status, states(after)) == (PlanState.PAUSED, {1: "done", 2: "pending"})
        assert [each.id for each in rules.startable(transitions.resumed(after, LATER), 1)] == [2]


class TestEdits:
    """Edits of tasks."""

    @pytest.mark.parametrize("begun", [running(1), done(1), running(1, run_id=None)])
    def test_a_begun_task_cannot_be_edited(self, begun: Any) -> None:
        """A running or done task cannot be edited."""
        with pytest.raises(errors.Conflict) as refused:
            edits.editable(plan(begun, task(2)), 1)

        assert refused.value.code == "task_begun"
        assert refused.value.detail["task"] == 1

    def test_a_cycle_is_reported_at_its_closing_dependency(self) -> None:
        """A cycle is reported at the dependency that would close it."""
        before = plan(task(3), task(2, 3), task(1, 3, 2))
        with pytest.raises(errors.RequestInvalid) as refused:
            edited(before, 2, deps=(1,))
        (flaw,) = refused.value.flaws

        assert (flaw.path, flaw.code) == ("$.deps[0]", "dependency_cycle")
        assert flaw.message.endswith("2 → 1 → 2")

    @pytest.mark.parametrize(
        "change",
        [
            {"description": "Other"},
            {"recipe_id": "other"},
            {"args": {"a": 1}},
            {"scoping_question": "q", "scoping_answer": "a"},
            {"scoping_before": (Scoping(question="q", answer="a"),)},
        ],
    )
    def test_another_task_has_another_run(self, change: dict[str, Any]) -> None:
        """A failed task whose content was changed stays failed, and its retry creates another run."""
        after = edited(plan(failed(1), task(2)), 1, **change)
        again = transitions.retried(after, 1, LATER, fresh=False)

        assert (after.tasks[0].status, after.tasks[0].run_id) == (TaskState.FAILED, None)
        assert (again.tasks[0].status, again.tasks[0].earlier_runs) == (TaskState.PENDING, ("run-1",))

    @pytest.mark.parametrize("change", [{"dod": "Better"}, {"deps": (2,)}, {"scoping_question": "Sure?"}])
    def test_the_same_work_keeps_its_run(self, change: dict[str, Any]) -> None:
        """A failed task keeps its run if the edit concerns only dod, dependencies or a question."""
        after = edited(plan(failed(1), task(2)), 1, **change)

        assert after.task(1).run_id == "run-1"  # type: ignore[union-attr]

    def test_other_dependencies_are_not_forced(self) -> None:
        """A forced start is valid only for the dependencies that the task had then."""
        forced = transitions.forced(plan(running(1), task(2, 1), task(3, 2)), 2, LATER)

        assert states(forced)[2] == "pending"
        assert states(edited(forced, 2, description="Other"))[2] == "pending"
        blocked = edited(edits.with_new_task(forced, task(4, 1), LATER), 2, deps=(4,))
        assert states(blocked)[2] == "blocked"

    def test_an_answer_needs_a_question(self) -> None:
        """Only a task with an open question accepts an answer."""
        before = plan(task(1), asking(2), done(3))

        assert edits.answerable(before, 2).id == 2
        for task_id, code in ((1, "wrong_state"), (3, "task_begun"), (4, "task_not_found")):
            with pytest.raises(errors.ControlRoomError) as refused:
                edits.answerable(before, task_id)
            assert refused.value.code == code


class TestRemovals:
    """Removal of tasks."""

    def test_a_task_that_others_need_is_not_removed(self) -> None:
        """A task that others depend on is not removed, and the refusal names them."""
        with pytest.raises(errors.Conflict) as refused:
            edits.without_task(plan(failed(1), task(2, 1), task(3, 1)), 1, LATER)

        assert refused.value.code == "task_needed"
        assert refused.value.detail["needed_by"] == [2, 3]

    def test_the_last_failure_taken_out(self) -> None:
        """A failed plan with only done tasks left is done."""
        after = edits.without_task(plan(done(1), failed(2), status=PlanState.FAILED), 2, LATER)

        assert (after.status, ids(after)) == (PlanState.DONE, [1])


def test_a_plan_cannot_be_edited_while_the_chief_works() -> None:
    """While the chief is at work, a plan cannot be changed or approved."""
    awaiting = plan(asking(1), status=DRAFT, awaits_chief=True, chief_run_id="run-c")
    for change in (
        lambda: edits.with_new_task(awaiting, task(2), LATER),
        lambda: edits.reordered(awaiting, [1], LATER),
        lambda: edits.editable(awaiting, 1),
        lambda: edits.answerable(awaiting, 1),
        lambda: edits.without_task(awaiting, 1, LATER),
        lambda: transitions.approved(awaiting, LATER),
    ):
        with pytest.raises(errors.WrongState, match="the chief is at work"):
            change()


def test_all_flaws_of_a_new_plan_are_reported() -> None:
    """Wrong numbers, dependencies and cycles of a new plan are reported with their places."""
    tasks = [task(1, 2), task(2, 1), task(2, 7), task(3, 3), task(5, 6), task(6, 5), task(8, 5)]
    with pytest.raises(errors.RequestInvalid) as refused:
        edits.check_graph(tasks)

    assert refused.value.code == "tasks_invalid"
    assert places_and_codes(refused.value) == [
        ("$.tasks[2].id", "duplicate_task"),
        ("$.tasks[2].deps[0]", "unknown_dependency"),
        ("$.tasks[3].deps[0]", "self_dependency"),
        ("$.tasks[0].deps[0]", "dependency_cycle"),
        ("$.tasks[4].deps[0]", "dependency_cycle"),
    ]
    edits.check_graph([task(2, 1), task(1)])
    assert [each.id for each in edits.in_order([task(2, 1), task(3), task(1)])] == [3, 1, 2]
