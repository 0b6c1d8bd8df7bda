"""Making: turns requests of people into plans and tasks to be stored."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from app import clock, errors
from app.domain import plain, plans
from app.flows.session_plan import rules
from app.services.plans import edits, requests, scoping, tasks
from app.services.plans.adopt_tasks import Chief
from app.services.plans.requests import NewPlan, NewTask, ScopingAnswer, TaskEdit
from app.services.plans.scoping import Scoper
from app.services.requests import StartRequest
from app.services.runs import Runs

_DIGITS = 24


class Maker:
    """Makes plans and tasks, or reports all flaws of the request."""

    def __init__(self, *, runs: Runs, scoper: Scoper, chief: Chief, ids: clock.Ids) -> None:
        self._runs = runs
        self._scoper = scoper
        self._chief = chief
        self._ids = ids

    def session_id(self, new: NewPlan, removed: int = 0) -> str:
        """Return the id of a new plan; the same key always gives the same id.

        Args:
            removed: Number of removed plans with that key.
        """
        if new.idempotency_key is None:
            return self._ids.token("sp_")
        maker = f"plan#{removed}" if removed else "plan"
        return f"sp_{plain.sha256(f'{maker} {new.idempotency_key}'.encode())[:_DIGITS]}"

    async def plan(self, session_id: str, new: NewPlan, at: str, asked_by: str | None = None) -> plans.Plan:
        """Return a new plan: a draft with its tasks, or one that waits for the chief's tasks.

        Args:
            asked_by: Run whose agent or command makes the request, if it names no parent.

        Raises:
            errors.RequestInvalid: `no_chief`, `tasks_invalid`, or a field is invalid; names every flaw.
            errors.NotReady: the chief's backend cannot work here.
        """
        requests.check(new)
        plan = _frame(session_id, new, at, asked_by)
        plan = dataclasses.replace(plan, runs_above=await self._above(plan, new))
        if not new.tasks:
            self._chief.check()
            return dataclasses.replace(plan, created_by=plans.BY_CHIEF, awaits_chief=True)
        wanted = tasks.numbered(new.tasks)
        edits.check_graph(wanted)
        await self._scoper.refresh()
        found = edits.in_order(await asyncio.to_thread(self._scoped, plan, wanted, new.tasks))
        return rules.reconciled(dataclasses.replace(plan, tasks=found), {})

    async def refuse_unready(self, plan: plans.Plan) -> None:
        """Refuse to start a plan whose tasks would lack a backend here.

        Raises:
            errors.NotReady: names every flaw of every such task.
        """
        await self._scoper.refresh()
        # On a thread, since each task is prepared like its run, which takes time for many.
        await asyncio.to_thread(self._scoper.refuse_unready, plan)

    def task(self, plan: plans.Plan, new: NewTask) -> plans.Task:
        """Return a further task for a plan.

        Raises:
            errors.RequestInvalid: a field is invalid; names every flaw.
        """
        requests.check_task(new)
        task = tasks.made(new, plan.highest_task_id + 1 if new.id is None else new.id)
        return self._scoper.scoped(plan, task, scoping.given("$", _fields(new)))

    def edited(self, plan: plans.Plan, task: plans.Task, edit: TaskEdit) -> plans.Task:
        """Return a task with a person's changes.

        Raises:
            errors.RequestInvalid: as `task`, or no field changes.
        """
        requests.check_edit(edit)
        changes = edit.changes()
        fields = {name: value for name, value in changes.items() if name == "description"}
        fields |= {"dod": tasks.dod(changes["dod"])} if "dod" in changes else {}
        fields |= {"deps": tuple(changes["deps"])} if "deps" in changes else {}
        fields |= {"recipe_id": changes["recipe_id"], "routed": False} if "recipe_id" in changes else {}
        fields |= {"args": self._args(task, changes)}
        asks = changes.get("scoping_question", task.scoping_question)
        # A form may send the present question again, which changes neither the question nor its answer.
        fields |= _question(task, asks) if asks != task.scoping_question else {}
        changed = dataclasses.replace(task, **fields)
        # The new recipe must accept all arguments and checks, not only those in the request.
        given = changes | ({"args": changed.args, "dod": changed.dod} if "recipe_id" in changes else {})
        return self._scoper.scoped(plan, changed, scoping.given("$", given))

    def answered(self, plan: plans.Plan, task: plans.Task, answer: ScopingAnswer) -> plans.Task:
        """Return a task with the answer to its question, and perhaps the next question.

        Raises:
            errors.RequestInvalid: as `task`.
        """
        requests.check_answer(answer)
        given = {"args": answer.args, "recipe_id": answer.recipe_id, "description": answer.answer}
        return self._scoper.scoped(plan, self._scoper.answered(task, answer), scoping.given("$", given))

    async def _above(self, plan: plans.Plan, new: NewPlan) -> int:
        asked = tasks.of_plan(plan, StartRequest(description="a plan"))
        return await self._runs.check(dataclasses.replace(asked, runs_above=new.runs_above))

    def _scoped(
        self, plan: plans.Plan, wanted: Sequence[plans.Task], asked: Sequence[NewTask]
    ) -> tuple[plans.Task, ...]:
        found: list[plans.Task] = []
        refused: list[errors.RequestInvalid] = []
        for index, (task, new) in enumerate(zip(wanted, asked, strict=True)):
            # All tasks are checked, so that one answer names every flaw of the plan.
            try:
                found.append(self._scoper.scoped(plan, task, scoping.given(tasks.PATH.format(index), _fields(new))))
            except errors.RequestInvalid as error:
                refused.append(error)
        if refused:
            raise _together(refused)
        return tuple(found)

    def _args(self, task: plans.Task, changes: Mapping[str, Any]) -> Mapping[str, plain.Json]:
        if "args" in changes:
            args: Mapping[str, plain.Json] = plain.plain(changes["args"])
            return args
        # Arguments that the router found with another text, or for another recipe, are dropped.
        return self._scoper.unrouted(task) if {"description", "recipe_id"} & changes.keys() else task.args


def _frame(session_id: str, new: NewPlan, at: str, asked_by: str | None) -> plans.Plan:
    return plans.Plan(
        session_id=session_id,
        intent=new.intent,
        created_at=at,
        updated_at=at,
        working_dir=new.working_dir,
        labels=dict(new.labels),
        priority=new.priority,
        parent_run_id=new.parent_run_id or asked_by,
        review=new.review,
        request_sha256=new.sha256() if new.idempotency_key else None,
    )


def _fields(new: NewTask) -> dict[str, Any]:
    return {item.name: getattr(new, item.name) for item in dataclasses.fields(new)}


def _question(task: plans.Task, question: str | None) -> dict[str, Any]:
    asked_by = None if question is None else plans.BY_USER
    before = tasks.answered(task)
    return {
        "scoping_question": question,
        "asked_by": asked_by,
        "scoping_answer": None,
        "scoping_before": before,
    }


def _together(refused: Sequence[errors.RequestInvalid]) -> errors.RequestInvalid:
    first = refused[0]
    if all(type(each) is type(first) and each.code == first.code for each in refused):
        kind, facts = type(first), {"code": first.code, "detail": first.detail}
    else:
        kind, facts = errors.RequestInvalid, {"code": "tasks_invalid", "detail": {}}
    return kind(first.message, flaws=[flaw for each in refused for flaw in each.flaws], **facts)
