"""Edits: changes of a session plan and its tasks by people.

Pure: each function returns the plan to be stored, with every status reconciled, and counts one revision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from app import errors
from app.domain import plans, task_graphs, task_outputs
from app.flows.session_plan import rules, transitions
from app.services.plans import requests
from app.services.plans.tasks import text


def graph_flaws(tasks: Sequence[plans.Task]) -> list[errors.Flaw]:
    """Return the flaws of numbers, dependencies and `$task` arguments of new tasks, each at `$.tasks[i].deps[j]`."""
    nodes = _nodes(tasks, "$.tasks[{}]")
    beyond = [_beyond(f"{node.path}.id") for node in nodes if node.id > requests.TASK_IDS[-1]]
    return [*beyond, *(task_graphs.flaws(nodes) or task_outputs.flaws(_users(tasks, [each.path for each in nodes])))]


def check_graph(tasks: Sequence[plans.Task]) -> None:
    """Refuse tasks of a new plan that can never all become done.

    Raises:
        errors.RequestInvalid: `tasks_invalid`; names every flaw.
    """
    _refuse(graph_flaws(tasks), "tasks_invalid")


def in_order(tasks: Sequence[plans.Task]) -> tuple[plans.Task, ...]:
    """Return tasks in an order in which each follows its dependencies, otherwise unchanged."""
    by_id = {task.id: task for task in tasks}
    return tuple(by_id[each] for each in task_graphs.in_order(_nodes(tasks)))


def reordered(plan: plans.Plan, order: Sequence[int], at: str) -> plans.Plan:
    """Reorder the tasks of a plan.

    Args:
        order: Every task number, once.

    Raises:
        errors.RequestInvalid: `order_incomplete`, `order_unknown_task`, `order_repeats_task`,
            `order_breaks_dependency`; names every flaw.
        errors.WrongState: the chief is at work.
    """
    transitions.expect_chief_away(plan)
    flaws = [*_order_flaws(plan, order)]
    _refuse(flaws, flaws[0].code if flaws else "")
    return rules.changed(plan, at, tasks=tuple(rules.the_task(plan, each) for each in order))


def with_new_task(plan: plans.Plan, task: plans.Task, at: str) -> plans.Plan:
    """Append a task to a plan; a done plan becomes paused.

    Args:
        task: The task to be stored; its number is above `plan.highest_task_id`.

    Raises:
        errors.RequestInvalid: `tasks_invalid`, its number or dependencies are invalid; names every flaw.
        errors.Conflict: `too_many_tasks`.
        errors.WrongState: the chief is at work.
    """
    transitions.expect_chief_away(plan)
    if len(plan.tasks) >= requests.TASKS:
        message = f"the plan {plan.session_id} has {requests.TASKS} tasks, and cannot have more"
        raise errors.Conflict(message, code="too_many_tasks", detail={"session_id": plan.session_id})
    # A repeated request finds its own task among them.
    others = [each for each in plan.tasks if each.id != task.id]
    _refuse([*_number_flaws(plan, task), *_flaws_at(others, (*others, task), task)], "tasks_invalid")
    status = plans.PlanState.PAUSED if plan.status is plans.PlanState.DONE else plan.status
    return rules.changed(plan, at, tasks=(*plan.tasks, task), status=status)


def is_added(plan: plans.Plan, new: requests.NewTask) -> bool:
    """Return whether an earlier request with the same key added the task, whatever its state is now.

    Raises:
        errors.Conflict: `idempotency_conflict`.
    """
    known = next((task for task in plan.tasks if task.idempotency_key == new.idempotency_key), None)
    if known is None or new.idempotency_key is None:
        return False
    if known.request_sha256 != new.sha256():
        message = f"the idempotency key belongs to another request, which added task {known.id}"
        facts = {"session_id": plan.session_id, "task": known.id}
        raise errors.Conflict(message, code="idempotency_conflict", detail=facts)
    return True


def editable(plan: plans.Plan, task_id: int) -> plans.Task:
    """Return a task that may be changed.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.Conflict: `task_begun`, it runs or is done.
        errors.WrongState: the chief is at work.
    """
    task = rules.the_task(plan, task_id)
    transitions.expect_chief_away(plan)
    if task.begun:
        raise _begun(plan, task, "can no longer be changed")
    return task


def with_edit(plan: plans.Plan, changed: plans.Task, at: str) -> plans.Plan:
    """Replace the task with the same number.

    A failed task stays failed until it is retried; if it differs from the task of its run, the retry starts a new run.
    A task that now depends on a later one is moved behind that one.

    Raises:
        errors.NotFound, errors.Conflict, errors.WrongState: as `editable`.
        errors.RequestInvalid: `tasks_invalid`, its dependencies are invalid; names every flaw.
    """
    known = editable(plan, changed.id)
    tasks = plan.with_task(_kept(known, changed)).tasks
    _refuse(_flaws_at(plan.tasks, tasks, changed), "tasks_invalid")
    return rules.changed(plan, at, tasks=in_order(tasks))


def answerable(plan: plans.Plan, task_id: int) -> plans.Task:
    """Return a task whose question can be answered.

    Raises:
        errors.NotFound, errors.Conflict: as `editable`.
        errors.WrongState: it has no open question, or the chief is at work.
    """
    task = editable(plan, task_id)
    if not task.asks:
        facts = {"session_id": plan.session_id, "task": task.id, "status": task.status.value}
        raise errors.WrongState(f"no question is open about task {task.id}", detail=facts)
    return task


def is_repeated(task: plans.Task, answered: plans.Task) -> bool:
    """Return whether an answer repeats the previous one and leaves the system's question open.

    Args:
        task: The task with its open question.
        answered: The task with the answer.
    """
    known, now = task.scoping_before, answered.scoping_before
    again = bool(known) and len(now) > len(known) and now[-1].answer == known[-1].answer
    same = (task.recipe_id, task.args) == (answered.recipe_id, answered.args)
    return again and same and task.asked_by == plans.BY_SYSTEM and answered.asks


def with_answer(plan: plans.Plan, answered: plans.Task, at: str) -> plans.Plan:
    """Replace a task that has a question by the same task with an answer.

    Raises:
        errors.NotFound, errors.Conflict, errors.WrongState: as `answerable`.
    """
    answerable(plan, answered.id)
    return with_edit(plan, answered, at)


def without_task(plan: plans.Plan, task_id: int, at: str) -> plans.Plan:
    """Remove a task from a plan; its number is never used again.

    Raises:
        errors.NotFound: `task_not_found`.
        errors.Conflict: `task_begun`, it runs; `task_needed`, others depend on it, `needed_by`.
        errors.WrongState: the chief is at work.
    """
    task = rules.the_task(plan, task_id)
    transitions.expect_chief_away(plan)
    if task.status is plans.TaskState.RUNNING:
        raise _begun(plan, task, "cannot be removed")
    needed_by = task_graphs.dependents(_nodes(plan.tasks), task_id)
    if needed_by:
        message = f"task {task_id} is needed by {', '.join(str(each) for each in needed_by)}"
        facts = {"session_id": plan.session_id, "task": task_id, "needed_by": needed_by}
        raise errors.Conflict(message, code="task_needed", detail=facts)
    left = tuple(each for each in plan.tasks if each.id != task_id)
    return rules.changed(plan, at, tasks=left, last_task_id=plan.highest_task_id)


def _kept(known: plans.Task, changed: plans.Task) -> plans.Task:
    """Return a changed task with those parts of its past that are still valid."""
    forced = known.forced and known.deps == changed.deps
    task = dataclasses.replace(changed, status=known.status, forced=forced)
    return task if _work(known) == _work(changed) else transitions.without_run(task)


def _work(task: plans.Task) -> tuple[object, ...]:
    """Return the fields that determine a task's run."""
    return (text(task), task.recipe_id, task.args)


def _nodes(tasks: Sequence[plans.Task], path: str = "$") -> list[task_graphs.Node]:
    return [task_graphs.Node(id=task.id, deps=task.deps, path=path.format(at)) for at, task in enumerate(tasks)]


def _flaws_at(known: Sequence[plans.Task], tasks: Sequence[plans.Task], task: plans.Task) -> list[errors.Flaw]:
    """Return the flaws in a graph that was sound before the request changed one of its tasks.

    Args:
        known: The tasks before the change.
    """
    wrong = task_graphs.flaws(_nodes(tasks), reported_at=task.id)
    if wrong:
        return wrong
    # References of other tasks may have been broken before; this change is refused only for those that it breaks.
    found, before = _reference_flaws(tasks, task.id), _reference_flaws(known, task.id)
    own = [flaw for flaw in found if flaw.path.startswith("$")]
    lost = [flaw for flaw in found if flaw not in before and flaw not in own]
    return own + [dataclasses.replace(flaw, path="$.deps") for flaw in lost]


def _reference_flaws(tasks: Sequence[plans.Task], task_id: int) -> list[errors.Flaw]:
    return task_outputs.flaws(_users(tasks, ["$" if each.id == task_id else f"{each.id}" for each in tasks]))


def _users(tasks: Sequence[plans.Task], paths: Sequence[str]) -> list[task_outputs.User]:
    return [
        task_outputs.User(id=task.id, deps=task.deps, args=task.args, path=path)
        for task, path in zip(tasks, paths, strict=True)
    ]


def _number_flaws(plan: plans.Plan, task: plans.Task) -> Iterator[errors.Flaw]:
    if task.id <= plan.highest_task_id:
        message = f"must be above {plan.highest_task_id}: numbers are never given twice"
        yield errors.Flaw(path="$.id", code="duplicate_task", message=message)
    elif task.id > requests.TASK_IDS[-1]:
        yield _beyond("$.id")


def _beyond(path: str) -> errors.Flaw:
    return errors.Flaw(path=path, message=f"no number is left for it: the highest is {requests.TASK_IDS[-1]}")


def _order_flaws(plan: plans.Plan, order: Sequence[int]) -> Iterator[errors.Flaw]:
    known, places = {task.id: task for task in plan.tasks}, {each: at for at, each in reversed([*enumerate(order)])}
    missing = [task_id for task_id in known if task_id not in places]
    if missing:
        message = f"the order must name every task once; missing: {', '.join(str(each) for each in missing)}"
        yield errors.Flaw(path="$.order", code="order_incomplete", message=message)
    for at, each in enumerate(order):
        path = f"$.order[{at}]"
        if each not in known:
            yield errors.Flaw(path=path, code="order_unknown_task", message=f"there is no task {each}")
        elif places[each] != at:
            yield errors.Flaw(path=path, code="order_repeats_task", message=f"task {each} is named twice")
        else:
            later = [dep for dep in known[each].deps if places.get(dep, -1) > at]
            if later:
                reason = (
                    f"task {each} depends on {', '.join(str(dep) for dep in later)}, and cannot be placed before it"
                )
                yield errors.Flaw(path=path, code="order_breaks_dependency", message=reason)


def _refuse(flaws: Sequence[errors.Flaw], code: str) -> None:
    if flaws:
        raise errors.RequestInvalid(f"{flaws[0].path}: {flaws[0].message}", code=code, flaws=flaws)


def _begun(plan: plans.Plan, task: plans.Task, refusal: str) -> errors.Conflict:
    facts = {"session_id": plan.session_id, "task": task.id, "status": task.status.value}
    return errors.Conflict(f"task {task.id} is {task.status} and {refusal}", code="task_begun", detail=facts)
