"""Lists of runs: one answer for the route and for the gateway, which answers usual queries directly."""

from __future__ import annotations

from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from app.api import queries, responses
from app.api.use_cases import Services


async def page(services: Services, request: Request, query: queries.RunsQuery, known: str | None) -> Response:
    """Return a page of runs, newest first.

    Args:
        known: Entity tags that the client has.
    """
    return await responses.paged(
        services, request, query, known, services.runs.page, lambda run: (run.created_at, run.run_id)
    )


def usual(scope: Scope) -> tuple[Request, queries.RunsQuery, str | None] | None:
    """Return the arguments of `page` for a request; None for a request that the route may have to refuse."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    request, parameters = Request(scope), dict(pairs)
    tags = request.headers.getlist("if-none-match")
    if len(parameters) < len(pairs) or len(tags) > 1:
        return None
    try:
        query = queries.RunsQuery.model_validate(parameters)
    except ValidationError:
        return None
    return request, query, tags[0] if tags else None
