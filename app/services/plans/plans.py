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
from app.domain import authors, inputs, plan_events, plans
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
    """Makes, shows and changes session plans.

    Every change is durable before it is answered, and applies to the plan with the present states of its runs. Each can
    be refused with `plan_not_found`; `plan_damaged`; `plan_changed`, with the plan, if its revision is no longer the
    one that was seen; `wrong_state`; and `no_room`.
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
        super().__init__(repository, planner)
        self._maker = maker
        self._chief = chief
        self._plan_runs = plan_runs
        self._facts = facts
        self._planner = planner
        self._reviews = reviews
        self._author = authors.LOCAL

    def by(self, author: authors.Author) -> Plans:
        """Return the same use cases with an author for their changes."""
        mine = copy.copy(self)
        mine._author = author
        return mine

    async def create(self, new: NewPlan, asked_by: str | None = None) -> Created:
        """Make a plan of tasks, or of an intent that the chief splits; a repeated request with the same key finds it.

        Args:
            asked_by: Run whose agent or command makes the request, if it names no parent.

        Raises:
            errors.RequestInvalid, errors.Conflict: flaws; `idempotency_conflict`.
            errors.WriteFailed: it cannot be written.
        """
        with faults.as_errors():
            # The id of a deleted plan is not reused; the same key then gives another id.
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
        """Delete a plan at rest, but not its runs, receipts and issues; its key can be used again.

        A plan whose file is gone is no longer reported as lost.
        """
        with faults.as_errors():
            async with self._repository.turn(session_id):
                if await self._repository.was_lost(session_id):
                    await self._repository.remove(session_id)
                    await self._repository.audit.append(self._author, "plan.deleted", session_id)
                    self._planner.wake(session_id)
                else:
                    await self._removed(session_id, revision)

    async def wait(self, session_id: str, seconds: float, known: int | None = None) -> plans.Plan:
        """Return a plan as soon as its revision differs from the known one; a plan at rest is returned at once.

        Args:
            seconds: Longest wait.
            known: Revision that the caller has; None: the present one.

        Raises:
            errors.NotFound, errors.Conflict: as `show`.
        """
        return await self._planner.changed(session_id, seconds, known)

    async def rested(self, session_id: str) -> plans.Plan:
        """Continue a plan until no run of it executes or can start on its own, or this process stops; return it.

        A run that is paused or waits for a person does not execute.

        Raises:
            errors.NotFound, errors.Conflict: as `show`.
            errors.Unavailable: `planner_broken`.
        """
        self._planner.wake(session_id)
        return await self._planner.rested(session_id)

    # -- the plan

    async def approve(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Approve a draft.

        Raises:
            errors.NotReady: a task's run would lack a backend here.
        """
        return await self._change(session_id, revision, partial(self._ready, move=transitions.approved))

    async def start(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Start an approved plan, or continue a paused, failed or finished one; if it lacks tasks, ask the chief again.

        Raises:
            errors.RequestInvalid: `no_chief`.
            errors.NotReady: a task's run, or the chief, would lack a backend here.
        """
        sent_on = set[str]()
        return await self._change(session_id, revision, partial(self._started, sent_on=sent_on))

    async def pause(self, session_id: str, revision: int | None = None) -> plans.Plan:
        """Start no further task."""
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
        """Reorder the tasks, or set whether definitions of done in words are reviewed; a review under way continues.

        Raises:
            errors.RequestInvalid: `order_incomplete`, `order_breaks_dependency`, numbers that are none of its tasks, or
                no change.
        """
        if order is None and review is None:
            refuse([errors.Flaw(path="$.order", message="order or review is required", code="missing")])

        def change(plan: plans.Plan, at: str) -> plans.Plan:
            if order is not None:
                plan = edits.reordered(plan, order, at)
            return plan if review is None else rules.changed(plan, at, review=review)

        return await self._change(session_id, revision, change)

    async def accept(self, session_id: str, proposal_id: int, revision: int | None = None) -> plans.Plan:
        """Apply a change that the chief has proposed, like an ordinary edit.

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

    # -- tasks

    async def add_task(self, session_id: str, new: NewTask, revision: int | None = None) -> Created:
        """Append a task, whose number becomes the plan's highest; a repeated request with the same key finds it.

        Raises:
            errors.RequestInvalid: it cannot be a task of the plan; names every flaw.
            errors.Conflict: `idempotency_conflict`, `too_many_tasks`.
        """
        existed = False

        async def change(plan: plans.Plan, at: str) -> plans.Plan:
            nonlocal existed
            existed = edits.is_added(plan, new)
            if existed:
                return plan
            # A repeated request names the revision that was seen before the first one, so this check comes second.
            rules.expect(plan, revision)
            transitions.expect_chief_away(plan)
            return edits.with_new_task(plan, await asyncio.to_thread(self._maker.task, plan, new), at)

        return Created(plan=await self._change(session_id, None, change), existed=existed)

    async def edit_task(self, session_id: str, task_id: int, edit: TaskEdit, revision: int | None = None) -> plans.Plan:
        """Change a task that has not begun, or has failed.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.RequestInvalid: it cannot be a task of the plan; names every flaw.
            errors.Conflict: `task_begun`.
        """

        async def change(plan: plans.Plan, at: str) -> plans.Plan:
            task = edits.editable(plan, task_id)
            return edits.with_edit(plan, await asyncio.to_thread(self._maker.edited, plan, task, edit), at)

        return await self._change(session_id, revision, change)

    async def remove_task(self, session_id: str, task_id: int, revision: int | None = None) -> plans.Plan:
        """Remove a task from a plan.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.Conflict: `task_begun`; `task_needed`, `needed_by`.
        """
        return await self._change(session_id, revision, lambda plan, at: edits.without_task(plan, task_id, at))

    async def answer(
        self, session_id: str, task_id: int, new: ScopingAnswer, revision: int | None = None
    ) -> plans.Plan:
        """Answer a task's open question, and ask the next; a repeated answer that leaves it open changes nothing.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.RequestInvalid: the recipe or arguments of the answer are invalid; names every flaw.
            errors.Conflict: `task_begun`.
        """

        async def change(plan: plans.Plan, at: str) -> plans.Plan:
            task = edits.answerable(plan, task_id)
            answered = await asyncio.to_thread(self._maker.answered, plan, task, new)
            return plan if edits.is_repeated(task, answered) else edits.with_answer(plan, answered, at)

        return await self._change(session_id, revision, change)

    async def force_start(self, session_id: str, task_id: int, revision: int | None = None) -> plans.Plan:
        """Let a blocked task start although one of its dependencies is not done.

        Raises:
            errors.NotFound: `task_not_found`.
        """
        return await self._change(session_id, revision, lambda plan, at: transitions.forced(plan, task_id, at))

    async def retry(
        self, session_id: str, task_id: int, fresh: bool = False, revision: int | None = None
    ) -> plans.Plan:
        """Retry a failed task by resuming its run, so that finished steps are not repeated.

        Args:
            fresh: Whether it gets a new run instead. It also gets one if it was changed or its run is gone.

        Raises:
            errors.NotFound: `task_not_found`.
            errors.ControlRoomError: its run cannot be resumed.
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
                    # Removed by an order that an earlier process took and could not carry out.
                    return
                raise
            rules.expect(opened.plan, revision)
            transitions.expect_rest(await self._facts.reconciled(opened.plan))
            if await self._delivered(session_id, opened, plan_events.Deleted()):
                await self._repository.audit.append(self._author, "plan.deleted", session_id)
                await self._planner.commands.ended(session_id)
                return
            await self._planner.commands.after(session_id, opened, self._planner.commands.following(session_id, opened))

    async def _change(self, session_id: str, revision: int | None, change: _Change) -> plans.Plan:
        with faults.as_errors():
            async with self._repository.turn(session_id):
                return await self._changed(session_id, revision, change)

    async def _changed(self, session_id: str, revision: int | None, change: _Change) -> plans.Plan:
        # A loop: if another input comes first, the change is made again on its result.
        while True:
            opened = await self._planner.commands.opened(session_id)
            rules.expect(opened.plan, revision)
            made = change(await self._facts.reconciled(opened.plan), self._repository.now())
            changed = made if isinstance(made, plans.Plan) else await made
            renewed = rules.renewed(opened.plan, self._reviews.announced(changed), self._repository.now())
            if renewed is opened.plan:
                return renewed
            following = self._planner.commands.following(session_id, opened)
            event = plan_events.Changed(plan=renewed.signed(opened.plan, self._author))
            delivered = await self._delivered(session_id, opened, event)
            try:
                plan = await self._planner.commands.after(session_id, opened, following)
            except errors.WriteFailed as error:
                if delivered:
                    message = "the change is journalled and takes effect once plan.json can be written"
                    raise errors.WriteFailed(f"{message}: {error.message}", detail=error.detail) from error
                raise
            if delivered:
                return plan

    async def _delivered(self, session_id: str, opened: OpenPlan, event: plan_events.PlanEvent) -> bool:
        """Deliver an input for the plan as it was shown; return False if another input came first."""
        delivery = inputs.Delivery(value=event.to_json(), author=self._author)
        # A journalled input is valid, so a refusal must come before it.
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
            # This request has resumed the chief's run, and the plan has seen that before the request's own change.
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
            # This request has resumed the task's run, but the file did not accept the change.
            goes_on = plan.status is plans.PlanState.FAILED and rules.can_go_on(plan)
            return transitions.started(plan, at) if goes_on else plan
        # Checked before any effect.
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
        message = f"the idempotency key belongs to another request, which made the plan {plan.session_id}"
        raise errors.Conflict(message, code="idempotency_conflict", detail={"session_id": plan.session_id})
    return Created(plan=plan, existed=True)
