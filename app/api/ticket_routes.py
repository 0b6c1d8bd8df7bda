"""Routes of tickets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from fastapi import Body
from starlette.requests import Request
from starlette.responses import Response

from app import clock
from app.api import callers, refusals, request_models, routers, tickets
from app.api.dependencies import AuthorDep
from app.api.responses import as_json, declared
from app.domain import shapes

router = routers.router(prefix="/api/tickets", tags=["service"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket(shapes.Shape):
    """A ticket for one stream."""

    ticket: str
    """Sent once, as `?ticket=`, to `/ws`, a run's events, those of all runs or the stream of a log."""
    expires_at: shapes.Instant  # Time at which it becomes invalid.


@router.post(
    "",
    status_code=201,
    summary="Issue a ticket for a stream",
    responses=declared(Ticket, *refusals.BODY, status=201, meaning="A ticket that opens one stream."),
)
async def issue_ticket(
    request: Request,
    author: AuthorDep,
    _body: Annotated[request_models.EmptyBody | None, Body(description="Optional.")] = None,
) -> Response:
    """Issue a one-use ticket, valid for 60 seconds, for streams of clients that cannot send headers."""
    issued: tickets.Tickets = request.app.state.tickets
    ticket, expires = issued.issue(dataclasses.replace(callers.caller_of(request), author=author))
    headers = {"Cache-Control": "no-store"}
    return as_json(Ticket(ticket=ticket, expires_at=clock.stamp(expires)), status=201, headers=headers)
