"""Routes of the tasks of session plans: add, change, remove, answer and start them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeAlias

from fastapi import Body, Depends, Path
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from app.api import callers, plan_requests, queries, request_models, responses, routers, scoping, sessions
from app.api.dependencies import ServicesDep
from app.api.sessions import IfMatch, NoBody, SeenRevision, SessionId
from app.domain import plans
from app.services.plans import requests

router = routers.router(prefix="/api/sessions/{session_id}/tasks", tags=["plans"])


def _number(text: object) -> int:
    # Pydantic accepts more as a number: spaces, signs and underscores.
    if not re.fullmatch(r"[1-9][0-9]{0,5}", str(text)):
        raise ValueError(f"is not a number from 1 to {requests.TASK_IDS[-1]}")
    return int(str(text))


TaskId = Annotated[
    int,
    BeforeValidator(_number),
    Path(description="Number of the task.", examples=[1], ge=1, le=requests.TASK_IDS[-1]),
]
"""A task's number in a path."""

_Check: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


async def _conversing(services: ServicesDep, request: Request) -> _Check:
    return lambda args: scoping.refuse_conversation(services, callers.caller_of(request), args)


_Conversing = Annotated[_Check, Depends(_conversing)]
"""Refuses arguments of a task that continue a conversation outside of the caller's scope."""

_ADDED = responses.created(
    plans.Plan,
    *sessions.CHANGED,
    *sessions.TASK,
    "too_many_tasks",
    meaning="The plan with the task; it is on disk.",
    repeated="An earlier request with this Idempotency-Key created the task.",
    headers=sessions.ETAG,
)


@router.post("", status_code=201, summary="Add a task", responses=_ADDED)
async def add_task(
    authored: sessions.AuthoredPlans,
    session_id: SessionId,
    body: plan_requests.NewTaskBody,
    conversing: _Conversing,
    if_match: IfMatch = None,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Append a task. Adding one to a finished plan pauses the plan."""
    await conversing(body.args)
    revision = body.seen(queries.revision(if_match))
    added = await authored.add_task(session_id, body.task(idempotency_key), revision)
    return sessions.shown(added.plan, 200 if added.existed else 201)


@router.patch(
    "/{task_id}", summary="Change a task", responses=sessions.moved("task_not_found", "task_begun", *sessions.TASK)
)
async def edit_task(
    authored: sessions.AuthoredPlans,
    session_id: SessionId,
    task_id: TaskId,
    body: plan_requests.TaskEditBody,
    conversing: _Conversing,
    if_match: IfMatch = None,
) -> Response:
    """Change a task that has not started or has failed.

    A new description is routed again if the router chose the recipe.
    """
    await conversing(body.args)
    revision = body.seen(queries.revision(if_match))
    return sessions.shown(await authored.edit_task(session_id, task_id, body.edit(), revision))


@router.delete(
    "/{task_id}",
    summary="Remove a task",
    responses=sessions.moved("task_not_found", "task_begun", "task_needed"),
)
async def remove_task(
    authored: sessions.AuthoredPlans,
    session_id: SessionId,
    task_id: TaskId,
    revision: SeenRevision = None,
    if_match: IfMatch = None,
) -> Response:
    """Remove a task that is not running and has no dependents."""
    seen = request_models.seen_revision(revision, queries.revision(if_match))
    return sessions.shown(await authored.remove_task(session_id, task_id, seen))


@router.post(
    "/{task_id}/answer",
    summary="Answer a scoping question",
    responses=sessions.moved("task_not_found", "task_begun", *sessions.TASK),
)
async def answer_task(
    authored: sessions.AuthoredPlans,
    session_id: SessionId,
    task_id: TaskId,
    body: plan_requests.ScopingAnswerBody,
    conversing: _Conversing,
    if_match: IfMatch = None,
) -> Response:
    """Answer a task's scoping question. If something is still missing, the next question is asked."""
    await conversing(body.args)
    revision = body.seen(queries.revision(if_match))
    return sessions.shown(await authored.answer(session_id, task_id, body.answered(), revision))


@router.post(
    "/{task_id}/force-start", summary="Start a blocked task", responses=sessions.moved("task_not_found", "task_begun")
)
async def force_start_task(
    authored: sessions.AuthoredPlans,
    session_id: SessionId,
    task_id: TaskId,
    body: NoBody = None,
    if_match: IfMatch = None,
) -> Response:
    """Start a blocked task before its dependencies are done, at your own risk."""
    return sessions.shown(await authored.force_start(session_id, task_id, sessions.seen(body, if_match)))


@router.post("/{task_id}/retry", summary="Retry a failed task", responses=sessions.moved("task_not_found"))
async def retry_task(
    authored: sessions.AuthoredPlans,
    session_id: SessionId,
    task_id: TaskId,
    body: Annotated[plan_requests.RetryBody | None, Body(description="Optional.")] = None,
    if_match: IfMatch = None,
) -> Response:
    """Resume the run of a failed task. With `fresh`, or if the task was changed, start a new run."""
    revision = sessions.seen(body, if_match)
    return sessions.shown(await authored.retry(session_id, task_id, body is not None and body.fresh, revision))
