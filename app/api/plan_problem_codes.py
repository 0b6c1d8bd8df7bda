"""Refusals of the routes of session plans, each with an example."""

from __future__ import annotations

from app import errors
from app.api import problems

_PLAN = "sp_5h2m9q0x7c1v8b3n"
_INVALID = "The request is not valid."
_UNFIT = "The request does not fit the present state."
_ABSENT = "There is no such thing."


def _order(code: str, path: str, message: str) -> problems.Problem:
    flaw = errors.Flaw(path=path, code=code, message=message)
    return problems.Problem(status=400, code=code, title=_INVALID, detail=f"{path}: {message}", flaws=[flaw])


EXAMPLES = (
    problems.Problem(
        status=400,
        code="no_chief",
        title=_INVALID,
        detail="no agent of agents.json has the archetype chief, who splits an intent into tasks",
    ),
    problems.Problem(
        status=400,
        code="tasks_invalid",
        title=_INVALID,
        detail="$.tasks[0].deps[0]: these tasks wait for one another: 1 → 2 → 1",
        flaws=[
            errors.Flaw(
                path="$.tasks[0].deps[0]",
                code="dependency_cycle",
                message="these tasks wait for one another: 1 → 2 → 1",
            )
        ],
    ),
    _order("order_incomplete", "$.order", "names every task once; missing: 3"),
    _order("order_unknown_task", "$.order[3]", "there is no task 9"),
    _order("order_repeats_task", "$.order[1]", "task 1 is named twice"),
    _order("order_breaks_dependency", "$.order[0]", "task 2 depends on 1, and cannot stand before"),
    problems.Problem(status=404, code="plan_not_found", title=_ABSENT, detail=f"there is no plan '{_PLAN}'"),
    problems.Problem(
        status=404, code="task_not_found", title=_ABSENT, detail=f"the plan {_PLAN} has no task 9", facts={"task": 9}
    ),
    problems.Problem(
        status=409,
        code="plan_changed",
        title=_UNFIT,
        detail=f"the plan {_PLAN} has been changed meanwhile: its revision is 7",
        facts={"plan": {"session_id": _PLAN, "status": "running", "revision": 7}},
    ),
    problems.Problem(
        status=409,
        code="plan_damaged",
        title=_UNFIT,
        detail=f"the file of the plan '{_PLAN}' cannot be read; nothing was changed",
        facts={"file": f"sessions/{_PLAN}/plan.json"},
    ),
    problems.Problem(
        status=409, code="task_begun", title=_UNFIT, detail="task 1 is done and no more changed", facts={"task": 1}
    ),
    problems.Problem(
        status=409, code="too_many_tasks", title=_UNFIT, detail=f"the plan {_PLAN} has 200 tasks, and cannot have more"
    ),
    problems.Problem(
        status=503,
        code="planner_broken",
        title="The service cannot answer this now.",
        detail=f"the planner broke over {_PLAN}; the log tells why",
    ),
    problems.Problem(
        status=409,
        code="task_needed",
        title=_UNFIT,
        detail="task 1 is needed by 2 and 3",
        facts={"task": 1, "needed_by": [2, 3]},
    ),
)
"""An example of each problem."""
