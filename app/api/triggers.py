"""Routes of triggers: schedules, webhooks and file drops that start runs; and the address of deliveries."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path
from starlette.requests import Request
from starlette.responses import Response

from app.api import callers, refusals, responses, routers, trigger_requests
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import triggers
from app.services import requests as run_requests
from app.services.triggers import hooks
from app.services.triggers import triggers as orders

router = routers.router(prefix="/api/triggers", tags=["triggers"])
deliveries = routers.router(prefix="/hooks", tags=["triggers"])

_KINDS = ("application/json", "application/x-www-form-urlencoded")

TriggerId = Annotated[str, Path(description="Id of the trigger.", examples=["trg_5h2m9q0x7c1v8b3n"])]
"""A trigger's id in a path."""

_FOUND = ("trigger_not_found", "file_damaged")
_RECIPE = (*refusals.RECIPE, "working_dir_refused", "working_dir_missing", "approvals_need_keys")
_ADDED = responses.created(
    triggers.TriggerShown,
    *refusals.WRITE,
    *_RECIPE,
    "too_many_triggers",
    "file_damaged",
    meaning="The trigger; it is on disk. `address` and `signing_secret` are shown only now.",
    repeated="An earlier request with this Idempotency-Key created the trigger.",
    headers={"Location": "Address of the trigger."},
)
_FIRED = responses.created(
    run_requests.Moved,
    *refusals.START,
    *refusals.EXECUTED,
    *refusals.CONVERSATION,
    *_FOUND,
    meaning="The run is accepted and on disk.",
    repeated="An earlier request with this Idempotency-Key created the run.",
    headers={"Location": "Address of the run."},
)


@router.get(
    "",
    summary="List triggers",
    responses=responses.whole(
        list[triggers.TriggerShown], meaning="All triggers, newest first, and then damaged ones."
    ),
)
async def list_triggers(
    services: ServicesDep, if_none_match: responses.IfNoneMatch = None, wait: responses.Wait = None
) -> Response:
    """List all triggers, newest first, each with its next times and the results of its newest occurrences."""
    return await responses.listed(services, if_none_match, wait, services.triggers.list_triggers)


@router.post("", status_code=201, summary="Create a trigger", responses=_ADDED)
async def add_trigger(
    services: ServicesDep,
    body: trigger_requests.TriggerBody,
    author: AuthorDep,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Create a trigger. It is checked against the recipe, its arguments and its approvals."""
    added = await services.triggers.add(body.new(idempotency_key), author)
    location = {"Location": f"/api/triggers/{added.trigger.trigger_id}"}
    return as_json(added.trigger, status=200 if added.existed else 201, headers=location)


@router.get("/{trigger_id}", summary="Show a trigger", responses=declared(triggers.TriggerShown, *_FOUND))
async def show_trigger(services: ServicesDep, trigger_id: TriggerId) -> Response:
    """Return a trigger with its next times and the results of its newest occurrences."""
    return as_json(await services.triggers.show(trigger_id))


@router.patch(
    "/{trigger_id}",
    summary="Change, pause or continue a trigger",
    responses=declared(triggers.TriggerShown, *refusals.WRITE, *_RECIPE, *_FOUND, "trigger_changed"),
)
async def edit_trigger(
    services: ServicesDep, trigger_id: TriggerId, body: trigger_requests.TriggerEditBody, author: AuthorDep
) -> Response:
    """Change a trigger. With `revision`, reject stale updates."""
    return as_json(await services.triggers.edit(trigger_id, body.edit(), author))


@router.delete(
    "/{trigger_id}",
    summary="Remove a trigger",
    status_code=204,
    responses=refusals.documented((*_FOUND, "no_room")),
)
async def remove_trigger(services: ServicesDep, trigger_id: TriggerId, author: AuthorDep) -> Response:
    """Remove a trigger. Its runs are kept."""
    await services.triggers.remove(trigger_id, author)
    return Response(status_code=204)


@router.post("/{trigger_id}/fire", status_code=201, summary="Start a run of a trigger now", responses=_FIRED)
async def fire_trigger(
    services: ServicesDep,
    request: Request,
    trigger_id: TriggerId,
    author: AuthorDep,
    body: Annotated[trigger_requests.FireBody | None, Body()] = None,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Start a run, even if the trigger is paused or an earlier run is unfinished."""
    order = orders.Fire(**dict(body) if body else {}, idempotency_key=idempotency_key)
    asked_by = await callers.run_of(services, request, order.parent_run_id)
    started = await services.triggers.fire(trigger_id, order, author, asked_by=asked_by)
    headers = {"Location": f"/api/runs/{started.run_id}"}
    return as_json(started, status=200 if started.existed else 201, headers=headers)


@deliveries.post(
    "/{trigger_id}/{secret}",
    summary="Deliver to a webhook",
    status_code=202,
    responses=declared(
        hooks.HookOutcome,
        *refusals.WRITE,
        "hook_not_found",
        "hook_refused",
        "signature_invalid",
        status=202,
        meaning="The delivery is accepted; a repeated delivery with the same id returns the same run.",
    ),
    openapi_extra={"requestBody": {"content": {kind: {"schema": {"type": "object"}} for kind in _KINDS}}},
)
async def deliver(
    services: ServicesDep,
    request: Request,
    trigger_id: TriggerId,
    secret: Annotated[str, Path(description="Secret part of the address.")],
) -> Response:
    """Start the run of a delivery. The address is the credential; no token is needed."""
    # The signature covers the bytes of the body; the gateway has read their content, even from a form.
    body, value = await request.body(), request.scope.get(callers.BODY)
    asked_by = await callers.run_of(services, request)
    sent = hooks.HookRequest(headers=request.headers, body=body, value=value, asked_by=asked_by)
    return as_json(await services.hooks.accept(trigger_id, secret, sent), status=202)
