"""The route that issues tickets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from app import clock
from app.api import request_models, tickets
from app.api.instants import At
from app.api.json_responses import as_json, declared
from app.api.problem_codes import BODY

router = APIRouter(prefix="/api/tickets", tags=["service"])


class Ticket(BaseModel):
    """A ticket for one stream."""

    model_config = ConfigDict(extra="forbid")

    ticket: str = Field(description="Sent once, as `?ticket=`, to `/ws` or a run's events.")
    expires_at: At


@router.post(
    "",
    status_code=201,
    summary="Issue a ticket for a stream",
    responses=declared(Ticket, *BODY, status=201, meaning="A ticket that opens one stream."),
)
async def issue_ticket(
    request: Request, _body: Annotated[request_models.EmptyBody | None, Body(description="May be left out.")] = None
) -> Response:
    """Issue a one-use ticket, valid for 60 seconds, for streams of clients that cannot send headers."""
    issued: tickets.Tickets = request.app.state.tickets
    ticket, expires = issued.issue()
    headers = {"Cache-Control": "no-store"}
    return as_json({"ticket": ticket, "expires_at": clock.stamp(expires)}, status=201, headers=headers)
