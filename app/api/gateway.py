"""The gateway: every request passes here, in one visible order, on its way to its answer and back."""

from __future__ import annotations

import logging
from typing import Protocol

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import clock, errors, settings, telemetry
from app.api import body_limits, connections, direct, guards, problems, refusals
from app.api.dependencies import Services

EXPOSED_HEADERS = ("ETag", "Link", "Location", "Retry-After")
"""Headers that pages of allowed origins can read."""

_DATA = "/api/"
_UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_LOG = logging.getLogger("control_room.api")


class Pages(Protocol):
    """Pages of a browser, which hold no data."""

    def serves(self, scope: Scope) -> bool:
        """Return whether the pages answer a request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a page or one of its files."""


class Gateway:
    """Measure, guard, bound and answer each request: here if it is a frequent one, else by its route."""

    def __init__(
        self,
        app: ASGIApp,
        server: settings.ServerSettings,
        guard: guards.TokenGuard,
        warnings: connections.Warnings,
        clock: clock.Clock,
        ids: clock.Ids,
        pages: Pages | None = None,
    ) -> None:
        self._app = app
        self._pages = pages
        self._site = guards.SiteGuard(server)
        self._token = guard
        self._bodies = body_limits.BodyLimits(server.max_body_bytes)
        self._warnings = warnings
        self._clock = clock
        self._ids = ids
        self._admit: ASGIApp = self._admitted
        if origins := list(server.allowed_origins):
            self._admit = CORSMiddleware(
                self._admitted,
                allow_origins=origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=EXPOSED_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; an answer that has begun cannot be changed, so a failure breaks it off."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send, self._clock)
        try:
            # Before CORS, whose middleware answers preflights by itself.
            refusal = self._site.refusal(scope)
            if refusal is None:
                await self._admit(scope, receive, answer.send)
            else:
                await self._refuse(refusal, scope, receive, answer.send)
        except guards.Ended:
            return
        except (Exception, errors.Fault) as error:
            if scope["type"] != "http":
                raise
            problem = self._problem(scope, error)
            if answer.begun:
                raise
            await problem.response()(scope, receive, answer.send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Pages hold no data, and a browser must be able to load the one that signs in.
        shown = scope["type"] == "http" and not scope["path"].startswith(_DATA)
        if shown and self._pages is not None and self._pages.serves(scope):
            await self._pages(scope, receive, send)
            return
        # Who asks is known before the body is read, so that a stranger cannot make the service hold megabytes.
        scope, refusal = self._token.admitted(scope)
        if refusal is None:
            refusal = await self._token.refusal(_services(scope), scope)
            receive, send = self._token.while_valid(scope, receive, send)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self._bounded(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        value = None
        if body_limits.has_body(scope):
            body = await self._bodies.read(scope, receive)
            if body is None:
                return
            if isinstance(body, problems.Problem):
                await body.response()(scope, receive, send)
                return
            receive, value = body.again, body.value
        await self._answered(scope, receive, send, value)

    async def _answered(self, scope: Scope, receive: Receive, send: Send, value: object = None) -> None:
        services = _services(scope)
        found = await direct.answer(services, scope, value) if services is not None else None
        await (found or self._app)(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer HEAD with status and headers of GET; a stream is not begun."""

        async def head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadSent

        try:
            await self._answered({**scope, "method": "GET"}, receive, head)
        except _HeadSent:
            return

    async def _refuse(self, refusal: problems.Problem, scope: Scope, receive: Receive, send: Send) -> None:
        self._warnings.tell(refusal.code, refusal.detail, guards.address(scope))
        await guards.refuse(refusal, scope, receive, send)

    def _problem(self, scope: Scope, error: Exception | errors.Fault) -> problems.Problem:
        known = refusals.problem(error) if isinstance(error, errors.ControlRoomError | errors.Fault) else None
        if known is not None:
            return known
        incident = self._ids.token("inc_")
        _LOG.error(
            "a request failed",
            exc_info=error,
            extra={"incident_id": incident, "method": scope["method"], "path": guards.loggable(scope["path"])},
        )
        return problems.Problem(
            status=500,
            code="internal_error",
            title="An internal error occurred.",
            detail="see the service's log for this incident_id",
            facts={"incident_id": incident},
        )


class _Answer:
    """An answer on its way to the client, noted when it begins."""

    def __init__(self, scope: Scope, send: Send, clock: clock.Clock) -> None:
        self._scope = scope
        self._send = send
        self._clock = clock
        self._asked_at = clock.monotonic()
        self.begun = False

    async def send(self, message: Message) -> None:
        self.begun = True
        if message["type"] in _STARTS:
            message = {**message, "headers": [*message.get("headers", ()), problems.NO_SNIFFING]}
            if message["type"] == "http.response.start":
                self._note(message["status"])
        await self._send(message)

    def _note(self, status: int) -> None:
        services = _services(self._scope)
        if services is not None:
            metrics: telemetry.Metrics = services.metrics
            # A client that invents methods must not make a series of numbers for each.
            method = self._scope["method"] if self._scope["method"] in _METHODS else "other"
            route = str(getattr(self._scope.get("route"), "path", _UNMATCHED))
            metrics.request(method, route, status, self._clock.monotonic() - self._asked_at)


class _HeadSent(Exception):
    """Nothing more of an answer is wanted."""


def _services(scope: Scope) -> Services | None:
    app = scope.get("app")
    return getattr(app.state, "services", None) if app is not None else None
