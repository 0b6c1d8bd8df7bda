"""Plan questions: turns questions of session plans to people into messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app import errors
from app.domain import notifications, plain, plans

if TYPE_CHECKING:
    from app.storage import plans as stored

_ASKS = plans.TaskState.NEEDS_SCOPING
_OPEN = (plans.PlanState.DRAFT, plans.PlanState.APPROVED, plans.PlanState.RUNNING, plans.PlanState.PAUSED)


class PlanQuestions:
    """Reads the open questions of plans: first those of all plans, then those of written plans.

    Args:
        masker: Masks secrets in questions, since a new plan's are in no journal yet.
    """

    def __init__(self, kept: stored.Plans, masker: plain.Masker) -> None:
        self._kept = kept
        self._masker = masker
        self._written: set[str] | None = None
        self.changed = asyncio.Event()
        """Set when a plan was written."""

    def note(self, session_id: str) -> None:
        """Record that a plan was written."""
        if self._written is not None:
            self._written.add(session_id)
        self.changed.set()

    def again(self) -> None:
        """Make the next drain read all plans."""
        self._written = None

    async def drain(self) -> list[notifications.Message]:
        """Return the questions that may be new; the same question always gives the same message.

        Raises:
            errors.StorageFault: a plan cannot be read now; the next drain reads all plans.
        """
        self.changed.clear()
        written, self._written = self._written, set()
        try:
            names = sorted(written) if written is not None else await self._asking()
            return [message for name in names for message in await self._of_plan(name)]
        except BaseException:
            # The names that were taken are lost, so the next drain reads all plans.
            self._written = None
            raise

    async def _asking(self) -> list[str]:
        """Return the plans whose row shows a task with a question."""
        found = []
        for status in _OPEN:
            query = plans.PlanQuery(status=status.value, limit=1000, partial=True)
            while page := await self._kept.list(query):
                found += [row.session_id for row in page if row.tasks.get(_ASKS.value)]
                if len(page) < query.limit:
                    break
                query = plans.PlanQuery(
                    status=status.value, limit=1000, partial=True, cursor=(page[-1].created_at, page[-1].session_id)
                )
        return found

    async def _of_plan(self, session_id: str) -> list[notifications.Message]:
        try:
            plan = await self._kept.get(session_id)
        except errors.ControlRoomError:
            # A damaged plan has no question; its readers get the error.
            return []
        return [] if plan is None or plan.status not in _OPEN else list(_questions(plan, self._masker))


def _questions(plan: plans.Plan, masker: plain.Masker) -> Iterator[notifications.Message]:
    for task in plan.tasks:
        if task.status is not _ASKS:
            continue
        # Masked before its id is made: the plan's journal masks it as well, which must not give another message.
        question = str(masker.mask(task.scoping_question or f"Which recipe does the task {task.id}?"))
        mark = f"{plan.session_id} {task.id} {len(task.scoping_before)} {question}"
        facts = {
            "session_id": plan.session_id,
            "task_id": task.id,
            "task": str(masker.mask(task.description))[:500],
            "prompt": question,
        }
        yield notifications.Message(
            message_id=f"msg_{plain.sha256(mark.encode())[:24]}",
            kind="waits",
            at=plan.updated_at,
            run_id=plan.session_id,
            recipe_id=task.recipe_id or "plan",
            text=f"The plan {plan.session_id} asks about task {task.id}: {question}"[:500],
            labels=dict(plan.labels),
            data=facts,
        )
