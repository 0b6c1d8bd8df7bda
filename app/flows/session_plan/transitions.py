"""Transitions: move a session plan, or one of its tasks, from one state to another.

Pure: each function returns the plan to be stored, with every status reconciled and one revision counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from app import errors
from app.domain import plain, plans, task_reviews
from app.flows.session_plan import rules

_AT_WORK = (plans.PlanState.RUNNING, plans.PlanState.FAILED, plans.PlanState.DONE)


def approved(plan: plans.Plan, at: str) -> plans.Plan:
    """Approve a draft, so that it can be started.

    Raises:
        errors.WrongState: it is not a draft, the chief is at work, or there are no tasks.
    """
    _among(plan, {plans.PlanState.DRAFT}, "approved")
    expect_chief_away(plan)
    _with_tasks(plan)
    return rules.changed(plan, at, status=plans.PlanState.APPROVED, error=None)


def started(plan: plans.Plan, at: str) -> plans.Plan:
    """Start a plan, so that its tasks can begin; a running plan is unchanged.

    Raises:
        errors.WrongState: it is a draft, has no tasks, or has failed or is done and no task could continue.
    """
    if plan.status is plans.PlanState.RUNNING:
        return plan
    if plan.status is plans.PlanState.DRAFT:
        raise _wrong(plan, f"the plan {plan.session_id} is a draft; it must be approved before it is started")
    _with_tasks(plan)
    if plan.status in _AT_WORK and not rules.can_go_on(plan):
        raise _wrong(plan, f"the plan {plan.session_id} is {plan.status}, and none of its tasks can continue")
    return rules.changed(plan, at, status=plans.PlanState.RUNNING, error=None)


def paused(plan: plans.Plan, at: str) -> plans.Plan:
    """Pause a plan, so that no further task begins.

    Raises:
        errors.WrongState: it does not run.
    """
    _among(plan, {plans.PlanState.RUNNING}, "paused")
    return rules.changed(plan, at, status=plans.PlanState.PAUSED)


def resumed(plan: plans.Plan, at: str) -> plans.Plan:
    """Resume a paused plan, so that its tasks can begin again.

    Raises:
        errors.WrongState: it is not paused, or has no tasks.
    """
    _among(plan, {plans.PlanState.PAUSED}, "resumed")
    _with_tasks(plan)
    return rules.changed(plan, at, status=plans.PlanState.RUNNING, error=None)


def forced(plan: plans.Plan, task_id: int, at: str) -> plans.Plan:
    """Force a blocked task, so that it can begin although a dependency is not done.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.WrongState: it is not blocked, or the plan is not at work.
    """
    task = _of_plan_at_work(plan, task_id, plans.TaskState.BLOCKED, "forced")
    return _with(plan, dataclasses.replace(task, forced=True), at, plans.PlanState.RUNNING)


def retried(plan: plans.Plan, task_id: int, at: str, *, fresh: bool) -> plans.Plan:
    """Retry a failed task.

    A task that has got an unfinished dependency or an open question since its failure waits for that, and then
    begins anew.

    Args:
        fresh: Whether a new run is made; otherwise its run is resumed, and the task runs from now on.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.WrongState: it has not failed, or the plan is not at work.
    """
    task = _of_plan_at_work(plan, task_id, plans.TaskState.FAILED, "retried")
    # A task without a run, or one that has to wait, begins anew instead of continuing.
    if fresh or task.run_id is None or task.asks or not rules.is_ready(plan, task):
        renewed = dataclasses.replace(without_run(task), status=plans.TaskState.PENDING, error=None, ended_at=None)
        return _with(plan, dataclasses.replace(renewed, started_at=None), at, plans.PlanState.RUNNING)
    review = task_reviews.after_retry(task.review) if plan.reviews(task) else None
    again = dataclasses.replace(task, status=plans.TaskState.RUNNING, error=None, ended_at=None, review=review)
    return _with(plan, again, at, plans.PlanState.RUNNING)


def begun(plan: plans.Plan, task_id: int, at: str, *, above: int = 0) -> plans.Plan:
    """Begin a pending task; its attempt names the run, so that the same run is found after a crash.

    Args:
        above: Highest attempt of an earlier task of that number.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.WrongState: it is not pending, or the plan does not run.
    """
    task = rules.the_task(plan, task_id)
    _among(plan, {plans.PlanState.RUNNING}, "continued")
    _is(plan, task, plans.TaskState.PENDING, "begun")
    # Above every earlier attempt, so that its run is a new one.
    made = dataclasses.replace(task, status=plans.TaskState.RUNNING, attempt=max(task.attempt, above) + 1)
    return _with(plan, dataclasses.replace(made, started_at=at, ended_at=None, error=None), at)


def with_run(plan: plans.Plan, task_id: int, run_id: str, at: str) -> plans.Plan:
    """Note the run that was made for a task.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.WrongState: no run is being made for it.
    """
    task = rules.the_task(plan, task_id)
    _is_being_made(plan, task)
    return _with(plan, dataclasses.replace(task, run_id=run_id), at)


def refused(plan: plans.Plan, task_id: int, error: Mapping[str, plain.Json], at: str) -> plans.Plan:
    """Note that no run can be made for a task.

    Raises:
        errors.NotFound, errors.WrongState: as `with_run`.
    """
    task = rules.the_task(plan, task_id)
    _is_being_made(plan, task)
    return _with(plan, dataclasses.replace(task, status=plans.TaskState.FAILED, error=error, ended_at=at), at)


def checked(plan: plans.Plan, task_id: int, error: Mapping[str, plain.Json] | None, at: str) -> plans.Plan:
    """Note the result of a task's own checks.

    Args:
        error: Why they failed; None: they passed, and the task is done.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.WrongState: it does not run.
    """
    task = rules.the_task(plan, task_id)
    _is(plan, task, plans.TaskState.RUNNING, "checked")
    status = plans.TaskState.DONE if error is None else plans.TaskState.FAILED
    return _with(plan, dataclasses.replace(task, status=status, error=error, ended_at=at), at)


def review_begun(plan: plans.Plan, task_id: int, run_id: str, at: str) -> plans.Plan:
    """Note the run that reviews a task.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.WrongState: it does not run.
    """
    task = rules.the_task(plan, task_id)
    _is(plan, task, plans.TaskState.RUNNING, "reviewed")
    number = 1 if task.review is None else task.review.number
    review = task_reviews.Review(status=task_reviews.ReviewState.RUNNING, number=number, run_id=run_id)
    return _with(plan, dataclasses.replace(task, review=review), at)


def reviewed(
    plan: plans.Plan, task_id: int, review: task_reviews.Review, error: Mapping[str, plain.Json] | None, at: str
) -> plans.Plan:
    """Note the result of a task's review.

    Args:
        error: Why the task has failed; None: it is done.

    Raises:
        errors.NotFound, errors.WrongState: as `checked`.
    """
    return checked(
        plan.with_task(dataclasses.replace(rules.the_task(plan, task_id), review=review)), task_id, error, at
    )


def planned(plan: plans.Plan, tasks: Sequence[plans.Task], at: str) -> plans.Plan:
    """Take over the tasks that the chief made from a plan's intent.

    Raises:
        errors.WrongState: the plan does not await the chief's tasks.
    """
    _awaiting(plan)
    return rules.changed(plan, at, tasks=tuple(tasks), awaits_chief=False, error=None)


def unplanned(plan: plans.Plan, error: Mapping[str, plain.Json], at: str) -> plans.Plan:
    """Note that the chief made no plan.

    Raises:
        errors.WrongState: as `planned`.
    """
    _awaiting(plan)
    return rules.changed(plan, at, status=plans.PlanState.FAILED, awaits_chief=False, error=error)


def asked_again(plan: plans.Plan, at: str) -> plans.Plan:
    """Await the chief again, whose run continues.

    Raises:
        errors.WrongState: the plan has not failed because the chief's tasks are missing.
    """
    _among(plan, {plans.PlanState.FAILED}, "asked for again")
    if plan.tasks or plan.chief_run_id is None:
        raise _wrong(plan, f"the plan {plan.session_id} has not failed for want of the chief's tasks")
    return rules.changed(plan, at, status=plans.PlanState.DRAFT, awaits_chief=True, error=None)


def expect_chief_away(plan: plans.Plan) -> None:
    """Refuse a change while the chief is at work.

    Raises:
        errors.WrongState: the chief is at work.
    """
    if plan.awaits_chief:
        raise _wrong(plan, f"the chief is at work on the plan {plan.session_id}")


def expect_rest(plan: plans.Plan) -> None:
    """Refuse to remove a plan that is at work.

    Raises:
        errors.WrongState: it runs, the chief is at work, or a run of it has not ended.
    """
    expect_chief_away(plan)
    if plan.status is plans.PlanState.RUNNING:
        raise _wrong(plan, f"the plan {plan.session_id} is running: pause it first, then delete it")
    for task in plan.tasks:
        if task.status is plans.TaskState.RUNNING:
            message = f"task {task.id} of the plan {plan.session_id} runs; only a plan that rests is deleted"
            raise _wrong_task(plan, task, f"{message}: let the run {task.deciding_run_id} end, or cancel it")


def without_run(task: plans.Task) -> plans.Task:
    """Return a task whose current run is added to its earlier ones."""
    if task.run_id is None:
        return task
    earlier = (*task.earlier_runs, task.run_id)
    return dataclasses.replace(task, run_id=None, earlier_runs=earlier, review=None, partial=False)


def _with(plan: plans.Plan, task: plans.Task, at: str, status: plans.PlanState | None = None) -> plans.Plan:
    tasks = plan.with_task(task).tasks
    return rules.changed(plan, at, tasks=tasks, status=status or plan.status)


def _of_plan_at_work(plan: plans.Plan, task_id: int, status: plans.TaskState, verb: str) -> plans.Task:
    task = rules.the_task(plan, task_id)
    if plan.status not in _AT_WORK:
        message = f"the plan {plan.session_id} is {plan.status}; a task can be {verb} while it is {_listed(_AT_WORK)}"
        raise _wrong(plan, message)
    _is(plan, task, status, verb)
    return task


def _is(plan: plans.Plan, task: plans.Task, status: plans.TaskState, verb: str) -> None:
    if task.status is not status:
        raise _wrong_task(plan, task, f"task {task.id} is {task.status}; only a {status} task can be {verb}")


def _is_being_made(plan: plans.Plan, task: plans.Task) -> None:
    if task.status is not plans.TaskState.RUNNING or task.run_id is not None:
        raise _wrong_task(plan, task, f"no run is being made for task {task.id}")


def _awaiting(plan: plans.Plan) -> None:
    if not plan.awaits_chief:
        raise _wrong(plan, f"the chief's tasks of the plan {plan.session_id} are not awaited")


def _with_tasks(plan: plans.Plan) -> None:
    if not plan.tasks:
        raise _wrong(plan, f"the plan {plan.session_id} has no tasks")


def _among(plan: plans.Plan, allowed: Collection[plans.PlanState], verb: str) -> None:
    if plan.status not in allowed:
        names = _listed([state for state in plans.PlanState if state in allowed])
        raise _wrong(plan, f"the plan {plan.session_id} is {plan.status}; only one that is {names} can be {verb}")


def _listed(names: Sequence[str]) -> str:
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


def _wrong(plan: plans.Plan, message: str) -> errors.WrongState:
    return errors.WrongState(message, detail={"session_id": plan.session_id, "status": plan.status.value})


def _wrong_task(plan: plans.Plan, task: plans.Task, message: str) -> errors.WrongState:
    facts = {"session_id": plan.session_id, "task": task.id, "status": task.status.value}
    return errors.WrongState(message, detail=facts)
