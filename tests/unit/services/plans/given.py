"""Small plans for tests of the rules."""

from __future__ import annotations

from typing import Any

from app import errors
from app.domain import plan_events
from app.domain.plans import Plan, PlanState, Task, TaskState
from app.domain.states import RunState
from app.flows.session_plan import rules

AT = "2026-02-10T14:30:00.000Z"
LATER = "2026-02-10T14:31:00.000Z"
ERROR: dict[str, Any] = {"code": "dod_failed", "message": "not done", "key": None, "detail": {}}


def task(task_id: int, *deps: int, **fields: Any) -> Task:
    """Return a task without a question."""
    given: dict[str, Any] = {"id": task_id, "description": f"Task {task_id}", "recipe_id": "draft", "deps": deps}
    return Task(**(given | fields))


def done(task_id: int, *deps: int, **fields: Any) -> Task:
    """Return a task whose run is done."""
    return task(task_id, *deps, status=TaskState.DONE, run_id=f"run-{task_id}", attempt=1, **fields)


def failed(task_id: int, *deps: int, **fields: Any) -> Task:
    """Return a task whose run has failed."""
    facts = {"status": TaskState.FAILED, "run_id": f"run-{task_id}", "attempt": 1, "error": ERROR}
    return task(task_id, *deps, **(facts | fields))


def running(task_id: int, *deps: int, **fields: Any) -> Task:
    """Return a task whose run is running."""
    facts = {"status": TaskState.RUNNING, "run_id": f"run-{task_id}", "attempt": 1, "started_at": AT}
    return task(task_id, *deps, **(facts | fields))


def asking(task_id: int, *deps: int, **fields: Any) -> Task:
    """Return a task with an open question."""
    return task(task_id, *deps, **({"recipe_id": None, "scoping_question": "Which?", "asked_by": "chief"} | fields))


def plan(*tasks: Task, status: PlanState = PlanState.RUNNING, **fields: Any) -> Plan:
    """Return a plan whose tasks have the states that their fields imply."""
    made = Plan(session_id="sp_1", created_at=AT, updated_at=AT, status=status, tasks=tasks, **fields)
    return rules.reconciled(made, {})


def fact(status: RunState | None, **fields: Any) -> plan_events.RunFact:
    """Return what a plan learns about a run."""
    return plan_events.RunFact(status=status, **({"ended_at": LATER} | fields))


def states(found: Plan) -> dict[int, str]:
    """Return the state of each task of a plan."""
    return {each.id: each.status.value for each in found.tasks}


def places_and_codes(error: errors.ControlRoomError) -> list[tuple[str, str]]:
    """Return places and codes of the flaws in a refusal."""
    return [(flaw.path, flaw.code) for flaw in getattr(error, "flaws", ())]
