"""Merging: combine a person's edit of a plan's file with the changes that the plan has had meanwhile."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from app import errors
from app.domain import plan_files
from app.domain.plans import Plan, PlanState, Task, TaskState

T = TypeVar("T", Plan, Task)

_AUTHORS = ("approved_by", "started_by", "changed_by")
"""Authors of orders, which an edit of the file cannot set."""

_PLAN_ASIDE = frozenset(
    ("session_id", "tasks", "revision", "updated_at", "status", "awaits_chief", "chief_run_id", "reviewer", "proposals")
).union(_AUTHORS)
_PROTECTED = ("status", "run_id", "earlier_runs", "attempt", "review", "partial")
"""Fields of a begun task that no edit changes."""


def merged(base: Plan, ours: Plan, theirs: Plan) -> Plan:
    """Return the plan with a person's edit of its file.

    Args:
        base: Content of the file before the edit.
        ours: The current plan.
        theirs: Present content of the file.
    """
    # A number is never reused, since it identifies the task's run.
    highest = max(base.highest_task_id, ours.highest_task_id)
    framed = _fields(base, ours, theirs)
    # A person may have removed the last task; this does not free its number.
    if theirs.highest_task_id < highest:
        framed = dataclasses.replace(framed, last_task_id=highest)
    found = dataclasses.replace(framed, tasks=_tasks(base, ours, theirs))
    try:
        plan_files.from_json(found.to_json())
    except errors.InputRefused:
        # If both changes together make no valid plan, e.g. by a dependency on a removed task, the person's edit wins.
        found = dataclasses.replace(found, tasks=_tasks(ours, ours, theirs))
    newest = max(ours.revision, theirs.revision)
    is_theirs = dataclasses.replace(found, revision=theirs.revision, updated_at=theirs.updated_at) == theirs
    if is_theirs:
        return theirs
    revision = newest + 1 if newest == theirs.revision else newest
    return dataclasses.replace(found, revision=revision, updated_at=max(ours.updated_at, theirs.updated_at))


def without_claimed_end(ours: Plan, edited: Plan) -> Plan:
    """Return an edited plan with our status, if the edit claims an end that the tasks do not show."""
    claims = edited.status in (PlanState.DONE, PlanState.FAILED) and edited.status is not ours.status
    if not claims or (edited.status is PlanState.DONE and all(task.status is TaskState.DONE for task in edited.tasks)):
        return edited
    return dataclasses.replace(edited, status=ours.status)


def _fields(base: Plan, ours: Plan, theirs: Plan) -> Plan:
    names = {each.name for each in dataclasses.fields(Plan)} - _PLAN_ASIDE
    status = ours.status if theirs.status is base.status else theirs.status
    return dataclasses.replace(_three_way(base, ours, theirs, names), status=status)


def _tasks(base: Plan, ours: Plan, theirs: Plan) -> tuple[Task, ...]:
    found = [_task(base.task(task.id), ours.task(task.id), task) for task in theirs.tasks if _remains(base, ours, task)]
    known = {task.id for task in theirs.tasks}
    kept = {task.id for task in ours.tasks if task.id not in known and _is_kept(base, task)}
    return (*found, *(task for task in ours.tasks if task.id in _with_needed(ours, kept) - known))


def _remains(base: Plan, ours: Plan, theirs: Task) -> bool:
    # A task that the plan has removed meanwhile comes back only if the person has changed it.
    return ours.task(theirs.id) is not None or base.task(theirs.id) != theirs


def _is_kept(base: Plan, task: Task) -> bool:
    return base.task(task.id) is None or task.status is TaskState.RUNNING


def _with_needed(plan: Plan, kept: set[int]) -> set[int]:
    found, left = set[int](), [*kept]
    while left:
        task = plan.task(left.pop())
        if task is not None and task.id not in found:
            found.add(task.id)
            left += task.deps
    return found


def _task(base: Task | None, ours: Task | None, theirs: Task) -> Task:
    if ours is None:
        return theirs
    names = {each.name for each in dataclasses.fields(Task)}
    found = _three_way(base or ours, ours, theirs, names)
    # An edit cannot remove the results of its run.
    if ours.status is TaskState.FAILED or ours.begun:
        return dataclasses.replace(found, **{name: getattr(ours, name) for name in _PROTECTED})
    return found


def _three_way(base: T, ours: T, theirs: T, names: set[str]) -> T:
    edited = {name: getattr(theirs, name) for name in names if getattr(theirs, name) != getattr(base, name)}
    return dataclasses.replace(ours, **edited)
