"""The state of a plan from its runs, the tasks that it begins, and its revisions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from app import errors
from app.domain.plans import PlanState, TaskState
from app.domain.states import RunState
from app.flows.session_plan import rules, transitions
from tests.unit.services.plans.given import AT, ERROR, LATER, asking, done, fact, failed, plan, running, states, task


class TestRuns:
    """States of tasks from their runs."""

    def test_a_run_that_ends_well_sets_others_free(self) -> None:
        """A task is done with its run, and its direct dependents become pending at the same time."""
        found = rules.reconciled(plan(running(1), task(2, 1), task(3, 2)), {"run-1": fact(RunState.DONE)})

        assert states(found) == {1: "done", 2: "pending", 3: "blocked"}
        assert found.tasks[0].ended_at == LATER

    @pytest.mark.parametrize("dod", ["", "it is done", ({"check": "file_exists", "path": "a"},)])
    def test_a_run_that_is_done_in_part_marks_its_task(self, dod: Any) -> None:
        """A task with a partial run is marked before checks and reviews, and the mark goes with the run."""
        fact_of_part = fact(RunState.DONE, partial=True)
        found = rules.reconciled(plan(running(1, dod=dod)), {"run-1": fact_of_part}).tasks[0]

        assert found.partial
        assert not transitions.without_run(found).partial

    def test_a_failed_run_blocks_only_the_tasks_that_need_it(self) -> None:
        """A task fails with its run's error, its dependents remain blocked, and other tasks are pending."""
        found = rules.reconciled(plan(running(1), task(2, 1), task(3)), {"run-1": fact(RunState.FAILED, error=ERROR)})

        assert states(found) == {1: "failed", 2: "blocked", 3: "pending"}
        assert found.tasks[0].error == ERROR
        assert found.status is PlanState.RUNNING

    @pytest.mark.parametrize(
        ("status", "code"),
        [(RunState.CANCELLED, "run_cancelled"), (RunState.FAILED, "run_failed"), (None, "run_deleted")],
    )
    def test_a_failure_always_has_a_reason(self, status: RunState | None, code: str) -> None:
        """A task whose run has no error gets one that names the end of the run."""
        (found,) = rules.reconciled(plan(running(1)), {"run-1": fact(status)}).tasks
        error = found.error

        assert error is not None
        assert (error["code"], set(error)) == (code, {"code", "message", "key", "detail"})
        assert "run-1" in error["message"]

    @pytest.mark.parametrize("status", [RunState.PENDING, RunState.RUNNING, RunState.PAUSED, RunState.WAITING])
    def test_a_run_sent_on_by_hand_counts(self, status: RunState) -> None:
        """A failed task whose run was resumed is running again, without its old error and end."""
        found = rules.reconciled(plan(failed(1, ended_at=AT), task(2, 1)), {"run-1": fact(status, ended_at=None)})

        assert states(found) == {1: "running", 2: "blocked"}
        assert (found.tasks[0].error, found.tasks[0].ended_at) == (None, None)

    def test_a_done_task_stays_done(self) -> None:
        """A done task stays done in any state of its run."""
        for status in (None, *RunState):
            assert rules.reconciled(plan(done(1), task(2, 1)), {"run-1": fact(status)}) == plan(done(1), task(2, 1))

    def test_a_failed_task_keeps_its_reason_when_its_run_is_deleted(self) -> None:
        """A failed task does not change when its run is deleted."""
        before = plan(failed(1), task(2))

        assert rules.reconciled(before, {"run-1": fact(None)}) is before

    def test_a_task_without_a_new_fact_does_not_change(self) -> None:
        """A task whose run has no new fact does not change."""
        before = plan(running(1), failed(2), done(3), task(4))

        assert rules.reconciled(before, {"other": fact(RunState.FAILED)}) is before

    def test_a_task_that_is_begun_and_has_no_run_gets_one(self) -> None:
        """Only a running task without a run is waiting for its run's creation."""
        before = plan(done(1), running(2), failed(3), task(4), running(5, run_id=None))

        assert [each.id for each in rules.unbegun(before)] == [5]


class TestByHand:
    """Plans whose file a person wrote."""

    def test_statuses_that_do_not_fit_are_settled(self) -> None:
        """The states of tasks that never began follow from their fields, not from the file."""
        before = plan(
            task(1, status=TaskState.BLOCKED),
            task(2, 1, status=TaskState.PENDING),
            asking(3, status=TaskState.PENDING),
            task(4, status=TaskState.NEEDS_SCOPING),
            task(5, status=TaskState.RUNNING),
        )

        assert states(before) == {1: "pending", 2: "blocked", 3: "needs_scoping", 4: "pending", 5: "pending"}

    def test_a_task_may_be_done_by_hand(self) -> None:
        """A task written as done without a run frees its dependents."""
        assert states(plan(task(1, status=TaskState.DONE), task(2, 1))) == {1: "done", 2: "pending"}

    def test_a_run_by_hand_is_believed(self) -> None:
        """A task with a run is running as long as no fact contradicts, whatever state the file has."""
        assert states(plan(task(1, run_id="run-1"))) == {1: "running"}


class TestStartable:
    """Tasks that can begin."""

    def test_in_their_order_as_far_as_there_is_room(self) -> None:
        """Pending tasks begin in the order of the list, and running tasks use up capacity."""
        before = plan(task(3), running(1), task(2, 1), task(4), asking(5))

        assert [each.id for each in rules.startable(before, 9)] == [3, 4]
        assert [each.id for each in rules.startable(before, 2)] == [3]
        assert rules.startable(before, 1) == rules.startable(before, 0) == []

    @pytest.mark.parametrize("status", [state for state in PlanState if state is not PlanState.RUNNING])
    def test_only_while_the_plan_runs(self, status: PlanState) -> None:
        """A task begins only while its plan runs."""
        before = plan(task(1), status=status)

        assert rules.startable(before, 9) == []
        with pytest.raises(errors.WrongState):
            transitions.begun(before, 1, LATER)

    def test_beginning_names_the_run(self) -> None:
        """A task is running before its run is made, and each run of a task has its own attempt number."""
        begun = transitions.begun(plan(task(1)), 1, LATER)
        made = transitions.with_run(begun, 1, "run-1", LATER)
        lost = rules.reconciled(made, {"run-1": fact(None)})
        again = transitions.begun(transitions.retried(lost, 1, LATER, fresh=True), 1, LATER)

        assert (begun.tasks[0].attempt, begun.tasks[0].run_id, begun.tasks[0].started_at) == (1, None, LATER)
        assert (again.tasks[0].attempt, again.tasks[0].earlier_runs) == (2, ("run-1",))
        with pytest.raises(errors.WrongState):
            transitions.with_run(made, 1, "other", LATER)


class TestRetry:
    """Retries of failed tasks."""

    def test_its_run_is_sent_on(self) -> None:
        """A retry keeps the run, and the plan runs again."""
        after = transitions.retried(plan(failed(1), task(2, 1), status=PlanState.FAILED), 1, LATER, fresh=False)

        assert (after.status, after.tasks[0].status) == (PlanState.RUNNING, TaskState.RUNNING)
        assert (after.tasks[0].run_id, after.tasks[0].attempt, after.tasks[0].error) == ("run-1", 1, None)

    def test_a_fresh_one_begins_by_itself(self) -> None:
        """A fresh retry leaves the old run and makes the task pending."""
        after = transitions.retried(plan(failed(1, started_at=AT, ended_at=AT)), 1, LATER, fresh=True)
        (found,) = after.tasks

        assert (found.status, found.run_id, found.earlier_runs) == (TaskState.PENDING, None, ("run-1",))
        assert (found.error, found.started_at, found.ended_at) == (None, None, None)

    def test_a_forced_task_stays_forced(self) -> None:
        """A forced task stays forced when it is retried."""
        forced = transitions.forced(plan(failed(1), task(2, 1)), 2, LATER)
        tried = transitions.refused(transitions.begun(forced, 2, LATER), 2, ERROR, LATER)

        assert states(forced) == {1: "failed", 2: "pending"}
        assert states(transitions.retried(tried, 2, LATER, fresh=True)) == {1: "failed", 2: "pending"}


class TestFailedPlans:
    """Ways out of a failed plan."""

    def test_done_when_all_that_failed_was_sent_on_by_hand(self) -> None:
        """A failed plan whose failed run was resumed and ended well is done."""
        before = plan(done(1), failed(2), status=PlanState.FAILED)

        assert rules.reconciled(before, {"run-2": fact(RunState.RUNNING)}).status is PlanState.FAILED
        assert rules.reconciled(before, {"run-2": fact(RunState.DONE)}).status is PlanState.DONE

    def test_stays_failed_until_a_person_starts_it(self) -> None:
        """A failed plan with a pending task stays failed until a start."""
        before = plan(failed(1), task(2, 1), status=PlanState.FAILED)
        freed = rules.reconciled(before, {"run-1": fact(RunState.DONE)})

        assert (freed.status, states(freed)) == (PlanState.FAILED, {1: "done", 2: "pending"})
        assert transitions.started(freed, LATER).status is PlanState.RUNNING

    def test_the_chief_is_asked_again(self) -> None:
        """A plan that failed without tasks waits for the chief again, without its error."""
        asked = plan(status=PlanState.DRAFT, awaits_chief=True, chief_run_id="run-c")
        failing = transitions.unplanned(asked, ERROR, LATER)
        again = transitions.asked_again(failing, LATER)

        assert (failing.status, failing.error, failing.awaits_chief) == (PlanState.FAILED, ERROR, False)
        assert (again.status, again.error, again.awaits_chief) == (PlanState.DRAFT, None, True)
        assert transitions.planned(again, [task(1)], LATER).awaits_chief is False


class TestChanges:
    """Revisions of plans."""

    def test_several_moves_can_count_as_one(self) -> None:
        """Several moves can be saved as one revision above the known one."""
        known = plan(task(1), status=PlanState.APPROVED)
        after = transitions.begun(transitions.started(known, LATER), 1, LATER)

        assert after.revision == known.revision + 2
        assert rules.renewed(known, after, LATER).revision == known.revision + 1

    def test_an_unchanged_plan_keeps_its_revision_and_time(self) -> None:
        """An unchanged plan keeps its revision and its time."""
        known = plan(running(1))
        same = dataclasses.replace(known, revision=9, updated_at=LATER)

        assert rules.renewed(known, same, LATER) is known
        assert transitions.started(known, LATER) is known

    def test_a_change_that_missed_another_is_refused(self) -> None:
        """A change with an outdated revision is refused with the current plan."""
        known = plan(task(1))
        rules.expect(known, None)
        rules.expect(known, 1)
        with pytest.raises(errors.Conflict) as refused:
            rules.expect(known, 2)

        assert refused.value.code == "plan_changed"
        assert refused.value.detail == {"plan": known.to_json()}
