"""Rules: the states of a session plan and its tasks, and which tasks can begin.

Pure: plans in, plans out. `transitions` moves a plan or a task from one state to another, `edits` has the changes
that people make.
"""

# The format lists the states of a task but not the transitions between them. If many places set a status, one can
# forget a dependent task, and people change plans while their runs continue.
#
# A task's status is one function of its fields, of the other tasks and of its run, computed anew with every change. A
# started task has the status of its run; `done` is final. For other tasks a question has precedence over a
# dependency. People only set a force, an answer, a retry or an edit. A failed plan whose tasks are all done is done.
# Task numbers are never reused, since the run of a task is found by session, number and attempt.
#
# Price: every change examines all tasks: under a millisecond for two hundred.

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from typing import Any, TypeVar

from app import errors
from app.domain import plain, plan_events, plans, states, task_outputs, task_reviews

RUN_DELETED = "run_deleted"  # Code of a task whose run was deleted before its end.
DOD_FAILED = "task_dod_failed"  # Code of a task whose run is done but fails the task's own checks.
NOT_MET = "task_not_met"  # Code of a task whose run is done, but which a review judged to be not done.
REVIEW_FAILED = "task_review_failed"  # Code of a task whose run is done, but whose review reached no verdict.

OUTPUT_INVALID = "task_output_invalid"
"""Code of a task whose argument names an output in an invalid form."""

OUTPUT_MISSING = "task_output_missing"
"""Code of a task whose argument names an output that an earlier task does not have."""

T = TypeVar("T", plans.Plan, plans.Task, task_reviews.Review)


def reconciled(plan: plans.Plan, runs: Mapping[str, plan_events.RunFact]) -> plans.Plan:
    """Return a plan with every status, including its own, computed from its fields and its runs.

    Revision and times do not change; `renewed` counts a change.

    Args:
        runs: Known states of runs, by their ids; a task whose run is not among them is unchanged.
    """
    begun = [_with_outcome(task, runs, is_reviewed=plan.reviews(task)) for task in plan.tasks]
    done = {task.id for task in begun if task.status is plans.TaskState.DONE}
    tasks = tuple(_replaced(task, status=_status(task, done)) for task in begun)
    found = plan if tasks == plan.tasks else dataclasses.replace(plan, tasks=tasks)
    return _replaced(found, status=derived(found))


def derived(plan: plans.Plan) -> plans.PlanState:
    """Return the state of a plan that follows from the statuses of its tasks.

    A running plan is done when every task is, and failed when none can continue. A failed plan is done when every task
    is, because a person removed the failed task or resumed its run. Only people take a plan out of the other states.
    """
    all_done = all(task.status is plans.TaskState.DONE for task in plan.tasks)
    if plan.status is plans.PlanState.RUNNING and not can_go_on(plan):
        return plans.PlanState.DONE if all_done else plans.PlanState.FAILED
    if plan.status is plans.PlanState.FAILED and plan.tasks and all_done:
        return plans.PlanState.DONE
    return plan.status


def can_go_on(plan: plans.Plan) -> bool:
    """Return whether a task runs, can begin, or only needs an answer."""
    return any(task.status in _LIVING for task in plan.tasks)


def is_ready(plan: plans.Plan, task: plans.Task) -> bool:
    """Return whether all dependencies of a task are done, or a person starts it regardless."""
    return _is_ready(task, {each.id for each in plan.tasks if each.status is plans.TaskState.DONE})


def startable(plan: plans.Plan, limit: int) -> list[plans.Task]:
    """Return the tasks to begin now, in their order; none unless the plan runs.

    Args:
        limit: Most tasks of the plan that may run at the same time, including those that run already.
    """
    if plan.status is not plans.PlanState.RUNNING:
        return []
    # Counted by status: a task whose run is being made counts, too.
    free = limit - sum(task.status is plans.TaskState.RUNNING for task in plan.tasks)
    return [task for task in plan.tasks if task.status is plans.TaskState.PENDING][: max(free, 0)]


def is_settled(plan: plans.Plan) -> bool:
    """Return whether a plan can change only by an action from outside."""
    if plan.awaits_chief or any(task.status is plans.TaskState.RUNNING for task in plan.tasks):
        return False
    return not startable(plan, len(plan.tasks))


def unbegun(plan: plans.Plan) -> list[plans.Task]:
    """Return the tasks whose run is about to be made: `begun` is stored, and `with_run` is not."""
    return [task for task in plan.tasks if task.status is plans.TaskState.RUNNING and task.run_id is None]


def to_check(plan: plans.Plan, runs: Mapping[str, plan_events.RunFact]) -> list[plans.Task]:
    """Return the tasks whose run is done, but not yet checked by the tasks' own checks."""
    running = (task for task in plan.tasks if task.checks and task.status is plans.TaskState.RUNNING)
    return [task for task in running if _is_done(runs, task.run_id)]


def to_review(plan: plans.Plan, runs: Mapping[str, plan_events.RunFact]) -> list[plans.Task]:
    """Return the tasks whose run is done, but whose review has not started."""
    return [task for task in plan.tasks if _awaits_review(plan, task) and _is_done(runs, task.run_id)]


def reviewed(plan: plans.Plan, runs: Mapping[str, plan_events.RunFact]) -> list[tuple[plans.Task, task_reviews.Review]]:
    """Return the tasks whose review has ended, but whose verdict has not been read."""
    running = ((task, task.review) for task in plan.tasks if task.status is plans.TaskState.RUNNING)
    found = [(task, review) for task, review in running if review is not None and is_under_way(review)]
    return [(task, review) for task, review in found if _is_done(runs, review.run_id)]


def is_under_way(review: task_reviews.Review) -> bool:
    """Return whether the run of a review still decides about its task."""
    return review.run_id is not None and review.status is not task_reviews.ReviewState.DONE


def _awaits_review(plan: plans.Plan, task: plans.Task) -> bool:
    awaits = task.review is None or task.review.status is task_reviews.ReviewState.PENDING
    return task.status is plans.TaskState.RUNNING and awaits and plan.reviews(task)


def _is_done(runs: Mapping[str, plan_events.RunFact], run_id: str | None) -> bool:
    fact = runs.get(run_id or "")
    return fact is not None and fact.status is states.RunState.DONE


def outputs_wanted(plan: plans.Plan, task: plans.Task) -> dict[task_outputs.Reference, plain.Object]:
    """Return what to read of earlier runs before a task begins: `{run_id, task}` with `output` or `path`.

    Raises:
        errors.StepError: `task_output_invalid`, an argument is not a valid reference; `task_output_missing`, a task
            that it names is not done.
    """
    try:
        references = task_outputs.references(task.args)
    except ValueError as error:
        message = f"an argument of task {task.id} cannot be resolved: {error}; change the task, and retry it"
        raise errors.StepError(message, code=OUTPUT_INVALID) from error
    wanted: dict[task_outputs.Reference, plain.Object] = {}
    for reference in references:
        earlier = plan.task(reference.task)
        if earlier is None or earlier.run_id is None or earlier.status is not plans.TaskState.DONE:
            if earlier is not None and earlier.status is plans.TaskState.DONE:
                state = "was marked as done by hand, without a run"
            else:
                state = f"{'does not exist' if earlier is None else f'is {earlier.status}'}; retry it when that is done"
            message = f"task {task.id} needs {reference}, and task {reference.task} {state}"
            facts = {"task": reference.task, reference.field: reference.name}
            raise errors.StepError(message, code=OUTPUT_MISSING, detail=facts)
        wanted[reference] = {"run_id": earlier.run_id, "task": earlier.id, reference.field: reference.name}
    return wanted


def renewed(known: plans.Plan, changed: plans.Plan, at: str) -> plans.Plan:
    """Return a changed plan with the next revision; or the known plan if only revision and time
    differ.
    """
    # Compared without revision and time, which differ in every change.
    same = dataclasses.replace(changed, revision=known.revision, updated_at=known.updated_at)
    if same == known:
        return known
    return dataclasses.replace(changed, revision=known.revision + 1, updated_at=at)


def expect(plan: plans.Plan, revision: int | None) -> None:
    """Refuse a change that is based on an older version of the plan.

    Args:
        revision: Revision that the caller has seen; None: any.

    Raises:
        errors.Conflict: `plan_changed`, with the plan.
    """
    if revision not in (None, plan.revision):
        message = f"the plan {plan.session_id} was changed meanwhile; its revision is now {plan.revision}"
        raise errors.Conflict(message, code="plan_changed", detail={"plan": plan.to_json()})


def the_task(plan: plans.Plan, task_id: int) -> plans.Task:
    """Return a task of a plan.

    Raises:
        errors.NotFound: `task_not_found`.
    """
    found = plan.task(task_id)
    if found is None:
        message = f"the plan {plan.session_id} has no task {task_id}"
        raise errors.NotFound(message, code="task_not_found", detail={"session_id": plan.session_id, "task": task_id})
    return found


def changed(plan: plans.Plan, at: str, **fields: Any) -> plans.Plan:
    """Return a plan with other fields, every status reconciled, counted as one change."""
    return renewed(plan, reconciled(dataclasses.replace(plan, **fields), {}), at)


_LIVING = frozenset({plans.TaskState.RUNNING, plans.TaskState.PENDING, plans.TaskState.NEEDS_SCOPING})
_OVER = frozenset({plans.TaskState.DONE, plans.TaskState.FAILED})


def _with_outcome(task: plans.Task, runs: Mapping[str, plan_events.RunFact], *, is_reviewed: bool) -> plans.Task:
    """Return a task with the state of its run; a task without a run, or without a fact about it, is unchanged."""
    if task.status is plans.TaskState.DONE or task.run_id is None:
        return task
    if task.review is not None and is_under_way(task.review):
        # The review decides now; the task's own run has ended.
        return _with_review(task, task.review, runs)
    if task.run_id not in runs:
        return task
    fact = runs[task.run_id]
    if fact.status is states.RunState.DONE:
        return _with_done_run(task, fact, is_checked=bool(task.checks) or is_reviewed)
    # A failed run was removed: the task remains failed.
    if fact.status is None and task.status is plans.TaskState.FAILED:
        return task
    if fact.status is not None and not fact.status.finished:
        return _replaced(task, status=plans.TaskState.RUNNING, error=None, ended_at=None, partial=False)
    why = _why(task.run_id, fact)
    return _replaced(task, status=plans.TaskState.FAILED, error=why, ended_at=fact.ended_at, partial=False)


def _with_done_run(task: plans.Task, fact: plan_events.RunFact, *, is_checked: bool) -> plans.Task:
    code = (task.error or {}).get("code") if task.status is plans.TaskState.FAILED else None
    if code in (NOT_MET, REVIEW_FAILED) or (is_checked and code == DOD_FAILED):
        # Only a retry checks or reviews again.
        return task
    known = _replaced(task, error=None, partial=fact.partial)
    if is_checked:
        return _replaced(known, status=plans.TaskState.RUNNING, ended_at=None)
    return _replaced(known, status=plans.TaskState.DONE, ended_at=fact.ended_at, review=None)


def _with_review(task: plans.Task, review: task_reviews.Review, runs: Mapping[str, plan_events.RunFact]) -> plans.Task:
    fact = runs.get(review.run_id or "")
    if fact is None or (fact.status is None and task.status is plans.TaskState.FAILED):
        return task
    if fact.status in (None, states.RunState.FAILED, states.RunState.CANCELLED):
        failed = _replaced(review, status=task_reviews.ReviewState.FAILED, gate_id=None)
        why = _why_unreviewed(review.run_id or "", fact)
        return _replaced(
            task, status=plans.TaskState.FAILED, error=why, ended_at=fact.ended_at or task.ended_at, review=failed
        )
    waits = fact.status is states.RunState.WAITING
    state = task_reviews.ReviewState.WAITING if waits else task_reviews.ReviewState.RUNNING
    # A run that is being loaded after a restart will ask at the same gate again.
    under_way = _replaced(review, status=state, gate_id=fact.gate_id or review.gate_id if waits else None)
    return _replaced(task, status=plans.TaskState.RUNNING, error=None, ended_at=None, review=under_way)


def _why_unreviewed(run_id: str, fact: plan_events.RunFact) -> Mapping[str, plain.Json]:
    outcome = "was deleted" if fact.status is None else f"is {fact.status}"
    reason = f": {fact.error['message']}" if fact.error is not None else ""
    message = f"its review {run_id} {outcome}{reason}; retry the task to have it reviewed again"
    return errors.RunFailed(message, code=REVIEW_FAILED, detail={"run_id": run_id}).to_json()


def _status(task: plans.Task, done: Container[int]) -> plans.TaskState:
    """Return the state of a task, by the only table of states (execution-modes, appendix G, task states)."""
    if task.status in _OVER:
        return task.status
    # Its run is being made: the attempt is stored before the run has an id.
    if task.run_id is not None or (task.status is plans.TaskState.RUNNING and task.attempt > 0):
        return plans.TaskState.RUNNING
    if task.asks:
        return plans.TaskState.NEEDS_SCOPING
    return plans.TaskState.PENDING if _is_ready(task, done) else plans.TaskState.BLOCKED


def _is_ready(task: plans.Task, done: Container[int]) -> bool:
    return task.forced or all(dep in done for dep in task.deps)


def _why(run_id: str, fact: plan_events.RunFact) -> Mapping[str, plain.Json]:
    if fact.status is None:
        return errors.ControlRoomError(f"its run {run_id} was deleted", code=RUN_DELETED).to_json()
    message = f"its run {run_id} is {fact.status}"
    return fact.error or errors.RunFailed(message, code=f"run_{fact.status}").to_json()


def _replaced(value: T, **fields: Any) -> T:
    same = all(getattr(value, name) == field for name, field in fields.items())
    return value if same else dataclasses.replace(value, **fields)
