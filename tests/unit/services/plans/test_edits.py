"""What people change of a plan: every flaw is told at its place, and what has begun stays."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from app import errors
from app.domain.plans import Plan, PlanState, Scoping, TaskState
from app.flows.session_plan import rules, transitions
from app.services.plans import edits, requests
from tests.unit.services.plans.given import LATER, asking, done, failed, plan, running, states, task, told

DRAFT = PlanState.DRAFT


def edited(before: Plan, task_id: int, **fields: Any) -> Plan:
    """Change fields of a task."""
    return edits.with_edit(before, dataclasses.replace(edits.editable(before, task_id), **fields), LATER)


def ids(found: Plan) -> list[int]:
    """Return the order of tasks."""
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

    def test_all_flaws_are_told(self) -> None:
        """What is missing, unknown, named twice and before what it needs is told in one answer."""
        before = plan(task(1), task(2, 1), task(3), task(4, 2, 3), status=DRAFT)
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.reordered(before, [2, 1, 9, 4, 2], LATER)

        assert told(refused.value) == [
            ("$.order", "order_incomplete"),
            ("$.order[0]", "order_breaks_dependency"),
            ("$.order[2]", "order_unknown_task"),
            ("$.order[4]", "order_repeats_task"),
        ]
        assert refused.value.code == "order_incomplete"

    def test_the_same_order_is_no_change(self) -> None:
        """An order that is there already leaves the plan as it is."""
        before = plan(task(1), task(2))

        assert edits.reordered(before, [1, 2], LATER) is before

    def test_a_new_dependency_puts_a_task_behind(self) -> None:
        """A task that now needs a later one stands behind it; the others keep their order."""
        after = edited(plan(task(1), task(2), task(3), task(4)), 1, deps=(3,))

        assert ids(after) == [2, 3, 1, 4]


class TestNewTasks:
    """Tasks that are added."""

    def test_numbers_are_never_given_twice(self) -> None:
        """The number of a removed task is not given again."""
        after = edits.without_task(plan(task(1), task(7)), 7, LATER)

        assert after.highest_task_id == 7
        for number in (7, 3, 1):
            with pytest.raises(errors.RequestInvalid) as refused:
                edits.with_new_task(after, task(number), LATER)
            assert told(refused.value) == [("$.id", "duplicate_task")]
        assert ids(edits.with_new_task(after, task(8, 1), LATER)) == [1, 8]

    def test_numbers_come_to_an_end(self) -> None:
        """No task gets a number that no address can name."""
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.with_new_task(plan(task(999_999)), task(1_000_000), LATER)

        assert told(refused.value) == [("$.id", "invalid")]

    def test_all_flaws_are_told(self) -> None:
        """Wrong number and wrong dependencies are told in one answer, as of the task alone."""
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.with_new_task(plan(task(1), task(2)), task(2, 2, 9, 1, 1), LATER)

        assert refused.value.code == "tasks_invalid"
        assert told(refused.value) == [
            ("$.id", "duplicate_task"),
            ("$.deps[0]", "self_dependency"),
            ("$.deps[1]", "unknown_dependency"),
            ("$.deps[3]", "repeated_dependency"),
        ]

    def test_a_plan_has_a_limit(self) -> None:
        """No task is added to a full plan."""
        before = plan(*(task(number + 1) for number in range(requests.TASKS)))
        with pytest.raises(errors.Conflict) as refused:
            edits.with_new_task(before, task(requests.TASKS + 1), LATER)

        assert refused.value.code == "too_many_tasks"

    def test_a_done_plan_waits_for_a_person(self) -> None:
        """A task added to a done plan makes it paused, and a resume begins it."""
        after = edits.with_new_task(plan(done(1), status=PlanState.DONE), task(2, 1), LATER)

        assert (after.status, states(after)) == (PlanState.PAUSED, {1: "done", 2: "pending"})
        assert [each.id for each in rules.startable(transitions.resumed(after, LATER), 1)] == [2]


class TestEdits:
    """Tasks that are changed."""

    @pytest.mark.parametrize("begun", [running(1), done(1), running(1, run_id=None)])
    def test_what_has_begun_stays(self, begun: Any) -> None:
        """A task that runs or is done is not changed."""
        with pytest.raises(errors.Conflict) as refused:
            edits.editable(plan(begun, task(2)), 1)

        assert refused.value.code == "task_begun"
        assert refused.value.detail["task"] == 1

    def test_a_cycle_is_told_at_the_task(self) -> None:
        """A cycle that an edit would make is told at the dependency that makes it."""
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
        """A failed task that was changed stays failed, and its retry makes a new run."""
        after = edited(plan(failed(1), task(2)), 1, **change)
        again = transitions.retried(after, 1, LATER, fresh=False)

        assert (after.tasks[0].status, after.tasks[0].run_id) == (TaskState.FAILED, None)
        assert (again.tasks[0].status, again.tasks[0].earlier_runs) == (TaskState.PENDING, ("run-1",))

    @pytest.mark.parametrize("change", [{"dod": "Better"}, {"deps": (2,)}, {"scoping_question": "Sure?"}])
    def test_the_same_work_keeps_its_run(self, change: dict[str, Any]) -> None:
        """What the run of a failed task was not made of can be changed, and the run is still sent on."""
        after = edited(plan(failed(1), task(2)), 1, **change)

        assert after.task(1).run_id == "run-1"  # type: ignore[union-attr]

    def test_other_dependencies_are_not_forced(self) -> None:
        """Force holds for the dependencies that a person has seen."""
        forced = transitions.forced(plan(running(1), task(2, 1), task(3, 2)), 2, LATER)

        assert states(forced)[2] == "pending"
        assert states(edited(forced, 2, description="Other"))[2] == "pending"
        blocked = edited(edits.with_new_task(forced, task(4, 1), LATER), 2, deps=(4,))
        assert states(blocked)[2] == "blocked"

    def test_an_answer_needs_a_question(self) -> None:
        """Only a task that asks takes an answer."""
        before = plan(task(1), asking(2), done(3))

        assert edits.answerable(before, 2).id == 2
        for task_id, code in ((1, "wrong_state"), (3, "task_begun"), (4, "task_not_found")):
            with pytest.raises(errors.ControlRoomError) as refused:
                edits.answerable(before, task_id)
            assert refused.value.code == code


class TestRemovals:
    """Tasks that are taken out."""

    def test_what_others_need_stays(self) -> None:
        """A task that others depend on is not removed; they are named."""
        with pytest.raises(errors.Conflict) as refused:
            edits.without_task(plan(failed(1), task(2, 1), task(3, 1)), 1, LATER)

        assert refused.value.code == "task_needed"
        assert refused.value.detail["needed_by"] == [2, 3]

    def test_the_last_failure_taken_out(self) -> None:
        """A failed plan of which only done tasks are left is done."""
        after = edits.without_task(plan(done(1), failed(2), status=PlanState.FAILED), 2, LATER)

        assert (after.status, ids(after)) == (PlanState.DONE, [1])


def test_nobody_disturbs_the_chief() -> None:
    """While the chief is at work nothing of a plan is changed or approved."""
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


def test_a_new_plan_tells_all_its_flaws() -> None:
    """Wrong numbers, dependencies and cycles of a new plan are told at their places."""
    tasks = [task(1, 2), task(2, 1), task(2, 7), task(3, 3), task(5, 6), task(6, 5), task(8, 5)]
    with pytest.raises(errors.RequestInvalid) as refused:
        edits.check_graph(tasks)

    assert refused.value.code == "tasks_invalid"
    assert told(refused.value) == [
        ("$.tasks[2].id", "duplicate_task"),
        ("$.tasks[2].deps[0]", "unknown_dependency"),
        ("$.tasks[3].deps[0]", "self_dependency"),
        ("$.tasks[0].deps[0]", "dependency_cycle"),
        ("$.tasks[4].deps[0]", "dependency_cycle"),
    ]
    edits.check_graph([task(2, 1), task(1)])
    assert [each.id for each in edits.in_order([task(2, 1), task(3), task(1)])] == [3, 1, 2]
