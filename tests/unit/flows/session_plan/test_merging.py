"""Edits of a plan's file, merged with the plan's changes since."""

from __future__ import annotations

import dataclasses
from typing import Any

from app.domain import plan_files
from app.domain.plans import Plan, PlanState, TaskState
from app.flows.session_plan import merging
from tests.unit.services.plans import given

TWO = given.plan(given.task(1), given.task(2, 1), revision=3)


def edited(plan: Plan, task_id: int, **fields: Any) -> Plan:
    """Return a plan with changed fields of one task."""
    task = plan.task(task_id)
    assert task is not None
    return plan.with_task(dataclasses.replace(task, **fields))


def test_an_edit_of_the_present_plan_is_taken_as_it_is() -> None:
    """If the plan has not changed since, the file becomes the plan, with its revision."""
    theirs = dataclasses.replace(edited(TWO, 2, description="sweep the attic"), other={"mood": "good"})

    assert merging.merged(TWO, TWO, theirs) is theirs


def test_both_changes_count() -> None:
    """The merged plan has both the plan's own changes and a person's edits of the older file."""
    running = given.running(1)
    ours = dataclasses.replace(TWO.with_task(running), revision=5, updated_at=given.LATER)
    theirs = edited(TWO, 2, description="sweep the attic")
    merged = merging.merged(TWO, ours, theirs)

    assert merged.task(1) == running
    assert merged.tasks[1].description == "sweep the attic"
    assert (merged.revision, merged.updated_at) == (5, given.LATER)


def test_an_edit_names_no_author() -> None:
    """The plan keeps the journalled authors of its approval, start and changes, and ignores those in the file."""
    ada, eve = ({"name": name, "claimed": True, "via": "local"} for name in ("Ada", "Eve"))
    ours = dataclasses.replace(TWO, approved_by=ada, changed_by=ada)
    forged = dataclasses.replace(ours, approved_by=eve, started_by=eve, changed_by=None, priority=5)
    merged = merging.merged(ours, ours, forged)

    assert (merged.approved_by, merged.started_by, merged.changed_by) == (ada, None, ada)
    assert (merged.priority, merged.revision) == (5, forged.revision + 1)
    assert merging.merged(ours, ours, dataclasses.replace(ours, priority=5)).revision == ours.revision


def test_an_edit_of_a_begun_task_keeps_its_run() -> None:
    """An edit of a running, done or failed task changes its words, but not its status, run or earlier runs."""
    for task in (given.running(1), given.done(1), given.failed(1)):
        ours = TWO.with_task(dataclasses.replace(task, earlier_runs=("run-0",)))
        theirs = edited(
            ours, 1, status=TaskState.PENDING, run_id=None, earlier_runs=(), attempt=0, description="something else"
        )
        merged = merging.merged(ours, ours, theirs)
        kept = merged.tasks[0]

        assert (kept.status, kept.run_id, kept.earlier_runs, kept.attempt) == (task.status, "run-1", ("run-0",), 1)
        assert kept.description == "something else"
        assert merged.revision == ours.revision + 1


def test_tasks_come_and_go() -> None:
    """A task that a person removes is gone unless it is running; a task added since stays."""
    ours = given.plan(given.task(1), given.running(2), given.task(3), revision=4)
    theirs = dataclasses.replace(TWO, tasks=(given.task(9),))
    merged = merging.merged(TWO, ours, theirs)

    assert [task.id for task in merged.tasks] == [9, 2, 3]


def test_a_removal_keeps_a_running_tasks_dependencies() -> None:
    """A removal keeps a running task and the tasks that it depends on, and frees no number."""
    base = given.plan(given.done(1), given.task(2), given.task(3, 1), given.task(4), revision=3)
    running = dataclasses.replace(given.running(3), deps=(1,))
    ours = dataclasses.replace(base.with_task(running), revision=4)
    merged = merging.merged(base, ours, dataclasses.replace(base, tasks=(given.task(2),)))

    assert plan_files.from_json(merged.to_json()) == merged
    assert ([task.id for task in merged.tasks], merged.highest_task_id) == ([2, 1, 3], 4)


def test_a_task_that_was_removed_meanwhile_stays_away() -> None:
    """A task that the plan has lost returns only if the person has changed it."""
    ours = given.plan(given.task(1), revision=4)

    assert [task.id for task in merging.merged(TWO, ours, edited(TWO, 1, dod="it shines")).tasks] == [1]
    assert [task.id for task in merging.merged(TWO, ours, edited(TWO, 2, dod="it shines")).tasks] == [1, 2]


def test_changes_that_make_no_plan_together() -> None:
    """If both changes together are not a valid plan, for example for a missing dependency, the file wins."""
    ours = given.plan(given.task(2), revision=4)
    theirs = dataclasses.replace(edited(TWO, 2, deps=(1,), dod="it shines"), tasks=TWO.tasks)
    theirs = dataclasses.replace(theirs, tasks=(given.task(1), given.task(2, 1, dod="it shines")))
    merged = merging.merged(TWO, ours, theirs)

    assert all(dep in {task.id for task in merged.tasks} for task in merged.tasks for dep in task.deps)


def test_a_pause_by_hand_counts() -> None:
    """A state that a person changes wins; otherwise the plan keeps its own."""
    paused = dataclasses.replace(TWO, status=PlanState.PAUSED)
    ours = dataclasses.replace(TWO.with_task(given.running(1)), revision=5)

    assert merging.merged(TWO, ours, paused).status is PlanState.PAUSED
    assert merging.merged(paused, ours, paused).status is PlanState.RUNNING
