"""Session plans of a project's folder: the use cases, in process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from app import bootstrap
from app.cli import client
from app.cli.plan_client import Move
from app.domain import plans as engine_plans
from app.services.plans import requests


class FolderPlans:
    """Ask the use cases directly; tasks of plans that go on execute in this process."""

    def __init__(self, application: bootstrap.Application, stopped: Callable[[], Awaitable[None]]) -> None:
        """Args: stopped: Waits until a stop that was asked for is over; not at all if none was."""
        self._plans = application.plans
        self._planner = application.planner
        self._stopped = stopped
        self._moves = {
            Move.APPROVE: self._plans.approve,
            Move.START: self._plans.start,
            Move.PAUSE: self._plans.pause,
            Move.RESUME: self._plans.resume,
        }

    async def create(self, new: requests.NewPlan) -> client.Answer:
        """Make a plan, or find it; the chief is waited for here, even if an earlier process has asked it."""
        plan = (await self._plans.create(new)).plan
        if plan.awaits_chief:
            self._planner.look_at(plan.session_id)
        return plan.to_json()

    async def list(self, query: engine_plans.PlanQuery) -> list[client.Answer]:
        """Return plans."""
        found, _ = await self._plans.page(query)
        return [summary.to_json() for summary in found]

    async def show(self, session_id: str) -> client.Answer:
        """Return a plan."""
        return (await self._plans.show(session_id)).to_json()

    async def delete(self, session_id: str, revision: int | None) -> None:
        """Delete a plan."""
        await self._plans.delete(session_id, revision)

    async def go_on(self, session_id: str) -> client.Answer:
        """Go on here with a plan that an earlier process left at work."""
        found = await self.show(session_id)
        self._planner.look_at(session_id)
        return found

    async def wait(self, session_id: str, seconds: float, revision: int) -> client.Answer:
        """Return a plan when it has changed; after a stop, as the stop has left it."""
        await self._plans.wait(session_id, seconds, revision)
        self._planner.check(session_id)
        await self._stopped()
        return await self.show(session_id)

    async def move(self, session_id: str, move: Move, revision: int | None) -> client.Answer:
        """Move a plan."""
        return (await self._moves[move](session_id, revision)).to_json()

    async def reorder(self, session_id: str, order: Sequence[int], revision: int | None) -> client.Answer:
        """Put the tasks in another order."""
        return (await self._plans.reorder(session_id, order, revision)).to_json()

    async def add_task(self, session_id: str, new: requests.NewTask, revision: int | None) -> client.Answer:
        """Add a task."""
        return (await self._plans.add_task(session_id, new, revision)).plan.to_json()

    async def edit_task(
        self, session_id: str, task_id: int, edit: requests.TaskEdit, revision: int | None
    ) -> client.Answer:
        """Change a task."""
        return (await self._plans.edit_task(session_id, task_id, edit, revision)).to_json()

    async def remove_task(self, session_id: str, task_id: int, revision: int | None) -> client.Answer:
        """Remove a task."""
        return (await self._plans.remove_task(session_id, task_id, revision)).to_json()

    async def answer(
        self, session_id: str, task_id: int, answer: requests.Answer, revision: int | None
    ) -> client.Answer:
        """Answer the question of a task."""
        return (await self._plans.answer(session_id, task_id, answer, revision)).to_json()

    async def force_start(self, session_id: str, task_id: int, revision: int | None) -> client.Answer:
        """Begin a blocked task."""
        return (await self._plans.force_start(session_id, task_id, revision)).to_json()

    async def retry(self, session_id: str, task_id: int, fresh: bool, revision: int | None) -> client.Answer:
        """Try a failed task again."""
        return (await self._plans.retry(session_id, task_id, fresh, revision)).to_json()
