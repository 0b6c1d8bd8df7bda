"""Routes of a run's parts: its graph, steps, slots and events (execution-modes, appendix D)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated

from fastapi import Depends, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.api import polling, queries, responses, routers, scoping, streaming
from app.api.dependencies import ServicesDep
from app.api.responses import as_json, declared
from app.api.runs import RunId
from app.domain import explanations, graphs, plain, records, slots, views
from app.services import event_streams, step_portions

router = routers.router(prefix="/api/runs", tags=["runs"])

_CHUNK_BYTES = 64 * 1024
_LAST_SEQ = 2**53


@router.get(
    "/{run_id}/steps",
    summary="Show the step log",
    responses=responses.page(
        list[records.StepLine] | list[views.StepShown],
        "run_not_found",
        "journal_corrupt",
        meaning="Lines of the journal, oldest first; with `attempts`, finished steps as in `GET /api/runs/{run_id}`.",
    ),
)
async def show_steps(
    services: ServicesDep,
    request: Request,
    run_id: RunId,
    limit: Annotated[
        int | None,
        Query(description="Page size; by default all lines, or 200 steps.", ge=1, le=queries.MAX_LIMIT),
    ] = None,
    cursor: Annotated[
        str | None,
        Query(
            description="Start of the page, from the previous `Link` header; with `attempts`, the index of the "
            "step before the page."
        ),
    ] = None,
    attempts: Annotated[
        bool, Query(description="Return finished steps as in `GET /api/runs/{run_id}`, each with its earlier attempts.")
    ] = False,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """Return the journal lines in full, including retries and lines set aside by a resume.

    With `attempts=true`, return the finished steps in the form of the run's answer, without outputs; `cursor` is an
    index then, so that any portion of a long run can be read directly.
    """
    if attempts:
        return await _portion(services, request, run_id, queries.position(cursor), limit, if_none_match)
    lines, more = await services.runs.steps_page(run_id, after=queries.position(cursor), limit=limit)
    following = str(lines[-1].position) if more else None
    headers = {**queries.next_link(request, following), "ETag": _etag(lines), "Cache-Control": "no-cache"}
    if polling.entity_tags(if_none_match) & {headers["ETag"], "*"}:
        return Response(status_code=304, headers=headers)
    return StreamingResponse(_encoded(lines), headers=headers, media_type="application/json")


@router.get(
    "/{run_id}/graph",
    summary="Show a run's graph",
    responses=declared(
        graphs.Graph, "run_not_found", "journal_corrupt", headers={"ETag": "Changes whenever the response does."}
    )
    | responses.NOT_MODIFIED,
)
async def show_graph(services: ServicesDep, run_id: RunId, if_none_match: responses.IfNoneMatch = None) -> Response:
    """Return the flow of the run's frozen recipe, with the state of each node and the edges taken so far."""
    graph = await services.runs.graph(run_id)
    return polling.unless_known(graph.body, graph.etag, polling.entity_tags(if_none_match))


@router.get(
    "/{run_id}/why",
    summary="Explain why a run makes no progress",
    responses=declared(explanations.Explanation, "run_not_found", "journal_corrupt"),
)
async def explain_run(services: ServicesDep, request: Request, run_id: RunId) -> Response:
    """Return one sentence and the chain of causes behind it, through the runs for which this one waits."""
    return as_json(await services.explanations.why(run_id, scoping.limits_of(request)))


@router.get(
    "/{run_id}/request",
    summary="Show the request of an open step",
    responses=declared(explanations.StepRequest, "run_not_found", "step_not_open", "journal_corrupt"),
)
async def show_request(
    services: ServicesDep,
    run_id: RunId,
    key: Annotated[str, Query(description="Name of the step within its run.", examples=["draft"])],
) -> Response:
    """Return the prompt, command or arguments of a step that is being performed, and its addressee."""
    return as_json(await services.explanations.request(run_id, key))


@router.get(
    "/{run_id}/cache/{slot}",
    summary="Read a slot",
    responses=declared(slots.PointerSlot | slots.ArtifactSlot, "run_not_found", "slot_not_found", "journal_corrupt"),
)
async def show_slot(
    services: ServicesDep,
    run_id: RunId,
    slot: Annotated[str, Path(description="Name of the slot.", examples=["draft"])],
) -> Response:
    """Return the receipt of a pointer slot, or the full text of an artifact."""
    return as_json(await services.runs.reader.slot(run_id, slot))


async def _followed(
    services: ServicesDep,
    run_id: RunId,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="Number of the last event seen; the stream continues after it.",
            pattern=r"^[0-9]{1,15}$",
        ),
    ] = None,
    after: Annotated[
        int, Query(description="Same as `Last-Event-ID`, for clients that cannot set headers.", ge=0, le=_LAST_SEQ)
    ] = 0,
) -> AsyncGenerator[event_streams.Batch, None]:
    return await services.runs.stream(run_id, after if last_event_id is None else int(last_event_id))


@router.get(
    "/{run_id}/events",
    summary="Follow a run's events",
    status_code=200,
    response_class=streaming.EventStream,
    responses=declared(None, "run_not_found", meaning="Events, until the run has ended."),
)
async def follow_events(
    following: Annotated[AsyncGenerator[event_streams.Batch, None], Depends(_followed)],
) -> Response:
    """Stream a run's events as Server-Sent Events, from the first or after `Last-Event-ID`, until it ends."""
    return streaming.EventStream(following, streaming.batch)


async def _portion(
    services: ServicesDep, request: Request, run_id: str, after: int, limit: int | None, if_none_match: str | None
) -> Response:
    portion = await services.runs.steps_portion(run_id, after=after, limit=limit or step_portions.USUAL)
    following = None if portion.last is None else str(portion.last)
    headers = {**queries.next_link(request, following), "ETag": portion.etag, "Cache-Control": "no-cache"}
    if polling.entity_tags(if_none_match) & {portion.etag, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(portion.body, headers=headers, media_type="application/json")


def _etag(lines: Sequence[records.Record]) -> str:
    # Each line contains the hash of the previous line, so the last one identifies all.
    ends = [lines[0].position, plain.plain(lines[-1].line)] if lines else []
    return plain.entity_tag(plain.encode(ends))


async def _encoded(lines: Sequence[records.Record]) -> AsyncIterator[bytes]:
    chunk = bytearray(b"[")
    for index in range(len(lines)):
        chunk += (b"," if index else b"") + plain.encode(lines[index].line)
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
            # A long log must not block the loop, even if its reader is fast.
            await asyncio.sleep(0)
    yield bytes(chunk) + b"]"
