"""Tickets: open streams for clients that cannot send headers, such as a browser's EventSource and WebSocket."""

from __future__ import annotations

import datetime as dt
import re
from collections import OrderedDict
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from app import clock
from app.api import refusals
from app.domain import access, plain

LIFE_SECONDS = 60  # Time for which a ticket is valid.
MOST_TICKETS = 10_000  # Most tickets that are kept; the oldest is removed first.

_STREAM = re.compile(r"/api/events|/api/runs/[^/]+/(?:events|logs/[^/]+/stream)")

PARAMETER = "ticket"  # Query parameter with a ticket.


class Tickets:
    """Issues tickets, each of which can be used once."""

    def __init__(self, clock: clock.Clock, ids: clock.Ids) -> None:
        self._clock = clock
        self._ids = ids
        # Only hashes are kept, since the duration of a comparison could be measured.
        self._expiring: OrderedDict[str, tuple[float, access.Caller]] = OrderedDict()

    def issue(self, caller: access.Caller = access.ANYONE) -> tuple[str, dt.datetime]:
        """Return a new ticket, and its time of expiry.

        Args:
            caller: Caller who requests the ticket, and who is the caller of its stream.
        """
        ticket = self._ids.token("tkt_", 32)
        self._expiring[_hash(ticket)] = self._clock.monotonic() + LIFE_SECONDS, caller
        while len(self._expiring) > MOST_TICKETS:
            self._expiring.popitem(last=False)
        return ticket, self._clock.now() + dt.timedelta(seconds=LIFE_SECONDS)

    def use(self, ticket: str) -> access.Caller | None:
        """Return the caller who requested a ticket, and use the ticket up; None if it is not valid."""
        expires, caller = self._expiring.pop(_hash(ticket), (0.0, None))
        return caller if self._clock.monotonic() < expires else None

    def without_ticket(self, scope: Scope) -> tuple[Scope, str | None]:
        """Return a request without its ticket, and the ticket of a stream, since routes do not handle tickets.

        Raises:
            errors.RequestInvalid: it has several.
        """
        if not _is_stream(scope):
            return scope, None
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=None)
        tickets = [value for name, value in given if name == PARAMETER]
        if not tickets:
            return scope, None
        if len(tickets) > 1:
            raise refusals.invalid([refusals.repeated(f"query.{PARAMETER}")])
        others = urlencode([pair for pair in given if pair[0] != PARAMETER])
        return {**scope, "query_string": others.encode("ascii")}, tickets[0]


def _is_stream(scope: Scope) -> bool:
    """Return whether a request opens a stream, so that a ticket may replace the token."""
    if scope["type"] != "http":
        return bool(scope["type"] == "websocket")
    path: str = scope["path"]
    return scope["method"] == "GET" and _STREAM.fullmatch(path) is not None


def _hash(ticket: str) -> str:
    return plain.sha256(ticket.encode("utf-8", "replace"))
