"""A session plan whose inputs come from a script, on a disk of lists."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

from app import clock
from app.domain import inputs, operations, plain, plan_operations, plans, records
from app.domain.states import RunState
from app.engine import ports, probes, runner
from app.engine.run_equipment import Equipment
from app.flows.session_plan import driver as session_plan
from tests.unit.engine import logs, samples
from tests.unit.services.plans import given

DRAFT = given.plan(given.task(1), given.task(2, 1), status=plans.PlanState.APPROVED)
STARTED = dataclasses.replace(DRAFT, status=plans.PlanState.RUNNING, revision=2)
ASKED = dataclasses.replace(given.plan(created_by=plans.BY_CHIEF, intent="tidy up"), awaits_chief=True)
DELETED: tuple[Mapping[str, Any], ...] = ({"kind": "delete"}, {"kind": "removed"})


def look(*facts: tuple[str, RunState | None], limit: int = 8) -> dict[str, Any]:
    """Return the input that reports the states of runs."""
    seen = {run_id: {"status": status, "error": None, "ended_at": given.LATER} for run_id, status in facts}
    return {"kind": "look", "facts": seen, "limit": limit, "scoped": None}


CHANGES: tuple[Mapping[str, Any], ...] = (
    {"kind": "change", "plan": STARTED.to_json()},
    look(),
    {"kind": "file", "plan": dataclasses.replace(STARTED, intent="tidy up").to_json()},
    look(),
    look(("run-1", RunState.DONE)),
    look(),
    look(("run-2", RunState.FAILED)),
)
"""From an approved plan to a failed task, with an edit of the file on the way."""

IN_WORDS = dataclasses.replace(
    given.plan(given.task(1, dod="it shines"), given.task(2, dod="it shines"), status=plans.PlanState.APPROVED),
    review="on",
    status=plans.PlanState.RUNNING,
)
"""A plan with tasks that are reviewed."""

REVIEWS: tuple[Mapping[str, Any], ...] = (
    look(limit=2),
    look(limit=2),
    look(("run-1", RunState.DONE), ("run-2", RunState.DONE)),
    look(("review-1", RunState.WAITING), ("review-2", RunState.RUNNING)),
    look(("review-1", RunState.DONE), ("review-2", RunState.FAILED)),
    look(),
)
"""Both tasks are reviewed: a person decides one, and the other review fails."""

FOUND: tuple[Mapping[str, Any], ...] = (look(), look(("run-chief", RunState.DONE)))
"""The chief is asked, and its tasks are taken."""


_OPERATIONS = (
    plan_operations.StartTask,
    plan_operations.StartReview,
    plan_operations.ReadReview,
    plan_operations.AskChief,
    plan_operations.TakeTasks,
)


class Scripted:
    """One plan that takes its inputs from a script, in order."""

    def __init__(self, plan: plans.Plan, *values: Mapping[str, Any]) -> None:
        facts: dict[str, Any] = {"dialect": session_plan.NAME, "recipe_id": session_plan.NAME, "run_id": "sp_1"}
        self.disk = logs.Disk(samples.start(**facts, args={"plan": plan.to_json()}))
        self._values = iter(values)

    async def perform(self, call: ports.Call) -> records.Result:
        """Return the next input, or the result of a plan's operation."""
        operation: Any = call.operation
        output: plain.Json
        match operation:
            case operations.Input():
                output = inputs.Delivery(value=plain.plain(next(self._values)), author="user").output()
            case plan_operations.StartTask():
                output = {"run_id": f"run-{operation.plan['tasks'][0]['id']}"}
            case plan_operations.StartReview():
                output = {"run_id": f"review-{operation.plan['tasks'][0]['id']}"}
            case plan_operations.ReadReview():
                review = {"status": "done", "verdict": "met", "by": "person", "why": "I looked"}
                proposal = {"kind": "remove_task", "task": 2, "fields": {}, "why": "no need", "status": "open"}
                output = {"review": review, "proposals": [proposal]}
            case plan_operations.AskChief():
                output = {"run_id": "run-chief"}
            case _:
                output = {"tasks": [task.to_json() for task in DRAFT.tasks]}
        return records.Result(output=output)

    async def run(self) -> RunState:
        """Continue until the script ends the plan."""
        asked = (*_OPERATIONS, operations.Input)
        equipment = Equipment(
            performers={each.kind: self for each in asked},
            clock=clock.FakeClock(),
            masker=plain.Masker(()),
            probes=probes.NoProbes(),
        )
        log: Any = logs.ListLog(self.disk)
        driver: Any = session_plan.SessionPlan()
        driven = runner.Runner(log, driver, equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(driven.run(), 60)
        return state
