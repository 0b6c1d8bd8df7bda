"""Session plans: all their operations, for every interface (execution-modes, Session Plan)."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from app import errors
from app.domain import authors, inputs, plain, plans
from app.flows.session_plan import rules, transitions
from app.services import faults
from app.services.plans import edits, reviews
from app.services.plans.adopt_tasks import Chief
from app.services.plans.facts import Facts
from app.services.plans.making import Maker
from app.services.plans.plan_inputs import OpenPlan
from app.services.plans.plan_queries import PlanQueries
from app.services.plans.plan_runs import PlanRuns
from app.services.plans.planner import Planner
from app.services.plans.repository import PlanRepository
from app.services.plans.requests import Created, NewPlan, NewTask, ScopingAnswer, TaskEdit, refuse
from app.services.plans.reviews import Reviews

_Change: TypeAlias = Callable[[plans.Plan, str], plans.Plan | Awaitable[plans.Plan]]


class Plans(PlanQueries):
    """Make, show and change session plans.

    Every change is durable before it is answered, and made to the plan as its runs have it by then. Any of them is
    refused with `plan_not_found`; `plan_damaged`; `plan_changed`, with the plan, if its revision is no longer the one
    that was seen; `wrong_state`; and `no_room`.
    """

    def __init__(
        self,
        *,
        repository: PlanRepository,
        maker: Maker,
        chief: Chief,
        plan_runs: PlanRuns,
        facts: Facts,
        planner: Planner,
        reviews: Reviews,
    ) -> None:
        super().__init__(repository)
        self._maker = maker
        self._chief = chief
        self._plan_runs = plan_runs
        self._facts = facts
        self._planner = planner
        self._reviews = reviews
        self._author = authors.LOCAL

    def by(self, author: authors.Author) -> Plans:
        """Return the same plans, whose changes are recorded as an author's."""
        mine = copy.copy(self)
        mine._author = author
        return mine

    async def create(self, new: NewPlan, asked_by: str | None = None) -> Created:
        """Make a plan of tasks, or one that the chief makes of an intent; a repetition with the same key finds it.

        Args:
            asked_by: Run whose agent or command asks, if the request names no parent.

        Raises:
            errors.RequestInvalid, errors.Conflict: flaws; `idempotency_conflict`.
            errors.DiskFull: it cannot be written.
        """
        with faults.as_errors():
            # A deleted plan leaves its id used up; its key makes another one then.
            for removed in itertools.count():
                session_id = self._maker.session_id(new, removed)
                async with self._repository.turn(session_id):
                    known = await self._repository.find(session_id)
                    if known is not None:
                        return _repeated(known, new)
                    if not await self._repository.was_removed(session_id):
                        plan = await self._maker.plan(session_id, new, self._repository.now(), asked_by)
                        plan = dataclasses.replace(self._reviews.announced(plan), changed_by=self._author.to_json())
                        return Created(plan=await self._made(plan), existed=False)
        raise AssertionError("there is always another id")

    async def delete(self, session_id: str, revision: int | None = None) -> None:
        """Delete a plan that rests; its runs stay, and so do their receipts and issues. Its key may be used again.

        One whose file is gone is missed no more.
        """
        with faults.as_errors():
            async with self._repository.turn(session_id):
                if await self._repository.was_lost(session_id):
                    await self._repository.remove(session_id)
                    await self._repository.audit.append(self._author, "plan.deleted", session_id)
                    self._planner.look_at(session_id)
                else:
                    await self._removed(session_id, revision)

    async def wait(self, session_id: str, seconds: float, known: int | None = None) -> plans.Plan:
        """Return a plan as soon as its revision differs from the one known; one at rest is not waited for.

        Args:
            seconds: Longest wait.
            known: Revision that the caller has; None: the present one.

        Raises:
            errors.NotFound, errors.Conflict: as `show`.
        """
        return await self._planner.changed(session_id, seconds, known)

    async def rested(self, session_id: str) -> plans.Plan:
        """Continue a plan, and return it when nothing of it runs or can begin by itself, or when this process
        stops working on it. A run that is paused, or that waits for a person, does not run.

        Raises:
            errors.NotFound, errors.Conflict: as `show`.
            errors.Unavailable: `planner_broken`.
        """
        self._planner.look_at(session_id)
        return await self._planner.rested(session_id)

    # -- the plan

    async def approve(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Say that a draft is good as it is.

        Raises:
            errors.NotReady: a task's run would lack a backend here.
        """
        return await self._change(session_id, revision, partial(self._ready, move=transitions.approved))

    async def start(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Begin an approved plan, or continue a paused, failed or finished one; if the chief has made no tasks, it is
        asked again.

        Raises:
            errors.RequestInvalid: `no_chief`.
            errors.NotReady: a task's run, or the chief, would lack a backend here.
        """
        sent_on = set[str]()
        return await self._change(session_id, revision, partial(self._started, sent_on=sent_on))

    async def pause(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Begin no further task."""
        return await self._change(session_id, revision, transitions.paused)

    async def resume(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Continue a paused plan.

        Raises:
            errors.NotReady: a task's run would lack a backend here.
        """
        return await self._change(session_id, revision, partial(self._ready, move=transitions.resumed))

    async def edit(
        self,
        session_id: str,
        revision: int | None = None,
        *,
        order: Sequence[int] | None = None,
        review: str | None = None,
    ) -> plans.Plan:
        """Put the tasks in another order, or say whether words of done are reviewed; a review under way continues.

        Raises:
            errors.RequestInvalid: `order_incomplete`, `order_breaks_dependency`, numbers that are none of its tasks, or
                nothing to change.
        """
        if order is None and review is None:
            refuse([errors.Flaw(path="$.order", message="order or review is required", code="missing")])

        def change(plan: plans.Plan, at: str) -> plans.Plan:
            if order is not None:
                plan = edits.reordered(plan, order, at)
            return plan if review is None else rules.changed(plan, at, review=review)

        return await self._change(session_id, revision, change)

    async def accept(self, session_id: str, proposal_id: int, revision: int | None = None) -> plans.Plan:
        """Make a change that the chief has proposed, as the ordinary edit that it is.

        Raises:
            errors.NotFound: `proposal_not_found`, or as the edit.
            errors.Conflict: `proposal_decided`, or as the edit.
            errors.RequestInvalid: as the edit.
        """
        return await self._change(session_id, revision, lambda plan, at: self._reviews.accepted(plan, proposal_id, at))

    async def dismiss(self, session_id: str, proposal_id: int, revision: int | None = None) -> plans.Plan:
        """Dismiss a change that the chief has proposed.

        Raises:
            errors.NotFound: `proposal_not_found`.
            errors.Conflict: `proposal_decided`.
        """
        return await self._change(session_id, revision, lambda plan, at: reviews.dismissed(plan, proposal_id))

    # -- its tasks

    async def add_task(self, session_id: str, new: NewTask, revision: int | None = None) -> Created:
        """Put a task behind the others; the plan's highest number is its. A repetition with the same key finds it.

        Raises:
            errors.RequestInvalid: it cannot be a task of the plan; with every flaw found.
            errors.Conflict: `idempotency_conflict`, `too_many_tasks`.
        """
        existed = False

        async def change(plan: plans.Plan, at: str) -> plans.Plan:
            nonlocal existed
            existed = edits.is_added(plan, new)
            if existed:
                return plan
            # A repetition names the revision that was seen before the first request, so this comes second.
            rules.expect(plan, revision)
            transitions.expect_chief_away(plan)
            return edits.with_new_task(plan, await asyncio.to_thread(self._maker.task, plan, new), at)

        return Created(plan=await self._change(session_id, None, change), existed=existed)

    async def edit_task(self, session_id: str, task_id: int, edit: TaskEdit, revision: int | None = None) -> plans.Plan:
        """Change a task that has not begun, or has failed.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.RequestInvalid: it cannot be a task of the plan; with every flaw found.
            errors.Conflict: `task_begun`.
        """

        async def change(plan: plans.Plan, at: str) -> plans.Plan:
            task = edits.editable(plan, task_id)
            return edits.with_edit(plan, await asyncio.to_thread(self._maker.edited, plan, task, edit), at)

        return await self._change(session_id, revision, change)

    async def remove_task(self, session_id: str, task_id: int, revision: int | None = None) -> plans.Plan:
        """Take a task out of a plan.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.Conflict: `task_begun`; `task_needed`, `needed_by`.
        """
        return await self._change(session_id, revision, lambda plan, at: edits.without_task(plan, task_id, at))

    async def answer(
        self, session_id: str, task_id: int, new: ScopingAnswer, revision: int | None = None
    ) -> plans.Plan:
        """Answer the open question about a task; where that leaves something open, the next one is asked.
        A repetition of the answer before, which says nothing to the next question, changes nothing.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.RequestInvalid: recipe or arguments of the answer cannot be; with every flaw found.
            errors.Conflict: `task_begun`.
        """

        async def change(plan: plans.Plan, at: str) -> plans.Plan:
            task = edits.answerable(plan, task_id)
            answered = await asyncio.to_thread(self._maker.answered, plan, task, new)
            return plan if edits.is_repeated(task, answered) else edits.with_answer(plan, answered, at)

        return await self._change(session_id, revision, change)

    async def force_start(self, session_id: str, task_id: int, revision: int | None = None) -> plans.Plan:
        """Let a blocked task be begun although something that it depends on is not done.

        Raises:
            errors.NotFound: `task_not_found`.
        """
        return await self._change(session_id, revision, lambda plan, at: transitions.forced(plan, task_id, at))

    async def retry(
        self, session_id: str, task_id: int, fresh: bool = False, revision: int | None = None
    ) -> plans.Plan:
        """Try a failed task again: its run is sent on, so that what it has done is not done again.

        Args:
            fresh: Whether it gets a new run instead. It gets one, too, where it was changed or its run is gone.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.ControlRoomError: its run cannot be sent on.
        """
        change = partial(self._retried, task_id=task_id, fresh=fresh, sent_on=set())
        return await self._change(session_id, revision, change)

    async def _made(self, plan: plans.Plan) -> plans.Plan:
        session_id = plan.session_id
        self._planner.let_begin(session_id)
        await self._plan_runs.make(plan)
        while True:
            opened = await self._planner.commands.shown(session_id)
            if not opened.plan.awaits_chief or opened.plan.chief_run_id is not None:
                return opened.plan
            await self._planner.commands.after(session_id, opened, self._planner.commands.following(session_id, opened))

    async def _removed(self, session_id: str, revision: int | None) -> None:
        await self._repository.get(session_id)
        while True:
            try:
                opened = await self._planner.commands.opened(session_id)
            except errors.NotFound:
                if await self._repository.was_removed(session_id):
                    # By an order that an earlier process took and could not carry out.
                    return
                raise
            rules.expect(opened.plan, revision)
            transitions.expect_rest(await self._facts.reconciled(opened.plan))
            if await self._delivered(session_id, opened, {"kind": "delete"}):
                await self._repository.audit.append(self._author, "plan.deleted", session_id)
                await self._planner.commands.ended(session_id)
                return
            await self._planner.commands.after(session_id, opened, self._planner.commands.following(session_id, opened))

    async def _change(self, session_id: str, revision: int | None, change: _Change) -> plans.Plan:
        with faults.as_errors():
            async with self._repository.turn(session_id):
                return await self._changed(session_id, revision, change)

    async def _changed(self, session_id: str, revision: int | None, change: _Change) -> plans.Plan:
        # A loop: another input may come first, and the change is then made on what that left.
        while True:
            opened = await self._planner.commands.opened(session_id)
            rules.expect(opened.plan, revision)
            made = change(await self._facts.reconciled(opened.plan), self._repository.now())
            changed = made if isinstance(made, plans.Plan) else await made
            renewed = rules.renewed(opened.plan, self._reviews.announced(changed), self._repository.now())
            if renewed is opened.plan:
                return renewed
            following = self._planner.commands.following(session_id, opened)
            value = {"kind": "change", "plan": renewed.signed(opened.plan, self._author).to_json()}
            delivered = await self._delivered(session_id, opened, value)
            try:
                plan = await self._planner.commands.after(session_id, opened, following)
            except errors.DiskFull as error:
                if delivered:
                    told = "the change is journalled and takes effect once plan.json can be written"
                    raise errors.DiskFull(f"{told}: {error.message}", detail=error.detail) from error
                raise
            if delivered:
                return plan

    async def _delivered(self, session_id: str, opened: OpenPlan, value: plain.Json) -> bool:
        """Deliver an input that was made on a plan as it is shown; false where another input came first."""
        delivery = inputs.Delivery(value=value, author=self._author)
        # Once it is journalled it counts, so a refusal must come first.
        await self._repository.try_writing(session_id)
        try:
            await self._plan_runs.deliver(session_id, opened.key, delivery)
        except (errors.Conflict, errors.NotFound) as error:
            if error.code not in ("input_decided", "input_not_found"):
                raise
            return False
        return True

    async def _ready(self, plan: plans.Plan, at: str, move: Callable[[plans.Plan, str], plans.Plan]) -> plans.Plan:
        changed = move(plan, at)
        await self._maker.refuse_unready(changed)
        return changed

    async def _started(self, plan: plans.Plan, at: str, sent_on: set[str]) -> plans.Plan:
        if plan.status is plans.PlanState.DRAFT and plan.chief_run_id in sent_on:
            # By this very request: the plan has seen its chief continue before the request's own note came.
            return plan
        if plan.status is not plans.PlanState.FAILED or plan.tasks or plan.created_by != plans.BY_CHIEF:
            return await self._ready(plan, at, transitions.started)
        self._chief.check()
        run_id = plan.chief_run_id
        if run_id is not None and await self._facts.sent_on(run_id):
            sent_on.add(run_id)
        else:
            run_id = None
        return rules.changed(plan, at, status=plans.PlanState.DRAFT, awaits_chief=True, chief_run_id=run_id, error=None)

    async def _retried(self, plan: plans.Plan, at: str, task_id: int, fresh: bool, sent_on: set[str]) -> plans.Plan:
        if rules.the_task(plan, task_id).run_id in sent_on:
            # By this very request, whose note the file did not take.
            goes_on = plan.status is plans.PlanState.FAILED and rules.can_go_on(plan)
            return transitions.started(plan, at) if goes_on else plan
        # Whether it may be is seen before anything is done.
        changed = transitions.retried(plan, task_id, at, fresh=fresh)
        run_id = rules.the_task(changed, task_id).run_id
        if run_id is None:
            return changed
        if await self._facts.sent_on(run_id):
            sent_on.add(run_id)
            return changed
        return transitions.retried(plan, task_id, at, fresh=True)


def _repeated(plan: plans.Plan, new: NewPlan) -> Created:
    if plan.request_sha256 != new.sha256():
        told = f"the idempotency key belongs to another request, which made the plan {plan.session_id}"
        raise errors.Conflict(told, code="idempotency_conflict", detail={"session_id": plan.session_id})
    return Created(plan=plan, existed=True)
