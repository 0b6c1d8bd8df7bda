"""Responses: JSON as bytes, lists that a client can wait for, and what routes declare about their answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from fastapi import Header, Query
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.responses import Response

from app.api import callers, polling, queries, refusals, request_flaws, schemas
from app.api.use_cases import Services
from app.domain import plain, shapes
from app.services import requests

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=request_flaws.KEY_HEADER,
        description="Repeating a request with the same key returns the result of the first one.",
        pattern=requests.IDEMPOTENCY_KEY_PATTERN,
    ),
    AfterValidator(lambda key: key and requests.clients_key(key)),
]
"""Header that makes a request safe to repeat."""

IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="ETags that the client has; an unchanged resource returns 304."),
]
"""Entity tags that the client has."""

# A list depends on many runs, on files that people edit and on other processes, so no single event announces a change:
# a waiting list is read twice a second.
Wait = Annotated[
    float | None,
    Query(
        description="Long poll: return when the list differs from `If-None-Match`, or by default from the "
        "current list, or after this many seconds. The list is checked twice a second.",
        ge=0,
        le=polling.MOST_WAIT_SECONDS,
    ),
]
"""Time for which the client waits for a change of a list."""

WaitForChange = Annotated[
    float | None,
    Query(
        description="Long poll: return at the next change, or after this many seconds.",
        ge=0,
        le=polling.MOST_WAIT_SECONDS,
    ),
]
"""Time for which the client waits for a change of one resource."""

Page: TypeAlias = tuple[Sequence[shapes.Shape | plain.Json], Mapping[str, str]]
"""Elements of a list, and further headers of the answer."""

Rendered: TypeAlias = tuple[bytes, Mapping[str, str], str]  # Body, further headers and entity tag of an answer.

NOT_MODIFIED: refusals.Responses = {304: {"description": "Nothing has changed since the entity tag in If-None-Match."}}
"""Declaration of a route that compares entity tags."""

_ETAG = {"ETag": "Changes whenever the list does."}
_LINK = {"Link": 'Address of the next page, as `rel="next"`; absent on the last page.'}


def as_json(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of plain JSON."""
    content = value.to_json() if isinstance(value, shapes.Shape) else value
    return Response(plain.encode(content), status, dict(headers or {}), media_type="application/json")


def declared(
    shape: Any, *codes: str, status: int = 200, meaning: str = "The answer.", headers: Mapping[str, str] | None = None
) -> refusals.Responses:
    """Return the `responses` of a route: the shape of its answer, and the problems that it can answer with.

    Args:
        headers: Meaning of each header of the answer.
    """
    answer: dict[str, Any] = {"description": meaning}
    if shape is not None:
        answer["content"] = {"application/json": {"schema": schemas.reference(shape)}}
    if headers:
        answer["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()
        }
    return {status: answer, **refusals.documented(codes)}


def created(
    shape: Any, *codes: str, meaning: str, repeated: str, headers: Mapping[str, str] | None = None
) -> refusals.Responses:
    """Return the `responses` of a route that creates something, once for each idempotency key.

    Args:
        repeated: Meaning of the answer to a repeated request.
    """
    responses = declared(shape, *codes, "idempotency_conflict", status=201, meaning=meaning, headers=headers)
    return {**responses, 200: responses[201] | {"description": repeated}}


def whole(shape: Any, *codes: str, meaning: str = "The list.") -> refusals.Responses:
    """Return the `responses` of a route that returns a whole list."""
    return declared(shape, *codes, meaning=meaning, headers=_ETAG) | NOT_MODIFIED


def page(shape: Any, *codes: str, meaning: str) -> refusals.Responses:
    """Return the `responses` of a route that returns pages."""
    codes = (*codes, "bad_cursor")
    return declared(shape, *codes, meaning=meaning, headers=_ETAG | _LINK) | NOT_MODIFIED


async def paged(
    services: Services,
    request: Request,
    query: Any,
    if_none_match: str | None,
    read: Callable[[Any], Awaitable[tuple[Sequence[Any], bool]]],
    place: Callable[[Any], Sequence[str | int]],
) -> Response:
    """Return a page of a list, like `listed`.

    Args:
        query: Filters of the list, from `queries`.
        read: Returns a page, and whether more follow.
        place: Returns the place of an element in the list, for cursors.
    """
    # Every list of this form omits items that its caller may not see.
    wanted = dataclasses.replace(query.query(), scope=callers.caller_of(request).limits)

    async def page() -> Page:
        found, more = await read(wanted)
        return found, queries.next_link(request, queries.cursor(query.of, place(found[-1])) if more else None)

    return await _listed(services, if_none_match, query.wait, page)


async def listed(
    services: Services, if_none_match: str | None, wait: float | None, read: Callable[[], Awaitable[Sequence[Any]]]
) -> Response:
    """Return a list, or 304 to a client that already has it; with `wait`, return as soon as it has changed."""

    async def page() -> Page:
        return await read(), {}

    return await _listed(services, if_none_match, wait, page)


async def _listed(
    services: Services, if_none_match: str | None, wait: float | None, read: Callable[[], Awaitable[Page]]
) -> Response:
    async def render() -> Rendered:
        rows, headers = await read()
        body = plain.encode([row.to_json() if isinstance(row, shapes.Shape) else row for row in rows])
        return body, headers, plain.entity_tag(body + headers.get("Link", "").encode())

    return await conditional(services, if_none_match, wait, render)


async def conditional(
    services: Services, if_none_match: str | None, wait: float | None, render: Callable[[], Awaitable[Rendered]]
) -> Response:
    """Return a view of many runs, or 304 to a client that already has it; with `wait`, return when it has changed."""
    known = polling.entity_tags(if_none_match)
    body, further, etag = rendered = await render()
    if wait:
        old = known or {etag}
        body, further, etag = await services.runs.polls.repeat(
            rendered, render, wait, lambda seen: seen[2] not in old and "*" not in old
        )
    headers = {**further, "ETag": etag, "Cache-Control": "no-cache"}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
