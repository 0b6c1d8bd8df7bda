"""Middlewares of responses: measure them, answer errors that no handler knows, and answer HEAD."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import clock, errors, telemetry
from app.api import problems, refusals

_UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """Count requests by method, route and status."""

    def __init__(self, app: ASGIApp, clock: clock.Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and note when its answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.monotonic()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, message["status"], self._clock.monotonic() - began)
            await send(message)

        await self._app(scope, receive, noted)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        services = getattr(scope["app"].state, "services", None)
        if services is not None:
            metrics: telemetry.Metrics = services.metrics
            # A client that invents methods must not make a series of numbers for each.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            metrics.request(method, _route(scope), status, seconds)


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", _UNMATCHED))


_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_LOG = logging.getLogger("control_room.api")


class UnexpectedErrors:
    """Turn what no handler knew into a 500, and faults into what the table says."""

    def __init__(self, app: ASGIApp, ids: clock.Ids) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; an answer that has begun cannot be changed, so it is broken off."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] in _STARTS:
                message = {**message, "headers": [*message.get("headers", ()), problems.NO_SNIFFING]}
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, noted)
            return
        try:
            await self._app(scope, receive, noted)
        except (Exception, errors.Fault) as error:
            problem = self._problem(scope, error)
            if begun:
                raise
            await problem.response()(scope, receive, noted)

    def _problem(self, scope: Scope, error: Exception | errors.Fault) -> problems.Problem:
        known = refusals.problem(error) if isinstance(error, errors.ControlRoomError | errors.Fault) else None
        if known is not None:
            return known
        incident = self._ids.token("inc_")
        _LOG.error(
            "a request failed",
            exc_info=error,
            extra={"incident_id": incident, "method": scope["method"], "path": scope["path"]},
        )
        return problems.Problem(
            status=500,
            code="internal_error",
            title="An internal error occurred.",
            detail="see the service's log for this incident_id",
            facts={"incident_id": incident},
        )


class HeadRequests:
    """Answer HEAD with status and headers of GET; a stream is not begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as a GET that ends with its head."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadSent

        try:
            await self._app({**scope, "method": "GET"}, receive, head)
        except _HeadSent:
            return


class _HeadSent(Exception):
    """Nothing more of an answer is wanted."""
