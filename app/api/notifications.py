"""Routes of notifications: endpoints that receive messages about runs, and undelivered messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fastapi import Body, Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from app.api import refusals, request_models, responses, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import notifications, shapes
from app.services.notifications import requests

router = routers.router(prefix="/api/notifications/endpoints", tags=["notifications"])

EndpointId = Annotated[str, Path(description="Id of the endpoint.", examples=["ep_5h2m9q0x7c1v8b3n"])]
"""An endpoint's id in a path."""

_ADDED = responses.created(
    notifications.EndpointShown,
    *refusals.WRITE,
    "unknown_recipe",
    "too_many_endpoints",
    meaning="The endpoint; it is on disk. `signing_secret` is shown only now.",
    repeated="An earlier request with this Idempotency-Key added the endpoint.",
)
_Words = Annotated[list[Annotated[str, Field(max_length=4000)]], Field(max_length=requests.MOST_WORDS)]


class EndpointBody(BaseModel):
    """A new endpoint: one of `url`, `to` and `argv`."""

    model_config = request_models.strict(
        {"url": "https://hooks.example.org/runs", "kinds": ["failed", "waits"]},
        {"to": ["editor@example.org"], "kinds": ["waits"], "label": "book:one"},
        {"argv": ["notify-send", "Control Room"], "recipe_id": "creative_draft_scene"},
    )

    name: Annotated[str, Field(min_length=1, max_length=requests.NAME_CHARACTERS)] | None = Field(
        None, description="What people call it; by default how it is reached."
    )
    url: Annotated[str, Field(max_length=2000)] | None = Field(None, description="Address of a webhook.")
    signing_secret: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="`whsec_` and a key in base64; by default one is made."
    )
    to: _Words = Field(default_factory=list, description="Addresses of e-mail.")
    argv: _Words = Field(
        default_factory=list, description="Program and arguments; the message is on its standard input, as JSON."
    )
    kinds: list[notifications.Kind] = Field(default_factory=list, description="Kinds of messages to send; empty: all.")
    recipe_id: Annotated[str, Field(max_length=200)] | None = Field(None, description="Only runs of this recipe.")
    label: Annotated[str, Field(max_length=400)] | None = Field(
        None, description="Only runs with this label, `name:value`."
    )

    def new(self, idempotency_key: str | None) -> requests.NewEndpoint:
        """Return the endpoint that the body and its header describe."""
        lists = {name: tuple(getattr(self, name)) for name in ("to", "argv", "kinds")}
        return requests.NewEndpoint(**dict(self) | lists, idempotency_key=idempotency_key)


class EndpointEditBody(BaseModel):
    """Changes to an endpoint; omitted fields are unchanged."""

    model_config = request_models.strict(
        {"kinds": ["failed"]}, {"url": "https://hooks.example.org/other"}, {"signing_secret": None}
    )

    name: Annotated[str, Field(min_length=1, max_length=requests.NAME_CHARACTERS)] = Field("", description="Its name.")
    url: Annotated[str, Field(max_length=2000)] = Field("", description="Another address of a webhook.")
    signing_secret: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Another secret of a webhook; null makes one."
    )
    to: _Words = Field(default_factory=list, description="Other addresses of e-mail.")
    argv: _Words = Field(default_factory=list, description="Another program, with its arguments.")
    kinds: list[notifications.Kind] = Field(default_factory=list, description="Kinds of messages to send; empty: all.")
    recipe_id: Annotated[str, Field(max_length=200)] | None = Field(None, description="Only runs of this recipe.")
    label: Annotated[str, Field(max_length=400)] | None = Field(None, description="Only runs with this label.")


class MessageBody(BaseModel):
    """Selects a message; empty: all."""

    model_config = request_models.strict({}, {"message_id": "msg_5h2m9q0x7c1v8b3n5h2m9q0x"})

    message_id: Annotated[str, Field(max_length=100)] | None = Field(None, description="Only this message.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(shapes.Shape):
    """Result of an order to deliver again."""

    published_as: ClassVar[str] = "NotificationReplayed"

    replayed: int  # Messages that are delivered again.


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp(shapes.Shape):
    """Result of an order to give up."""

    published_as: ClassVar[str] = "NotificationGivenUp"

    given_up: int  # Messages that will not be tried again.


@router.get(
    "",
    summary="List endpoints of notifications",
    responses=responses.whole(list[notifications.EndpointShown], meaning="All endpoints, newest first."),
)
async def list_endpoints(
    services: ServicesDep, if_none_match: responses.IfNoneMatch = None, wait: responses.Wait = None
) -> Response:
    """List endpoints, each with its number of waiting messages and of dead letters."""
    return await responses.listed(services, if_none_match, wait, services.endpoints.list_endpoints)


@router.post("", status_code=201, summary="Add an endpoint of notifications", responses=_ADDED)
async def add_endpoint(
    services: ServicesDep, body: EndpointBody, author: AuthorDep, idempotency_key: responses.IdempotencyKey = None
) -> Response:
    """Add an endpoint: a webhook, e-mail addresses, or a command."""
    added, existed = await services.endpoints.add(body.new(idempotency_key), author)
    return as_json(added, status=200 if existed else 201)


@router.patch(
    "/{endpoint_id}",
    summary="Change an endpoint of notifications",
    responses=declared(
        notifications.EndpointShown,
        *refusals.WRITE,
        "unknown_recipe",
        "endpoint_not_found",
        meaning="The endpoint; it is on disk. Another `signing_secret` is shown only now.",
    ),
)
async def edit_endpoint(
    services: ServicesDep, endpoint_id: EndpointId, body: EndpointEditBody, author: AuthorDep
) -> Response:
    """Change an endpoint. Waiting messages are sent to the changed endpoint."""
    edit = requests.EndpointEdit(changes=body.model_dump(exclude_unset=True))
    return as_json(await services.endpoints.edit(endpoint_id, edit, author))


@router.delete(
    "/{endpoint_id}",
    summary="Remove an endpoint of notifications",
    status_code=204,
    responses=refusals.documented(("endpoint_not_found", "no_room")),
)
async def remove_endpoint(services: ServicesDep, endpoint_id: EndpointId, author: AuthorDep) -> Response:
    """Remove an endpoint with its dead letters."""
    await services.endpoints.remove(endpoint_id, author)
    return Response(status_code=204)


@router.post(
    "/{endpoint_id}/test",
    summary="Send a test message",
    responses=declared(notifications.Tried, *refusals.BODY, "endpoint_not_found"),
)
async def try_endpoint(
    services: ServicesDep,
    endpoint_id: EndpointId,
    _body: Annotated[request_models.EmptyBody | None, Body(description="May be left out.")] = None,
) -> Response:
    """Send one message now, once, and return the result."""
    return as_json(await services.endpoints.test(endpoint_id))


@router.get(
    "/{endpoint_id}/failing",
    summary="List messages that are tried again",
    responses=declared(list[notifications.FailingMessage], "endpoint_not_found"),
)
async def list_failing(services: ServicesDep, endpoint_id: EndpointId) -> Response:
    """List the messages whose newest attempt failed, the next one to be tried first."""
    return as_json([each.to_json() for each in await services.endpoints.list_failing(endpoint_id)])


@router.post(
    "/{endpoint_id}/give-up",
    summary="Give up messages that are tried again",
    responses=declared(GivenUp, *refusals.WRITE, "endpoint_not_found", "message_not_found"),
)
async def give_up(
    services: ServicesDep,
    endpoint_id: EndpointId,
    author: AuthorDep,
    body: Annotated[MessageBody | None, Body()] = None,
) -> Response:
    """Give up one message, or all whose newest attempt failed. They become dead letters."""
    count = await services.endpoints.give_up(endpoint_id, body.message_id if body else None, author)
    return as_json(GivenUp(given_up=count))


@router.get(
    "/{endpoint_id}/dead",
    summary="List dead letters",
    responses=declared(list[notifications.DeadLetter], "endpoint_not_found"),
)
async def list_dead(services: ServicesDep, endpoint_id: EndpointId) -> Response:
    """List the messages that were given up, newest first."""
    return as_json([letter.to_json() for letter in await services.endpoints.list_dead(endpoint_id)])


@router.post(
    "/{endpoint_id}/replay",
    summary="Deliver dead letters again",
    responses=declared(Replayed, *refusals.WRITE, "endpoint_not_found", "message_not_found"),
)
async def replay(
    services: ServicesDep,
    endpoint_id: EndpointId,
    author: AuthorDep,
    body: Annotated[MessageBody | None, Body()] = None,
) -> Response:
    """Deliver one dead letter again, or all."""
    count = await services.endpoints.replay(endpoint_id, body.message_id if body else None, author)
    return as_json(Replayed(replayed=count))
