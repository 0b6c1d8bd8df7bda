"""Lists: plain arrays with an entity tag, which a client can wait for."""

# A list depends on many runs, on files that people edit and on other processes, so no single event says that it
# changed: a waiting list is read twice a second.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from fastapi import Header, Query
from starlette.responses import Response

from app.api import polling, problem_codes
from app.api.dependencies import Services
from app.api.json_responses import declared
from app.domain import plain

Page: TypeAlias = tuple[Sequence[plain.Json], Mapping[str, str]]
"""Elements of a list, and further headers of the answer."""

Wait = Annotated[
    float | None,
    Query(
        description="Answer when the list differs from `If-None-Match`, or from the present one, after so many seconds "
        "at the latest; it is looked at twice a second.",
        ge=0,
        le=polling.MOST_WAIT_SECONDS,
    ),
]
"""How long the caller waits for news."""

IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="ETags that the client has; an unchanged resource is a 304.")
]
"""What the caller knows."""

_ETAG = {"ETag": "Changes whenever the list does."}
_NOT_MODIFIED: problem_codes.Responses = {
    304: {"description": "Nothing has changed since the entity tag in If-None-Match."}
}


def whole(shape: Any, *codes: str, meaning: str = "The list.") -> problem_codes.Responses:
    """Return the `responses` of a route that answers with a whole list."""
    return declared(shape, *codes, "request_invalid", meaning=meaning, headers=_ETAG) | _NOT_MODIFIED


def page(shape: Any, *codes: str, meaning: str) -> problem_codes.Responses:
    """Return the `responses` of a route that answers page by page."""
    following = {"Link": 'Address of the next page, as `rel="next"`; absent on the last.'}
    found = declared(shape, *codes, "request_invalid", "bad_cursor", meaning=meaning, headers=_ETAG | following)
    return found | _NOT_MODIFIED


async def answer(
    services: Services, if_none_match: str | None, wait: float | None, read: Callable[[], Awaitable[Page]]
) -> Response:
    """Return a list, or 304 to a client that knows it; with `wait`, as soon as it has news."""
    known = polling.entity_tags(if_none_match)

    async def _look() -> tuple[bytes, Mapping[str, str], str]:
        rows, headers = await read()
        body = plain.encode(rows)
        return body, headers, f'"{plain.sha256(body + headers.get("Link", "").encode())[:32]}"'

    found = await _look()
    if wait:
        old = known or {found[2]}
        found = await services.runs.look(found, _look, wait, lambda seen: seen[2] not in old and "*" not in old)
    body, headers, etag = found
    told = {**headers, "ETag": etag, "Cache-Control": "no-cache"}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=told)
    return Response(body, headers=told, media_type="application/json")
