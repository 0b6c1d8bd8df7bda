"""The driver: every event of a plan is an input, and every action of a plan is an operation."""

# Why: docs/decisions/0270.

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from app import errors
from app.domain import (
    library,
    operations,
    plain,
    plan_events,
    plan_files,
    plan_operations,
    plans,
    records,
    runs,
    states,
    task_outputs,
    task_reviews,
)
from app.engine import ports
from app.flows.session_plan import merging, rules, transitions

NAME = "session_plan"  # Name of the driver, of its only recipe, and of the inputs of a plan.
MOST_INPUTS = 500  # Inputs after which a plan continues in a new journal.
MOST_PROPOSALS = 50  # Most proposals that a plan stores.
MOST_EARLIER = 500  # Most earlier versions of a plan's file that a later journal gets.


class SessionPlan:
    """The interface of this driver to the engine."""

    name: str = NAME
    driver_version: int = 1

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return an empty list: a plan has no references before its tasks begin."""
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return an empty object: the arguments contain the whole plan."""
        return {}

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Take inputs until the plan is deleted, or continues in a new journal."""
        args: Mapping[str, Any] = ctx.run.args
        course = _Course(ctx, args)
        for number in itertools.count(1):
            over = await course.follow_input(number, last=number > MOST_INPUTS)
            if over is not None:
                return runs.Ending(reason=over)
        raise AssertionError("there is always another number")


class _Course:
    def __init__(self, ctx: ports.Context, args: Mapping[str, Any]) -> None:
        self._ctx = ctx
        self.plan = plan_files.from_json(args["plan"])
        """The current plan."""
        self.on_file: plans.Plan | None = self.plan if args.get("adopted") else None
        """Content of its file according to the journal; None before the file is made."""
        self._earlier: dict[str | None, None] = dict.fromkeys(args.get("earlier", ()))
        """Hashes of the file's earlier contents, in order."""
        self._passes_earlier = "earlier" in args
        """Whether the next journal gets these hashes; journals of earlier driver versions do not pass them on."""
        self._by_person: plans.Plan | None = None
        """The plan, if its content is exactly what a person last wrote to the file."""
        self._attempts: dict[int, int] = {int(each): most for each, most in args.get("attempts", {}).items()}
        """Highest attempt of each task number, including that of tasks that a person has removed and rewritten."""
        self._is_stale = False
        """Whether the file has an earlier version of the plan."""

    async def follow_input(self, number: int, *, last: bool) -> str | None:
        """Wait for an input and carry it out; return why the run is over, if it is."""
        on_file = sha256(self.on_file)
        self._earlier[on_file] = None
        earlier = None
        if last and self._passes_earlier:
            # The next journal begins with the plan alone, and needs the earlier contents of the file.
            earlier = tuple([each for each in self._earlier if each is not None][-MOST_EARLIER:])
        shown = plan_events.Shown(
            plan=self.plan, on_file=on_file, is_last=last, is_stale=self._is_stale, earlier=earlier
        )
        record = await self._ctx.perform(f"input#{number}", operations.Input(name=NAME, shown=shown.to_json()))
        event, known = plan_events.from_json((await self._output(record))["value"]), self.plan
        if not isinstance(event, plan_events.FileEdited):
            # The file is written before the next input is taken.
            self.on_file, self._is_stale = self.plan, False
        match event:
            case plan_events.Changed():
                self.plan = event.plan
            case plan_events.FileEdited():
                self._adopt_file(event)
            case plan_events.Observed():
                await self._observe(event, number, record.completed_at)
                self.plan = rules.renewed(known, self.plan, record.completed_at)
            case plan_events.Deleted():
                return await self._remove(number)
            case plan_events.Continued():
                return "continued"
        return None

    def _adopt_file(self, event: plan_events.FileEdited) -> None:
        at_start, theirs = event.at_start, event.plan
        self._earlier[sha256(self.plan)] = None
        # A power cut can undo replacements of the file, and an editor can save an outdated version. A person who undoes
        # their own edit writes an earlier version, too; but at a start, a power cut may have undone that edit.
        is_ours = at_start or self.plan is not self._by_person
        self._is_stale = at_start is not None and is_ours and sha256(theirs) in self._earlier
        if self._is_stale:
            self.on_file = theirs
            return
        self._merge(theirs, event.seen_at, may_end=event.may_end)
        as_written = dataclasses.replace(self.plan, revision=theirs.revision, updated_at=theirs.updated_at)
        self._by_person = self.plan if as_written == theirs else None

    def _merge(self, theirs: plans.Plan, seen_at: str | None, *, may_end: bool) -> None:
        # A three-way merge. The person has edited the current plan, or an older state that the file still has; later
        # changes of the plan must survive the edit.
        known = self.plan
        # The revision at the beginning of the edit identifies the state that the person saw.
        base = known if self.on_file is None or theirs.revision == known.revision else self.on_file
        found = merging.merged(base, known, theirs)
        if not may_end:
            found = merging.without_claimed_end(known, found)
        self.on_file, self.plan = theirs, rules.reconciled(found, {})
        # A person may leave the revision unchanged; an order for that revision must not be valid after the edit.
        if seen_at is not None and (self.plan != theirs or theirs.revision <= known.revision):
            newest = max(known.revision, theirs.revision)
            self.plan = dataclasses.replace(self.plan, revision=newest + 1, updated_at=seen_at)

    async def _remove(self, number: int) -> str:
        shown = plan_events.Shown(plan=self.plan, on_file=sha256(self.on_file), is_removal=True)
        await self._ctx.perform(f"removal#{number}", operations.Input(name=NAME, shown=shown.to_json()))
        return "deleted"

    # -- observed runs, and what follows from them

    async def _observe(self, event: plan_events.Observed, number: int, at: str) -> None:
        facts = event.facts
        self.plan = rules.reconciled(self.plan, facts)
        for task in rules.to_check(self.plan, facts):
            await self._check(task, number)
        # Read verdicts before new tasks begin: a verdict may let the next task begin.
        for task, review in rules.reviewed(self.plan, facts):
            await self._read_review(task, review, number)
        for task in rules.to_review(self.plan, facts) if event.limit > 0 else ():
            await self._start_review(task, number)
        for task in event.scoped.tasks if event.scoped is not None else ():
            if (known := self.plan.task(task.id)) is not None and not known.begun:
                # A task that has begun keeps its arguments.
                self.plan = self.plan.with_task(dataclasses.replace(task, deps=known.deps))
        self.plan = rules.reconciled(self.plan, {})
        if not self.plan.tasks:
            await self._hear_chief(facts, event.limit > 0, number, at)
        elif event.limit > 0:
            await self._begin(event.limit, event.attempts or {}, at)

    async def _check(self, task: plans.Task, number: int) -> None:
        asked = plan_operations.CheckTask(run_id=task.run_id or "", checks=task.checks)
        record = await self._ctx.perform(f"done{task.id}.{task.attempt}#{number}", asked)
        error: Mapping[str, plain.Json] | None = None if record.error is None else _error(record)
        output = (await self._output(record)) if error is None else {"failed": []}
        if output["failed"]:
            failed = f"task {task.id} is not done, {len(output['failed'])} of {output['checks']} checks failed"
            detail = {"failed_checks": output["failed"]}
            error = errors.RunFailed(f"{failed}: {output['message']}", code=rules.DOD_FAILED, detail=detail).to_json()
        elif error is not None:
            # A retry checks again, as after a check that failed.
            error = {**error, "code": rules.DOD_FAILED, "detail": {"code": error["code"]}}
        self.plan = transitions.checked(self.plan, task.id, error, record.completed_at)

    async def _start_review(self, task: plans.Task, number: int) -> None:
        key = f"review{task.id}.{task.attempt}.{1 if task.review is None else task.review.number}"
        record = await self._ctx.perform(key, plan_operations.StartReview(plan=_frame(self.plan, task)))
        if record.done:
            run_id = (await self._output(record))["run_id"]
            self.plan = transitions.review_begun(self.plan, task.id, run_id, record.completed_at)
        else:
            self._note_unreviewed(task, task.review, _error(record), record.completed_at)

    async def _read_review(self, task: plans.Task, review: task_reviews.Review, number: int) -> None:
        asked = plan_operations.ReadReview(session_id=self.plan.session_id, run_id=review.run_id or "")
        record = await self._ctx.perform(f"verdict{task.id}.{task.attempt}.{review.number}#{number}", asked)
        if not record.done:
            self._note_unreviewed(task, review, _error(record), record.completed_at)
            return
        output = await self._output(record)
        found = plan_files.review({**output["review"], "number": review.number, "run_id": review.run_id})
        error = None if found.verdict is task_reviews.Verdict.MET else _not_met(task, found)
        self.plan = transitions.reviewed(self.plan, task.id, found, error, record.completed_at)
        new = plan_files.proposals([{**each, "id": 1, "after_task": task.id} for each in output["proposals"]])
        kept = task_reviews.numbered(self.plan.proposals, new, MOST_PROPOSALS)
        self.plan = dataclasses.replace(self.plan, proposals=kept)

    def _note_unreviewed(
        self, task: plans.Task, review: task_reviews.Review | None, error: Mapping[str, plain.Json], at: str
    ) -> None:
        known = review or task_reviews.Review(status=task_reviews.ReviewState.FAILED)
        failed = dataclasses.replace(known, status=task_reviews.ReviewState.FAILED, run_id=None, gate_id=None)
        # A retry reviews again, as after a verdict.
        why = {**error, "code": rules.REVIEW_FAILED, "detail": {"code": error["code"], "run_id": known.run_id}}
        self.plan = transitions.reviewed(self.plan, task.id, failed, why, at)

    async def _begin(self, limit: int, attempts: Mapping[int, int], at: str) -> None:
        unbegun = rules.unbegun(self.plan)
        for task in rules.startable(self.plan, limit):
            # Its run is made at the next observation, when the file shows that the task begins.
            above = max(self._attempts.get(task.id, 0), attempts.get(task.id, 0))
            self.plan = transitions.begun(self.plan, task.id, at, above=above)
            # Stored beside the plan: a task that a person removes and writes anew must not find its old run.
            self._attempts[task.id] = rules.the_task(self.plan, task.id).attempt
        for task in unbegun:
            await self._start(task, at)

    async def _start(self, task: plans.Task, at: str) -> None:
        try:
            complete = await self._with_outputs(task)
        except errors.StepError as error:
            self.plan = transitions.refused(self.plan, task.id, {**error.to_json(), "key": None}, at)
            return
        asked = plan_operations.StartTask(plan=_frame(self.plan, complete))
        record = await self._ctx.perform(f"task{task.id}.{task.attempt}", asked)
        if record.done:
            run_id = (await self._output(record))["run_id"]
            self.plan = transitions.with_run(self.plan, task.id, run_id, at)
        else:
            self.plan = transitions.refused(self.plan, task.id, _error(record), record.completed_at)

    async def _with_outputs(self, task: plans.Task) -> plans.Task:
        """Return a task with the outputs of earlier tasks in place of its references.

        Raises:
            errors.StepError: `task_output_invalid`, `task_output_missing`, `task_output_too_large`.
        """
        wanted = rules.outputs_wanted(self.plan, task)
        if not wanted:
            return task
        asked = plan_operations.ReadOutputs(wanted=tuple(wanted.values()))
        record = await self._ctx.perform(f"outputs{task.id}.{task.attempt}", asked)
        if record.error is not None:
            raise errors.StepError(record.error.message, code=record.error.code, detail=record.error.detail)
        values = (await self._output(record))["values"]
        args = task_outputs.replaced(dict(task.args), dict(zip(wanted, values, strict=True)))
        return dataclasses.replace(task, args=args)

    # -- the chief

    async def _hear_chief(self, facts: Mapping[str, plan_events.RunFact], begins: bool, number: int, at: str) -> None:
        run_id = self.plan.chief_run_id
        if self.plan.awaits_chief and run_id is None:
            if begins:
                await self._ask_chief(number)
            return
        fact = facts.get(run_id or "")
        # Without a fact, the chief's run has not been observed yet; the next observation will have one.
        if fact is None or not (self.plan.awaits_chief or self.plan.status is plans.PlanState.FAILED):
            return
        if not self.plan.awaits_chief:
            # A person has resumed the chief's run.
            if fact.status in (None, states.RunState.FAILED, states.RunState.CANCELLED):
                return
            self.plan = transitions.asked_again(self.plan, at)
        if fact.status is states.RunState.DONE:
            await self._adopt_tasks(run_id or "", number)
        elif fact.status is None or fact.status.finished:
            self.plan = transitions.unplanned(self.plan, _why(run_id or "", fact), at)

    async def _ask_chief(self, number: int) -> None:
        asked = plan_operations.AskChief(plan=_frame(self.plan))
        record = await self._ctx.perform(f"chief#{number}", asked)
        if record.done:
            self.plan = dataclasses.replace(self.plan, chief_run_id=(await self._output(record))["run_id"])
        else:
            self.plan = transitions.unplanned(self.plan, _error(record), record.completed_at)

    async def _adopt_tasks(self, run_id: str, number: int) -> None:
        asked = plan_operations.TakeTasks(plan=_frame(self.plan), run_id=run_id)
        record = await self._ctx.perform(f"tasks#{number}", asked)
        if not record.done:
            self.plan = transitions.unplanned(self.plan, _error(record), record.completed_at)
            return
        output = await self._output(record)
        found = plan_files.from_json({**_frame(self.plan), "tasks": output["tasks"]}).tasks
        self.plan = transitions.planned(self.plan, found, record.completed_at)

    async def _output(self, record: records.Record) -> Any:
        if not record.done:
            raise errors.RunFailed(f"{record.key} failed", code="plan_broken", causes=(record.key,), key=record.key)
        return record.output if record.blob is None else await self._ctx.read(record.blob)


def sha256(plan: plans.Plan | None) -> str | None:
    """Return the hash for comparing a plan's content, regardless of its author and formatting."""
    return None if plan is None else plain.sha256(plain.canonical(plan.to_json()))


def _frame(plan: plans.Plan, *tasks: plans.Task) -> dict[str, plain.Json]:
    alone = tuple(dataclasses.replace(task, deps=()) for task in tasks)
    return dataclasses.replace(plan, tasks=alone, reviewer=None, proposals=()).to_json()


def _error(record: records.Record) -> Mapping[str, plain.Json]:
    assert record.error is not None
    return {**record.error.to_json(), "key": None}


def _not_met(task: plans.Task, review: task_reviews.Review) -> Mapping[str, plain.Json]:
    by = "the chief" if review.by == plans.BY_CHIEF else "a person"
    message = f"task {task.id} is not done, as {by} has found: {review.why or 'no reason was given'}"
    detail = {"run_id": review.run_id, "evidence": review.evidence}
    return errors.RunFailed(message, code=rules.NOT_MET, detail=detail).to_json()


def _why(run_id: str, fact: plan_events.RunFact) -> Mapping[str, plain.Json]:
    if fact.error is not None:
        return fact.error
    outcome = "was deleted" if fact.status is None else f"is {fact.status}"
    code = rules.RUN_DELETED if fact.status is None else f"run_{fact.status}"
    return errors.RunFailed(f"the chief's run {run_id} {outcome}", code=code).to_json()
