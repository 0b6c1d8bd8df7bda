"""The repository: reads and writes plans, one change of a plan at a time, and announces each change to its waiters."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from app import clock, errors
from app.domain import audit, issues, plain, plans
from app.flows.session_plan import rules
from app.services import issue_texts, requests

if TYPE_CHECKING:
    from app.storage import plans as stored

_log = logging.getLogger(__name__)

_MOST_ISSUES = 1000
_FAILURE = "task"
_CLOSED_BY_SUCCESS = frozenset({_FAILURE, "dod"})
# Failures that have issues of their own, or that a person has caused.
_SHOWN_OTHERWISE = frozenset({"dod_failed", "run_cancelled", rules.RUN_DELETED})


class PlanRepository:
    """Stores plans for readers and writers.

    Args:
        store: Stores the plans.
        issues: Stores the issues of failed tasks.
        audit: Records deletions of plans.
        masker: Masks secrets in written texts.
    """

    def __init__(
        self,
        *,
        store: stored.Plans,
        issues: issues.IssueStore,
        audit: audit.AuditLog,
        clock: clock.Clock,
        masker: plain.Masker,
    ) -> None:
        self.audit = audit
        self._store = store
        self._issues = issues
        self._clock = clock
        self._masker = masker
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._news: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self.written: Callable[[str], object] = str
        """Called with each written plan; it may not wait."""
        self.seen: Callable[[plans.Plan], object] = id
        """Called with each plan that a caller reads; it may not wait."""

    def now(self) -> str:
        """Return the present instant in the form used in plans."""
        return clock.stamp(self._clock.now())

    def turn(self, session_id: str) -> asyncio.Lock:
        """Return the lock that a writer of a plan holds from reading to writing, but never while it waits for a run."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    def news(self, session_id: str) -> asyncio.Event:
        """Return the event that the next write of a plan sets; request it before reading the plan."""
        return self._news.setdefault(session_id, asyncio.Event())

    async def find(self, session_id: str) -> plans.Plan | None:
        """Return a plan, or None.

        Raises:
            errors.Conflict: `plan_damaged`.
        """
        return await self._store.get(session_id) if _can_be(session_id) else None

    async def try_writing(self, session_id: str) -> None:
        """Check whether a plan's file could be replaced now.

        Raises:
            errors.StorageFault: it could not be replaced.
        """
        await self._store.try_writing(session_id)

    async def get(self, session_id: str) -> plans.Plan:
        """Return a plan.

        Raises:
            errors.NotFound: `plan_not_found`; the message reports if its file is gone.
            errors.Conflict: `plan_damaged`.
        """
        plan = await self.find(session_id)
        if plan is None:
            message = f"there is no plan {session_id!r:.80}"
            if await self.was_lost(session_id):
                message += " any more: its file was removed; delete the plan to end it for good"
            raise errors.NotFound(message, code="plan_not_found")
        self.seen(plan)
        return plan

    async def page(self, query: plans.PlanQuery) -> list[plans.PlanSummary]:
        """Return plans, newest first."""
        return await self._store.list(query)

    async def make(self, plan: plans.Plan) -> plans.Plan:
        """Store a new plan, and return it once it is durable.

        Raises:
            errors.StorageFault: it could not be made durable.
        """
        await self._store.put(plan)
        self.notify(plan.session_id)
        return plan

    async def write(self, known: plans.Plan, renewed: plans.Plan) -> None:
        """Replace the known plan by a changed one, durably.

        Issues of newly failed tasks are opened first, so that a crash in between loses none; those of newly done tasks
        are closed.

        Raises:
            errors.Conflict: `plan_changed`, `plan_damaged`; its file differs from the recorded plan.
            errors.StorageFault: a write could not be made durable.
        """
        for issue in _new_failures(known, renewed, self._masker):
            await self._open(issue)
        for task in _newly_done(known, renewed):
            await self._close_failures(renewed, task)
        try:
            await self._store.put(renewed, known)
        finally:
            # Even after a failed write the file may have new content.
            self.notify(renewed.session_id)

    async def remove(self, session_id: str) -> None:
        """Remove a plan permanently.

        Raises:
            errors.StorageFault: the removal could not be made durable.
        """
        try:
            await self._store.remove(session_id)
        finally:
            self.notify(session_id)

    async def was_removed(self, session_id: str) -> bool:
        """Return whether a plan with an id was removed."""
        return await self._store.was_removed(session_id)

    async def was_lost(self, session_id: str) -> bool:
        """Return whether a plan with an id existed whose file is gone without a removal here."""
        return _can_be(session_id) and await self._store.was_lost(session_id)

    async def _open(self, issue: issues.Issue) -> None:
        try:
            await self._issues.open(issue)
        except errors.Conflict as error:
            _log.error("not opened: %s", error.message, extra={"code": error.code})

    async def _close_failures(self, plan: plans.Plan, task: plans.Task) -> None:
        note = f"Task {task.id} of the plan {plan.session_id} is done now."
        for run_id in dict.fromkeys([*task.earlier_runs, task.run_id]):
            if run_id is None:
                continue
            for row in await self._issues.list(issues.IssueQuery(run_id=run_id, status="open", limit=_MOST_ISSUES)):
                if row.kind in _CLOSED_BY_SUCCESS:
                    await self._close(row.issue_id, task.run_id or run_id, note)

    async def _close(self, issue_id: str, run_id: str, note: str) -> None:
        try:
            await self._issues.change(issue_id, lambda known: issues.closed(known, self.now(), run_id, note))
        except (errors.Conflict, errors.NotFound) as error:
            _log.error("not closed: %s", error.message, extra={"code": error.code})

    def notify(self, session_id: str) -> None:
        """Wake the waiters for changes of a plan."""
        self.written(session_id)
        news = self._news.pop(session_id, None)
        if news is not None:
            news.set()


def _can_be(session_id: str) -> bool:
    return re.fullmatch(requests.SESSION_ID_PATTERN, session_id) is not None


def _newly_done(known: plans.Plan, changed: plans.Plan) -> Iterator[plans.Task]:
    # A task whose first run was resumed may have failed before, too.
    before = {task.id for task in known.tasks if task.status is plans.TaskState.DONE}
    yield from (task for task in changed.tasks if task.status is plans.TaskState.DONE and task.id not in before)


def _new_failures(known: plans.Plan, changed: plans.Plan, masker: plain.Masker) -> Iterator[issues.Issue]:
    before = {task.id for task in known.tasks if task.status is plans.TaskState.FAILED}
    for task in changed.tasks:
        if task.status is plans.TaskState.FAILED and task.id not in before:
            issue = _issue(changed, task, masker)
            if issue is not None:
                yield issue


def _issue(plan: plans.Plan, task: plans.Task, masker: plain.Masker) -> issues.Issue | None:
    """Return the issue of a failed task, None if it needs none; the same failure always gives the same issue."""
    error: dict[str, Any] = dict(task.error or {})
    if error.get("code") in _SHOWN_OTHERWISE:
        return None
    # Masked before any text is cut, so that no half of a secret remains.
    description, error = masker.mask(task.description), masker.mask(error)
    made = task.run_id or f"attempt {task.attempt}"
    digest = plain.sha256(f"{plan.session_id}:{task.id}:{made}".encode())
    return issues.made(
        f"iss_{digest[:20]}",
        task.ended_at or plan.updated_at,
        title=f"Task {task.id} failed: {plain.preview(description)}"[: issue_texts.TITLE_CHARACTERS],
        body=_body(task, description, error)[: issue_texts.BODY_CHARACTERS],
        kind=_FAILURE,
        run_id=task.run_id,
        session_id=plan.session_id,
        severity="error",
        receipts=[],
        facts={"kind": _FAILURE, "task": task.id, "code": error.get("code"), "step": error.get("key")},
    )


def _body(task: plans.Task, description: str, error: dict[str, Any]) -> str:
    where = f" at the step {error['key']}" if error.get("key") else ""
    by = f"Its run {task.run_id} failed{where}" if task.run_id else "No run could be made for it"
    if error.get("code") in (rules.NOT_MET, rules.REVIEW_FAILED):
        by = f"Its run {task.run_id} is done, but the task is not"
    return f"{description}\n\n{by}: {error.get('message')} ({error.get('code')})"
