"""Direct answers: the most frequent requests in their usual form, answered without matching a route."""

# Matching the route, solving dependencies and reading parameters cost several times what these answers cost. A request
# in another form, and one that is wrong in any way, goes to the route of its address: that calls the same function and
# words every refusal.

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import pydantic
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Scope

from app import errors
from app.api import callers, polling, queries, request_models, responses, scoping
from app.api.dependencies import Services
from app.domain import plain
from app.domain.authors import Author
from app.services import requests

_POLL = re.compile(r"/api/runs/([A-Za-z0-9_-]{1,64})")
_WAIT = re.compile(rb"wait=([0-9]{1,2}(\.[0-9]{1,6})?)")


@dataclass(frozen=True, slots=True)
class _Route:
    path: str


_ALIVE = b'{"status":"ok"}'
_RUNS, _SHOW, _HEALTH = _Route("/api/runs"), _Route("/api/runs/{run_id}"), _Route("/healthz")


async def answer(services: Services, scope: Scope, body: object) -> Response | None:
    """Return the answer to a request; None: its route answers it.

    Args:
        body: Value of the request's body; None without one.
    """
    # A second way beside the routes, so it may only say what they would: whatever is unusual or refused returns None,
    # and the route, which has all the rules, answers it.
    found = _AT.get((scope["method"], scope["path"]), _poll)
    return await found(services, scope, body)


def alive() -> Response:
    """Return the answer of a process that is alive."""
    return Response(_ALIVE, media_type="application/json")


async def start(
    services: Services, connection: HTTPConnection, request: requests.StartRequest, author: Author
) -> Response:
    """Start a run and return the answer."""
    caller = callers.caller_of(connection)
    if caller.limits is not None:
        request = await scoping.started(services, caller, request)
    found = await services.runs.start(request, author=author)
    headers = {"Location": f"/api/runs/{found.run_id}"}
    status = 200 if found.existed else 201
    return Response(plain.encode(found.to_json()), status, headers, media_type="application/json")


async def _start(services: Services, scope: Scope, body: Any) -> Response | None:
    keys = _header(scope, b"idempotency-key")
    if body is None or scope["query_string"] or len(keys) > 1:
        return None
    key = keys[0].decode("latin-1") if keys else None
    if key is not None and key.startswith(requests.OWN_KEYS):
        return None
    try:
        wanted = request_models.StartBody.model_validate(body)
        connection = HTTPConnection(scope)
        author = callers.author_of(connection)
    except (pydantic.ValidationError, errors.RequestInvalid):
        return None
    if requests.key_flaws(key):
        return None
    scope["route"] = _RUNS
    return await start(services, connection, wanted.request(key), author)


async def runs_listed(services: Services, request: Request, query: queries.RunsQuery, known: str | None) -> Response:
    """Return a page of runs, newest first.

    Args:
        known: Entity tags that the client has.
    """
    return await responses.paged(
        services, request, query, known, services.runs.page, lambda run: (run.created_at, run.run_id)
    )


async def _list(services: Services, scope: Scope, _body: object) -> Response | None:
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    tags, asked = _header(scope, b"if-none-match"), dict(given)
    if len(asked) < len(given) or len(tags) > 1:
        return None
    try:
        query = queries.RunsQuery.model_validate(asked)
    except pydantic.ValidationError:
        return None
    scope["route"] = _RUNS
    return await runs_listed(services, Request(scope), query, tags[0].decode("latin-1") if tags else None)


async def _alive(_services: Services, scope: Scope, _body: object) -> Response | None:
    if scope["query_string"]:
        return None
    scope["route"] = _HEALTH
    return alive()


async def _poll(services: Services, scope: Scope, _body: object) -> Response | None:
    if scope["method"] != "GET":
        return None
    matched, seconds = _POLL.fullmatch(scope["path"]), _wait(scope["query_string"])
    if matched is None or seconds is None:
        return None
    scope["route"] = _SHOW
    tags = _header(scope, b"if-none-match")
    known = polling.entity_tags(b",".join(tags).decode("latin-1") if tags else None)
    return await polling.shown(services, matched[1], seconds, known)


def _wait(query: bytes) -> float | None:
    if not query:
        return 0.0
    matched = _WAIT.fullmatch(query)
    seconds = float(matched[1]) if matched else None
    # Whatever else is asked for is the route's to refuse.
    return seconds if seconds is not None and seconds <= polling.MOST_WAIT_SECONDS else None


def _header(scope: Scope, name: bytes) -> list[bytes]:
    return [value for known, value in scope["headers"] if known == name]


_Direct: TypeAlias = Callable[[Services, Scope, Any], Awaitable[Response | None]]
_AT: Mapping[tuple[str, str], _Direct] = {
    ("POST", "/api/runs"): _start,
    ("GET", "/api/runs"): _list,
    ("GET", "/healthz"): _alive,
}
