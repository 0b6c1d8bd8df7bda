"""Tasks: make the request for a task's run, and the task of a plan from its request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from app import errors
from app.domain import plain, plans
from app.services.plans.requests import NewTask
from app.services.requests import StartRequest

PATH = "$.tasks[{}]"  # Position of a task in a request for a new plan, by its index.


def text(task: plans.Task) -> str:
    """Return the text for the run of a task: its description, and the answers to its questions.

    Questions of the system concern recipes and arguments and have no meaning for an agent, so only their answers are
    included.
    """
    answers = (_answer_text(each, task.recipe_id) for each in answered(task))
    return "\n\n".join((task.description, *(words for words in answers if words)))


def answered(task: plans.Task) -> tuple[plans.Scoping, ...]:
    """Return the answered questions about a task, oldest first."""
    if task.scoping_question is None or task.scoping_answer is None:
        return task.scoping_before
    last = plans.Scoping(question=task.scoping_question, answer=task.scoping_answer, asked_by=task.asked_by)
    return (*task.scoping_before, last)


def run_request(plan: plans.Plan, task: plans.Task) -> StartRequest:
    """Return the request for the present run of a task; after a crash the same key finds the same run."""
    asked = StartRequest(
        recipe_id=task.recipe_id,
        description=text(task),
        args=task.args,
        session_plan_task_id=task.id,
        idempotency_key=task_key(plan.session_id, task.id, task.attempt),
    )
    return of_plan(plan, asked)


def of_plan(plan: plans.Plan, asked: StartRequest) -> StartRequest:
    """Return a run's request with the values that all runs of a plan share."""
    return dataclasses.replace(
        asked,
        session_id=plan.session_id,
        working_dir=plan.working_dir,
        labels=plan.labels,
        priority=plan.priority,
        parent_run_id=plan.parent_run_id,
        # The run that requested the plan may be of another project, or may have been deleted since.
        runs_above=plan.runs_above,
    )


def task_key(session_id: str, task_id: int, attempt: int) -> str:
    """Return the idempotency key of a task's run."""
    return f"plan:{session_id}:{task_id}:{attempt}"


def chief_key(session_id: str) -> str:
    """Return the idempotency key of the chief's run for a plan."""
    return f"plan:{session_id}:chief"


def made(new: NewTask, task_id: int, asked_by: str = plans.BY_USER) -> plans.Task:
    """Return a task from its request; it is not known yet whether a recipe fits.

    Args:
        asked_by: Author of its question, if it has one.
    """
    return plans.Task(
        id=task_id,
        description=new.description,
        recipe_id=new.recipe_id,
        args=plain.plain(new.args),
        deps=tuple(new.deps),
        dod=dod(new.dod),
        scoping_question=new.scoping_question,
        asked_by=None if new.scoping_question is None else asked_by,
        idempotency_key=new.idempotency_key,
        request_sha256=new.sha256() if new.idempotency_key else None,
    )


def dod(given: str | Sequence[Mapping[str, plain.Json]]) -> str | tuple[Mapping[str, plain.Json], ...]:
    """Return a definition of done in the form that a task stores; an empty list of checks becomes empty text."""
    return given if isinstance(given, str) else tuple(plain.plain(list(given))) or ""


def numbered(tasks: Sequence[NewTask], asked_by: str = plans.BY_USER) -> tuple[plans.Task, ...]:
    """Return the tasks of a new plan; a task without a number gets the one above the highest before it."""
    found: list[plans.Task] = []
    for new in tasks:
        task_id = max((task.id for task in found), default=0) + 1 if new.id is None else new.id
        found.append(made(new, task_id, asked_by))
    return tuple(found)


def at_place(flaw: errors.Flaw, path: str) -> errors.Flaw:
    """Return a flaw of a run's request as a flaw of the task at a position."""
    return dataclasses.replace(flaw, path=f"{path}{flaw.path[1:]}")


def _answer_text(scoping: plans.Scoping, recipe_id: str | None) -> str:
    if scoping.asked_by != plans.BY_SYSTEM:
        return f"{scoping.question}\n{scoping.answer}"
    return "" if scoping.answer.strip() == recipe_id else scoping.answer


def refusal(error: errors.ControlRoomError) -> Mapping[str, plain.Json]:
    """Return the reason why no run could be started, in the form that a task stores."""
    refused, flaws = error.to_json(), [flaw.to_json() for flaw in getattr(error, "flaws", ())]
    detail: Mapping[str, plain.Json] = plain.plain(refused["detail"] | ({"flaws": flaws} if flaws else {}))
    return refused | {"detail": detail}
