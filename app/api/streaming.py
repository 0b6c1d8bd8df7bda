"""Streaming: Server-Sent Events; those of a run are encoded once for all followers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Send

from app.domain import events, plain
from app.services import event_streams

ITEM_SCHEMA = {
    "type": "object",
    "properties": {
        "data": {"type": "string"},
        "event": {"type": "string"},
        "id": {"type": "string"},
        "retry": {"type": "integer", "minimum": 0},
    },
}
"""Schema of a Server-Sent Event in the OpenAPI document."""

SIGN_OF_LIFE = b": ping\n\n"  # A comment that keeps a silent connection open.

T = TypeVar("T")

_UNKNOWN = "unknown"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # Headers of streams.


class EventStream(StreamingResponse):
    """Sends events until they end or the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, portions: AsyncGenerator[T, None], encoded: Callable[[T], bytes]) -> None:
        super().__init__((), headers=HEADERS)
        self._portions: AsyncGenerator[Any, None] = portions
        self._encoded: Callable[[Any], bytes] = encoded

    async def stream_response(self, send: Send) -> None:
        """Send one portion after the other, each as soon as the client has taken the previous one."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._portions) as portions:
            async for portion in portions:
                await send({"type": "http.response.body", "body": self._encoded(portion), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def batch(portion: event_streams.Batch) -> bytes:
    """Return events that are published together, encoded."""
    return portion.encoded(server_sent) if portion.events else SIGN_OF_LIFE


def server_sent(event: events.Event, cursor: str | None = None) -> bytes:
    """Return one encoded event; JSON has no line breaks, and only a file written by hand has a type with one.

    Args:
        cursor: Id of the event; None: its number.
    """
    name = event.type if event.type.isprintable() else _UNKNOWN
    place = str(event.seq) if cursor is None else cursor
    return b"event: %b\ndata: %b\nid: %b\n\n" % (name.encode(), plain.encode(event.to_json()), place.encode())
