"""Routes of triggers: schedules, webhooks and file drops that start runs; and the address of deliveries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api import refusals, request_models, responses
from app.api.authors import AuthorDep
from app.api.dependencies import ServicesDep
from app.api.responses import as_json, declared
from app.domain import json_text, triggers
from app.services import requests as run_requests
from app.services.triggers import hooks, requests
from app.services.triggers import triggers as orders

router = APIRouter(prefix="/api/triggers", tags=["triggers"])
deliveries = APIRouter(prefix="/hooks", tags=["triggers"])

TriggerId = Annotated[str, Path(description="Id of the trigger.", examples=["trg_5h2m9q0x7c1v8b3n"])]
"""A trigger's id in a path."""

_RECIPE = (*refusals.RECIPE, "working_dir_refused", "working_dir_missing")
_ADDED = responses.created(
    triggers.TriggerShown,
    *refusals.WRITE,
    *_RECIPE,
    "too_many_triggers",
    meaning="The trigger; it is on disk. `address` and `signing_secret` are shown only now.",
    repeated="An earlier request with this Idempotency-Key made the trigger.",
    headers={"Location": "Address of the trigger."},
)
_FIRED = responses.created(
    run_requests.Moved,
    *refusals.START,
    *refusals.RECIPE,
    "trigger_not_found",
    meaning="The run is accepted and on disk.",
    repeated="An earlier request with this Idempotency-Key made the run.",
    headers={"Location": "Address of the run."},
)
_Name = Annotated[str, Field(min_length=1, max_length=requests.NAME_CHARACTERS)]
_Labels = Annotated[dict[request_models.LabelName, request_models.LabelValue], Field(max_length=run_requests.LABELS)]
_Priority = Annotated[int, Field(ge=run_requests.PRIORITIES[0], le=run_requests.PRIORITIES[-1])]
_Pointers = Annotated[dict[str, Annotated[str, Field(max_length=500)]], Field(max_length=100)]


class ScheduleBody(BaseModel):
    """When runs start: one of `cron`, `every_seconds` and `at`."""

    model_config = request_models.strict({"cron": "30 7 * * MON-FRI", "timezone": "Europe/Berlin"})

    cron: Annotated[str, Field(max_length=200)] | None = Field(None, description="Five fields of cron.")
    timezone: Annotated[str, Field(max_length=100)] = Field("UTC", description="Time zone of `cron`, by its IANA name.")
    every_seconds: int | None = Field(None, description="Seconds between two runs, from 10 to a year.")
    at: Annotated[str, Field(max_length=50)] | None = Field(None, description="One instant, with its offset.")


class WebhookBody(BaseModel):
    """How deliveries are admitted."""

    model_config = request_models.strict({"scheme": "github", "events": ["push"]})

    scheme: triggers.Scheme = Field("none", description="How deliveries are signed.")
    events: Annotated[list[str], Field(max_length=requests.MOST_EVENTS)] = Field(
        default_factory=list, description="Only these events of GitHub; empty: all."
    )
    signing_secret: Annotated[str, Field(max_length=requests.SECRET_CHARACTERS)] | None = Field(
        None, description="Secret of the signatures; by default one is made."
    )


class FilesBody(BaseModel):
    """Which files start runs."""

    model_config = request_models.strict({"pattern": "inbox/*.md"})

    pattern: Annotated[str, Field(max_length=500)] = Field(description="A glob below `working_dir`.")
    settle_seconds: float = Field(2.0, description="How long a file must have stayed the same.", strict=False)
    existing: Literal["ignore", "start"] = Field("ignore", description="What becomes of files that are there now.")


class TriggerBody(BaseModel):
    """A new trigger: one of `schedule`, `webhook` and `files`."""

    model_config = request_models.strict(
        {
            "recipe_id": "analytical_prose",
            "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"},
            "schedule": {"cron": "30 7 * * MON-FRI", "timezone": "Europe/Berlin"},
        },
        {
            "recipe_id": "analytical_prose",
            "args_from": {"scene_path": "/path"},
            "files": {"pattern": "Story/Scenes/*.md"},
        },
    )

    recipe_id: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="Recipe that it starts.")
    name: _Name | None = Field(None, description="What people call it; by default the recipe's id.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments of every run.")
    args_from: _Pointers = Field(
        default_factory=dict,
        description="Arguments that each occurrence brings: JSON pointers into the body of a delivery, or into "
        "`{path, absolute_path, name, size_bytes}` of a file.",
    )
    labels: _Labels = Field(default_factory=dict, description="Labels of every run.")
    priority: _Priority = Field(0, description="Priority of every run.")
    working_dir: str | None = Field(None, description="Workspace of every run; by default the project.")
    overlap: triggers.Overlap | None = Field(
        None, description="While an earlier run is unfinished; by default `skip` for schedules, else `allow`."
    )
    catch_up: triggers.CatchUp = Field("one", description="Which missed occurrences of a schedule are made up for.")
    paused: bool = Field(False, description="Whether it starts nothing at first.")
    schedule: ScheduleBody | None = Field(None, description="When it starts runs.")
    webhook: WebhookBody | None = Field(None, description="Requests that start runs.")
    files: FilesBody | None = Field(None, description="Files that start runs.")

    def new(self, idempotency_key: str | None) -> requests.NewTrigger:
        """Return the trigger that the body and its header describe."""
        kinds = ("schedule", "webhook", "files")
        given = {name: getattr(self, name).model_dump() for name in kinds if getattr(self, name) is not None}
        return requests.NewTrigger(**dict(self) | given, idempotency_key=idempotency_key)


class TriggerEditBody(BaseModel):
    """What is to be changed of a trigger."""

    model_config = request_models.strict({"paused": True}, {"overlap": "queue", "revision": 1})

    name: _Name | None = Field(None, description="Another name.")
    args: dict[str, Any] | None = Field(None, description="Other arguments.")
    args_from: _Pointers | None = Field(None, description="Other pointers.")
    labels: _Labels | None = Field(None, description="Other labels.")
    priority: _Priority | None = Field(None, description="Another priority.")
    overlap: triggers.Overlap | None = Field(None, description="Another policy.")
    catch_up: triggers.CatchUp | None = Field(None, description="Another rule.")
    paused: bool | None = Field(None, description="Pauses it, or lets it continue; a pause is not made up for.")
    schedule: ScheduleBody | None = Field(None, description="Another schedule; it counts from now.")
    revision: Annotated[int, Field(ge=1)] | None = Field(None, description="Revision that was seen.")

    def edit(self) -> requests.TriggerEdit:
        """Return the change."""
        given = {} if self.schedule is None else {"schedule": self.schedule.model_dump()}
        return requests.TriggerEdit(**dict(self) | given)


class FireBody(BaseModel):
    """A run of the trigger, now."""

    model_config = request_models.strict({}, {"args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}})

    args: dict[str, Any] = Field(default_factory=dict, description="Arguments put over those of the trigger.")


@router.get(
    "",
    summary="List triggers",
    responses=responses.whole(list[triggers.TriggerShown], meaning="All triggers, newest first."),
)
async def list_triggers(
    services: ServicesDep, if_none_match: responses.IfNoneMatch = None, wait: responses.Wait = None
) -> Response:
    """List all triggers, newest first, each with its next times and what came of its newest occurrences."""

    async def read() -> responses.Page:
        return await services.triggers.list_triggers(), {}

    return await responses.listed(services, if_none_match, wait, read)


@router.post("", status_code=201, summary="Create a trigger", responses=_ADDED)
async def add_trigger(
    services: ServicesDep, body: TriggerBody, author: AuthorDep, idempotency_key: responses.IdempotencyKey = None
) -> Response:
    """Create a trigger. It is checked against the recipe and its arguments."""
    added = await services.triggers.add(body.new(idempotency_key), author)
    location = {"Location": f"/api/triggers/{added.trigger.trigger_id}"}
    return as_json(added.trigger, status=200 if added.existed else 201, headers=location)


@router.get("/{trigger_id}", summary="Show a trigger", responses=declared(triggers.TriggerShown, "trigger_not_found"))
async def show_trigger(services: ServicesDep, trigger_id: TriggerId) -> Response:
    """Return a trigger with its next times and what came of its newest occurrences."""
    return as_json(await services.triggers.show(trigger_id))


@router.patch(
    "/{trigger_id}",
    summary="Change, pause or continue a trigger",
    responses=declared(triggers.TriggerShown, *refusals.WRITE, *_RECIPE, "trigger_not_found", "trigger_changed"),
)
async def edit_trigger(services: ServicesDep, trigger_id: TriggerId, body: TriggerEditBody) -> Response:
    """Change a trigger. With `revision`, reject stale updates."""
    return as_json(await services.triggers.edit(trigger_id, body.edit()))


@router.delete(
    "/{trigger_id}",
    summary="Remove a trigger",
    status_code=204,
    responses=refusals.documented(("trigger_not_found", "no_room")),
)
async def remove_trigger(services: ServicesDep, trigger_id: TriggerId) -> Response:
    """Remove a trigger. Its runs stay."""
    await services.triggers.remove(trigger_id)
    return Response(status_code=204)


@router.post("/{trigger_id}/fire", status_code=201, summary="Start a run of a trigger now", responses=_FIRED)
async def fire_trigger(
    services: ServicesDep,
    trigger_id: TriggerId,
    author: AuthorDep,
    body: Annotated[FireBody | None, Body()] = None,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Start a run, whether or not the trigger is paused or an earlier run is unfinished."""
    order = orders.Fire(args=body.args if body else {}, idempotency_key=idempotency_key)
    started = await services.triggers.fire(trigger_id, order, author)
    headers = {"Location": f"/api/runs/{started.run_id}"}
    return as_json(started, status=200 if started.existed else 201, headers=headers)


@deliveries.post(
    "/{trigger_id}/{secret}",
    summary="Deliver to a webhook",
    status_code=202,
    responses=declared(
        hooks.Delivery,
        *refusals.WRITE,
        "hook_not_found",
        "hook_refused",
        "signature_invalid",
        status=202,
        meaning="The delivery counts; a repetition with the same id finds the same run.",
    ),
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def deliver(
    services: ServicesDep,
    request: Request,
    trigger_id: TriggerId,
    secret: Annotated[str, Path(description="Secret part of the address.")],
) -> Response:
    """Start the run of a delivery. The address is the credential; no token is needed."""
    body = await request.body()
    # The gateway has refused what is not strict JSON.
    value = json_text.read(body.decode(), exact=True) if body else None
    return as_json(await services.hooks.deliver(trigger_id, secret, request.headers, body, value), status=202)
