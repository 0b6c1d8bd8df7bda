"""The part of the client port that session plans are asked through."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from app.domain import plans
    from app.services.plans import requests

_Answer = dict[str, Any]


class Move(StrEnum):
    """What is done to a plan as a whole."""

    APPROVE = "approve"
    """It is good as it is."""
    START = "start"
    """Its tasks are begun."""
    PAUSE = "pause"
    """No further task is begun."""
    RESUME = "resume"
    """Tasks are begun again."""


class Plans(Protocol):
    """Ask for session plans; every change returns the plan as it is then. Every error is one of `app.errors`."""

    async def create(self, new: requests.NewPlan) -> _Answer:
        """Make a plan, or find the one that an earlier request with the same key has made."""

    async def list(self, query: plans.PlanQuery) -> list[_Answer]:
        """Return plans, newest first."""

    async def show(self, session_id: str) -> _Answer:
        """Return a plan."""

    async def delete(self, session_id: str, revision: int | None) -> None:
        """Delete a plan that rests; `revision` is what was seen of it, None for any, here and below."""

    async def go_on(self, session_id: str) -> _Answer:
        """Return a plan, and see to it that somebody works on it if it is at work."""

    async def wait(self, session_id: str, seconds: float, revision: int) -> _Answer:
        """Return a plan when its revision is another one, after so many seconds at the latest."""

    async def move(self, session_id: str, move: Move, revision: int | None) -> _Answer:
        """Move a plan as a whole."""

    async def reorder(self, session_id: str, order: Sequence[int], revision: int | None) -> _Answer:
        """Put the tasks in another order."""

    async def add_task(self, session_id: str, new: requests.NewTask, revision: int | None) -> _Answer:
        """Add a task, or find the one that an earlier request with the same key has added."""

    async def edit_task(self, session_id: str, task_id: int, edit: requests.TaskEdit, revision: int | None) -> _Answer:
        """Change a task."""

    async def remove_task(self, session_id: str, task_id: int, revision: int | None) -> _Answer:
        """Remove a task."""

    async def answer(self, session_id: str, task_id: int, answer: requests.Answer, revision: int | None) -> _Answer:
        """Answer the question of a task."""

    async def force_start(self, session_id: str, task_id: int, revision: int | None) -> _Answer:
        """Begin a blocked task."""

    async def retry(self, session_id: str, task_id: int, fresh: bool, revision: int | None) -> _Answer:
        """Try a failed task again."""
