"""Routes of session plans: create, list, show, start and stop them (execution-modes, Session Plan and appendix G)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api import callers, plan_requests, polling, queries, refusals, request_models, responses, routers, scoping
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import plans
from app.services.plans import plans as service

router = routers.router(prefix="/api/sessions", tags=["plans"])


async def _authored(services: ServicesDep, author: AuthorDep) -> service.Plans:
    return services.plans.by(author)


AuthoredPlans = Annotated[service.Plans, Depends(_authored)]
"""Plans whose changes are recorded with the author of the request."""

SessionId = Annotated[str, Path(description="Id of the plan.", examples=["sp_5h2m9q0x7c1v8b3n"])]
"""A plan's id in a path."""

ProposalId = Annotated[int, Path(description="Number of the proposal.", examples=[1], ge=1, le=999_999)]
"""A proposal's number in a path."""

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="Expected ETag; a stale one is rejected with 409.", max_length=100),
]
"""Revision for which a change was made."""

SeenRevision = Annotated[int | None, Query(description="Expected revision, like `If-Match`.", ge=1)]
"""The same, for requests without a body."""

NoBody = Annotated[plan_requests.RevisedBody | None, Body(description="Optional.")]
"""A body that can only name the revision."""

CHANGED = (*refusals.WRITE, "plan_not_found", "plan_changed", "plan_damaged", "wrong_state")
"""Codes of every change of a plan."""

TASK = (*refusals.RECIPE, "tasks_invalid", "unknown_agent_session")  # Codes of every request that contains tasks.
PROPOSAL = ("proposal_not_found", "proposal_decided")  # Codes of every decision on a proposal.

EDIT = (*TASK, "task_not_found", "task_begun", "task_needed", "too_many_tasks")
"""Codes of the edits that a proposal can contain."""

ETAG = {"ETag": "Revision of the plan, for `If-Match` and `If-None-Match`."}
"""Headers of an answer that shows a plan."""

_PLACE = {"Location": "Address of the plan."}
_ORDER = ("order_incomplete", "order_unknown_task", "order_repeats_task", "order_breaks_dependency")

_CREATED = responses.created(
    plans.Plan,
    *refusals.START,
    *TASK,
    "no_chief",
    "plan_damaged",
    meaning="The plan; it is on disk, and so is the chief's run if the chief splits the intent into tasks.",
    repeated="An earlier request with this Idempotency-Key created the plan.",
    headers=ETAG | _PLACE,
)


def moved(*codes: str, meaning: str = "The changed plan; the change is on disk.") -> refusals.Responses:
    """Return the `responses` of a route that changes a plan."""
    return declared(plans.Plan, *CHANGED, *codes, meaning=meaning, headers=ETAG)


def shown(plan: plans.Plan, status: int = 200, place: bool = False) -> Response:
    """Return the answer that shows a plan."""
    headers = {"ETag": _etag(plan), "Cache-Control": "no-cache"}
    if place:
        headers["Location"] = f"/api/sessions/{plan.session_id}"
    return as_json(plan.to_json(), status=status, headers=headers)


@router.post("", status_code=201, summary="Create a plan", responses=_CREATED)
async def create_plan(
    authored: AuthoredPlans,
    services: ServicesDep,
    request: Request,
    body: plan_requests.PlanBody,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Create a plan from the given tasks, or let the chief split the intent into tasks.

    No task starts before a person has approved and started the plan.
    """
    new = await scoping.scope_plan(services, callers.caller_of(request), body.plan(idempotency_key))
    created = await authored.create(new, await callers.run_of(services, request, new.parent_run_id))
    return shown(created.plan, 200 if created.existed else 201, place=True)


@router.get(
    "",
    summary="List plans, newest first",
    responses=responses.page(list[plans.PlanSummary], meaning="A page of plans."),
)
async def list_plans(
    services: ServicesDep,
    request: Request,
    query: Annotated[queries.PlansQuery, Query()],
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """List plans with the number of tasks in each state."""
    return await responses.paged(
        services, request, query, if_none_match, services.plans.page, lambda plan: (plan.created_at, plan.session_id)
    )


@router.get(
    "/{session_id}",
    summary="Show a plan",
    responses=declared(
        plans.Plan,
        "plan_not_found",
        "plan_damaged",
        meaning="The plan with all its tasks.",
        headers=ETAG,
    )
    | responses.NOT_MODIFIED,
)
async def show_plan(
    services: ServicesDep,
    session_id: SessionId,
    wait: responses.WaitForChange = None,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """Show a plan; `wait` makes this a long poll, against `If-None-Match` if given.

    A plan that cannot change on its own is returned at once.
    """
    known = polling.entity_tags(if_none_match)
    plan = await services.plans.show(session_id)
    if wait and (not known or _is_known(plan, known)):
        plan = await services.plans.wait(session_id, wait, plan.revision)
    if _is_known(plan, known):
        return Response(status_code=304, headers={"ETag": _etag(plan), "Cache-Control": "no-cache"})
    return shown(plan)


@router.patch("/{session_id}", summary="Change a plan", responses=moved(*_ORDER))
async def reorder_plan(
    authored: AuthoredPlans, session_id: SessionId, body: plan_requests.OrderBody, if_match: IfMatch = None
) -> Response:
    """Change the order of tasks, or whether they are reviewed. A task must come after its dependencies."""
    revision = body.seen(queries.revision(if_match))
    return shown(await authored.edit(session_id, revision, order=body.order, review=body.review))


@router.delete(
    "/{session_id}",
    status_code=204,
    summary="Delete a plan",
    responses=refusals.documented(("plan_not_found", "plan_changed", "plan_damaged", "wrong_state", "no_room")),
)
async def delete_plan(
    authored: AuthoredPlans, session_id: SessionId, revision: SeenRevision = None, if_match: IfMatch = None
) -> Response:
    """Delete a plan with no active tasks. Its runs, receipts and issues are kept."""
    await authored.delete(session_id, request_models.seen_revision(revision, queries.revision(if_match)))
    return Response(status_code=204)


@router.post("/{session_id}/approve", summary="Approve a plan", responses=moved("backend_not_ready"))
async def approve_plan(
    authored: AuthoredPlans, session_id: SessionId, body: NoBody = None, if_match: IfMatch = None
) -> Response:
    """Approve a draft plan, so that it can be started."""
    return shown(await authored.approve(session_id, seen(body, if_match)))


@router.post("/{session_id}/start", summary="Start a plan", responses=moved("backend_not_ready"))
async def start_plan(
    authored: AuthoredPlans, session_id: SessionId, body: NoBody = None, if_match: IfMatch = None
) -> Response:
    """Start an approved plan, or continue a paused one; its tasks start as soon as they can.

    A failed or finished plan starts if a part of it can continue. If the chief failed to make a plan, the service asks
    it again.
    """
    return shown(await authored.start(session_id, seen(body, if_match)))


@router.post("/{session_id}/pause", summary="Pause a plan", responses=moved())
async def pause_plan(
    authored: AuthoredPlans, session_id: SessionId, body: NoBody = None, if_match: IfMatch = None
) -> Response:
    """Start no further tasks. Running tasks finish."""
    return shown(await authored.pause(session_id, seen(body, if_match)))


@router.post("/{session_id}/resume", summary="Resume a paused plan", responses=moved("backend_not_ready"))
async def resume_plan(
    authored: AuthoredPlans, session_id: SessionId, body: NoBody = None, if_match: IfMatch = None
) -> Response:
    """Resume a paused plan."""
    return shown(await authored.resume(session_id, seen(body, if_match)))


@router.post(
    "/{session_id}/proposals/{proposal_id}/accept", summary="Accept a proposal", responses=moved(*PROPOSAL, *EDIT)
)
async def accept_proposal(
    authored: AuthoredPlans,
    session_id: SessionId,
    proposal_id: ProposalId,
    body: NoBody = None,
    if_match: IfMatch = None,
) -> Response:
    """Accept a change that the chief has proposed. It is an ordinary edit and can be refused like one."""
    return shown(await authored.accept(session_id, proposal_id, seen(body, if_match)))


@router.post("/{session_id}/proposals/{proposal_id}/dismiss", summary="Dismiss a proposal", responses=moved(*PROPOSAL))
async def dismiss_proposal(
    authored: AuthoredPlans,
    session_id: SessionId,
    proposal_id: ProposalId,
    body: NoBody = None,
    if_match: IfMatch = None,
) -> Response:
    """Dismiss a change that the chief has proposed. The plan is not changed."""
    return shown(await authored.dismiss(session_id, proposal_id, seen(body, if_match)))


def seen(body: plan_requests.RevisedBody | None, if_match: str | None) -> int | None:
    """Return the revision that a request was made for; None for any.

    Raises:
        errors.RequestInvalid: body and header name different revisions, or the header is not an ETag.
    """
    return (body or plan_requests.RevisedBody(revision=None)).seen(queries.revision(if_match))


def _etag(plan: plans.Plan) -> str:
    return f'"{plan.revision}"'


def _is_known(plan: plans.Plan, known: frozenset[str]) -> bool:
    return "*" in known or _etag(plan) in known
