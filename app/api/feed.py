"""The route that streams the events of all runs."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Depends, Header, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from app.api import queries, routers, streaming
from app.api.dependencies import LimitsDep, ServicesDep
from app.api.responses import declared
from app.domain import plain
from app.services import event_feeds

router = routers.router(prefix="/api", tags=["runs"])

_LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="Id of the last event seen; the stream continues after it. If the id is no longer known, "
        "the stream sends `event: reset`.",
        max_length=200,
    ),
]


class FeedStream(StreamingResponse):
    """Sends feed items until they end or the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, items: AsyncGenerator[event_feeds.FeedItem, None]) -> None:
        super().__init__((), headers=streaming.HEADERS)
        self._items = items

    async def stream_response(self, send: Send) -> None:
        """Send one portion after the other, each as soon as the client has taken the previous one."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._items) as found:
            async for item in found:
                await send({"type": "http.response.body", "body": _written(item), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _followed(
    services: ServicesDep,
    query: Annotated[queries.FeedQuery, Query()],
    limits: LimitsDep,
    last_event_id: _LastEventId = None,
) -> AsyncGenerator[event_feeds.FeedItem, None]:
    return services.feed.follow(
        dataclasses.replace(query.filter(), scope=limits), last_event_id if last_event_id is not None else query.after
    )


@router.get(
    "/events",
    summary="Follow the events of all runs",
    status_code=200,
    response_class=FeedStream,
    responses=declared(None, meaning="Events, until the client disconnects."),
)
async def follow_all(
    following: Annotated[AsyncGenerator[event_feeds.FeedItem, None], Depends(_followed)],
) -> Response:
    """Stream events of all runs as Server-Sent Events, with the fields of a run's own stream; ids are opaque.

    The stream is a hint: it sends each event at least once, keeps the newest 10,000 of an hour, and after
    `event: reset` a client reads its lists again.
    """
    return FeedStream(following)


def _written(item: event_feeds.FeedItem) -> bytes:
    if item.reset is not None:
        return b"event: reset\ndata: %b\nid: %b\n\n" % (plain.encode({"reason": item.reset}), item.cursor.encode())
    if item.encoded:
        return item.encoded
    # An id without data moves the client's position and is not an event.
    return b": ping\nid: %b\n\n" % item.cursor.encode()
