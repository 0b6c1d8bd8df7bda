"""Routes of a run's logs: whole, in parts, and followed while they grow."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Depends, Header, Path, Query
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app.api import polling, problems, refusals, responses, routers, streaming
from app.api.dependencies import ServicesDep
from app.api.responses import declared
from app.api.runs import RunId
from app.domain import plain
from app.services import log_tails

router = routers.router(prefix="/api/runs", tags=["runs"])

LogName = Annotated[str, Path(description="Name of the log.", examples=["draft.1.reply.md"])]
"""A log's name in a path."""

_LAST_BYTE = 2**53
_RANGE = re.compile(r"bytes=([0-9]{0,16})-([0-9]{0,16})", re.ASCII)
_Tail = Annotated[
    int | None, Query(description="Number of bytes from the end; the same as `Range: bytes=-N`.", ge=1, le=_LAST_BYTE)
]


@router.get(
    "/{run_id}/logs",
    summary="List a run's logs",
    responses=responses.whole(list[str], "run_not_found", meaning="Names."),
)
async def list_logs(
    services: ServicesDep, run_id: RunId, wait: responses.Wait = None, if_none_match: responses.IfNoneMatch = None
) -> Response:
    """List the stored prompts, replies and command outputs."""
    return await responses.listed(services, if_none_match, wait, lambda: services.runs.logs(run_id))


@router.get(
    "/{run_id}/logs/{name}",
    summary="Read a log",
    response_class=PlainTextResponse,
    responses=refusals.documented(("run_not_found", "log_not_found", "range_not_satisfiable"))
    | responses.NOT_MODIFIED
    | {
        200: {"description": "The log."},
        206: {"description": "The part that `Range` or `tail` requests, as `Content-Range` specifies."},
    },
)
async def show_log(
    services: ServicesDep,
    run_id: RunId,
    name: LogName,
    tail: _Tail = None,
    wanted: Annotated[
        str | None,
        Header(alias="Range", description="One range of bytes; anything else is ignored.", examples=["bytes=-65536"]),
    ] = None,
    if_range: Annotated[str | None, Header(alias="If-Range", description="ETag that the range belongs to.")] = None,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """Return one log or a part of it, even while it grows; secrets are masked."""
    found = await services.runs.log_part(run_id, name, 0, most=0)
    etag, size = f'"{found.version}"', found.size_bytes
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Accept-Ranges": "bytes"}
    if polling.entity_tags(if_none_match) & {etag, "*"}:
        return Response(status_code=304, headers=headers)
    span = _tail(tail, size) if tail is not None else _range(wanted, size) if if_range in (None, etag) else None
    if span is not None and span[0] >= span[1]:
        refused = {**headers, "Content-Range": f"bytes */{size}"}
        detail = f"the log {name:.200} has {size} bytes; ask for a range within them"
        return problems.of_status(416, detail, headers=refused).response()
    first, end = span or (0, size)
    status = 200 if span is None else 206
    if span is not None:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    if end - first <= log_tails.PART_BYTES:
        content = (await services.runs.log_part(run_id, name, first, end - first)).content
        return Response(content, status, headers, media_type="text/plain")
    return StreamingResponse(
        services.runs.tails.span(run_id, name, first, end), status, headers, media_type="text/plain"
    )


async def _followed(
    services: ServicesDep,
    run_id: RunId,
    name: LogName,
    tail: _Tail = None,
    offset: Annotated[int, Query(description="Byte offset to start at.", ge=0, le=_LAST_BYTE)] = 0,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="Byte offset after the last text seen; the stream continues there.",
            pattern=r"^[0-9]{1,15}$",
        ),
    ] = None,
) -> AsyncGenerator[log_tails.Piece, None]:
    begin = offset if tail is None else -tail
    return await services.runs.follow_log(run_id, name, begin if last_event_id is None else int(last_event_id))


@router.get(
    "/{run_id}/logs/{name}/stream",
    summary="Follow a log",
    status_code=200,
    response_class=streaming.EventStream,
    responses=declared(None, "run_not_found", "log_not_found", meaning="The log while it grows, until the run ends."),
)
async def follow_log(following: Annotated[AsyncGenerator[log_tails.Piece, None], Depends(_followed)]) -> Response:
    """Stream a log as Server-Sent Events: `{offset, text}` while it grows, `reset` if it is replaced, then `end`."""
    return streaming.EventStream(following, _server_sent)


def _server_sent(piece: log_tails.Piece) -> bytes:
    if piece.kind == "alive":
        return streaming.SIGN_OF_LIFE
    shown = {"offset": piece.offset, "text": piece.text} if piece.kind == "text" else {"offset": piece.offset}
    return b"event: %b\ndata: %b\nid: %d\n\n" % (piece.kind.encode(), plain.encode(shown), piece.following)


def _tail(tail: int, size: int) -> tuple[int, int] | None:
    return (max(size - tail, 0), size) if size else None


def _range(wanted: str | None, size: int) -> tuple[int, int] | None:
    """Return the bounds of a range, empty if the log has no part of it; None if the text is not a range."""
    asked = _RANGE.fullmatch(wanted or "")
    if asked is None or asked[0] == "bytes=-":
        return None
    first, last = asked[1], asked[2]
    if not first:
        return (max(size - int(last), 0), size) if int(last) else (0, 0)
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1, size) if last else size
