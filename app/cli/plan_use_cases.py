"""Use cases of session plans; `revision` is the one that the caller has seen, None for any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.cli import terminal
from app.cli.client import Access, JsonObject, UseCase, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.domain import plans
    from app.services.plans import requests as plan_requests


@use_case("POST /api/sessions", Access.CHANGE)
async def create_plan(folder: FolderClient, new: plan_requests.NewPlan) -> JsonObject:
    """Create a plan, or find it; the chief works in this process, even if another process has asked it."""
    plan = (await folder.application.plans.create(new)).plan
    if plan.awaits_chief:
        folder.application.planner.wake(plan.session_id)
    return plan.to_json()


@use_case("GET /api/sessions", answers=list)
async def list_plans(folder: FolderClient, query: plans.PlanQuery) -> list[JsonObject]:
    """Return plans, newest first."""
    found, _ = await folder.application.plans.page(query)
    return [summary.to_json() for summary in found]


@use_case("GET /api/sessions/{session_id}")
async def show_plan(folder: FolderClient, session_id: str) -> JsonObject:
    """Return a plan; warn of an edit of its file that its run, perhaps in a service, has not taken yet."""
    found = await folder.application.plans.show(session_id)
    if not await folder.application.plans.has_taken(found):
        terminal.warn(
            f"the file of {session_id} was edited by hand, and is shown as it is: the edit is not taken yet; a service"
            " takes it when it shows the plan, a command with its next change"
        )
    return found.to_json()


@use_case("DELETE /api/sessions/{session_id}", Access.CHANGE, answers=None)
async def delete_plan(folder: FolderClient, session_id: str, revision: int | None) -> None:
    """Delete a plan that is at rest."""
    await folder.application.plans.delete(session_id, revision)


@use_case("GET /api/sessions/{session_id}", Access.CHANGE)
async def continue_plan(folder: FolderClient, session_id: str) -> JsonObject:
    """Return a plan and continue it in this process; a service continues its plans by itself."""
    found = (await folder.application.plans.show(session_id)).to_json()
    folder.application.planner.wake(session_id)
    return found


@use_case("GET /api/sessions/{session_id}", Access.CHANGE)
async def wait_for_plan(folder: FolderClient, session_id: str, wait: float, unless_revision: int) -> JsonObject | None:
    """Return a plan once its revision differs, or after `wait` seconds; None if it is unchanged."""
    application = folder.application
    await application.plans.wait(session_id, wait, unless_revision)
    application.planner.check(session_id)
    await folder.stopped()
    return (await application.plans.show(session_id)).to_json()


def _plan_move(verb: str) -> UseCase[[str, int | None], JsonObject]:
    async def move(folder: FolderClient, session_id: str, revision: int | None) -> JsonObject:
        plan: plans.Plan = await getattr(folder.application.plans, verb)(session_id, revision)
        return plan.to_json()

    return use_case(f"POST /api/sessions/{{session_id}}/{verb}", Access.CHANGE)(move)


approve_plan, start_plan = _plan_move("approve"), _plan_move("start")
pause_plan, resume_plan = _plan_move("pause"), _plan_move("resume")


@use_case("PATCH /api/sessions/{session_id}", Access.CHANGE)
async def reorder_tasks(
    folder: FolderClient, session_id: str, order: Sequence[int], revision: int | None
) -> JsonObject:
    """Reorder the tasks of a plan."""
    return (await folder.application.plans.edit(session_id, revision, order=order)).to_json()


@use_case("PATCH /api/sessions/{session_id}", Access.CHANGE)
async def set_review(folder: FolderClient, session_id: str, review: str, revision: int | None) -> JsonObject:
    """Set whether definitions of done in words are reviewed."""
    return (await folder.application.plans.edit(session_id, revision, review=review)).to_json()


def _proposal_move(verb: str) -> UseCase[[str, int, int | None], JsonObject]:
    async def move(folder: FolderClient, session_id: str, proposal_id: int, revision: int | None) -> JsonObject:
        plan: plans.Plan = await getattr(folder.application.plans, verb)(session_id, proposal_id, revision)
        return plan.to_json()

    return use_case(f"POST /api/sessions/{{session_id}}/proposals/{{proposal_id}}/{verb}", Access.CHANGE)(move)


accept_proposal, dismiss_proposal = _proposal_move("accept"), _proposal_move("dismiss")


@use_case("POST /api/sessions/{session_id}/tasks", Access.CHANGE)
async def add_task(
    folder: FolderClient, session_id: str, new: plan_requests.NewTask, revision: int | None
) -> JsonObject:
    """Add a task, or find the one that an earlier request with the same key added."""
    return (await folder.application.plans.add_task(session_id, new, revision)).plan.to_json()


def _edit_body(session_id: str, task_id: int, edit: plan_requests.TaskEdit, revision: int | None) -> Mapping[str, Any]:
    return edit.changes() if revision is None else edit.changes() | {"revision": revision}


@use_case("PATCH /api/sessions/{session_id}/tasks/{task_id}", Access.CHANGE, body=_edit_body)
async def edit_task(
    folder: FolderClient, session_id: str, task_id: int, edit: plan_requests.TaskEdit, revision: int | None
) -> JsonObject:
    """Change a task."""
    return (await folder.application.plans.edit_task(session_id, task_id, edit, revision)).to_json()


@use_case("DELETE /api/sessions/{session_id}/tasks/{task_id}", Access.CHANGE)
async def remove_task(folder: FolderClient, session_id: str, task_id: int, revision: int | None) -> JsonObject:
    """Remove a task."""
    return (await folder.application.plans.remove_task(session_id, task_id, revision)).to_json()


@use_case("POST /api/sessions/{session_id}/tasks/{task_id}/answer", Access.CHANGE)
async def answer_task(
    folder: FolderClient, session_id: str, task_id: int, answer: plan_requests.ScopingAnswer, revision: int | None
) -> JsonObject:
    """Answer the question of a task."""
    return (await folder.application.plans.answer(session_id, task_id, answer, revision)).to_json()


@use_case("POST /api/sessions/{session_id}/tasks/{task_id}/force-start", Access.CHANGE)
async def force_start_task(folder: FolderClient, session_id: str, task_id: int, revision: int | None) -> JsonObject:
    """Start a blocked task."""
    return (await folder.application.plans.force_start(session_id, task_id, revision)).to_json()


@use_case("POST /api/sessions/{session_id}/tasks/{task_id}/retry", Access.CHANGE)
async def retry_task(
    folder: FolderClient, session_id: str, task_id: int, fresh: bool, revision: int | None
) -> JsonObject:
    """Retry a failed task."""
    return (await folder.application.plans.retry(session_id, task_id, fresh, revision)).to_json()
