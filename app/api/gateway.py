"""The gateway: passes every request, in one visible order, to its answer and back."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import clock, errors, settings, telemetry
from app.api import callers, connections, key_watch, polling, problems, refusals, scoping
from app.api.use_cases import Services
from app.domain import access, plain
from app.domain.authors import Author
from app.services import requests

if TYPE_CHECKING:
    from app.api import request_models

EXPOSED_HEADERS = ("ETag", "Link", "Location", "Retry-After")
"""Headers that pages of allowed origins can read."""

_DATA = "/api/"
_UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_LOG = logging.getLogger("control_room.api")

_POLL = re.compile(r"/api/runs/([A-Za-z0-9_-]{1,64})")
_WAIT = re.compile(rb"wait=([0-9]{1,2}(\.[0-9]{1,6})?)")
_ALIVE = b'{"status":"ok"}'


class Pages(Protocol):
    """Pages for a browser, which contain no data."""

    def serves(self, scope: Scope) -> bool:
        """Return whether the pages answer a request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a page or one of its files.

        Raises:
            HTTPException: there is no such file, or it is not asked for by GET or HEAD.
        """


class Gateway:
    """Measures, guards, limits and answers each request: directly if it is a frequent one, otherwise by its route.

    Args:
        state: State that the service shares with its routes; has `services` after the start.
    """

    def __init__(
        self,
        app: ASGIApp,
        server: settings.ServerSettings,
        guard: callers.TokenGuard,
        state: State,
        clock: clock.Clock,
        ids: clock.Ids,
        pages: Pages | None = None,
    ) -> None:
        self.state = state
        self.router = Router()
        """Answers only the messages of the lifespan."""
        self._app = app
        self._at: Mapping[tuple[str, str], _Direct] = _AT
        self._pages = pages
        self._site = callers.SiteGuard(server)
        self._token = guard
        self._max_body_bytes = server.max_body_bytes
        self._bodies: request_models.BodyLimits | None = None
        self._warnings: connections.Warnings = state.warnings
        self._clock = clock
        self._ids = ids
        self._handler: ASGIApp = self._admit
        if origins := callers.allowed_origins(server):
            self._handler = CORSMiddleware(
                self._admit,
                allow_origins=origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=EXPOSED_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; an answer that has begun cannot be changed, so a failure cuts it off."""
        scope["app"] = self
        if scope["type"] == "lifespan":
            await self.router(scope, receive, send)
            return
        answer = _NotedResponse(scope, send, self._clock)
        try:
            # Before CORS, whose middleware answers preflights itself.
            refusal = self._site.refusal(scope)
            if refusal is None:
                await self._handler(scope, receive, answer.send)
            else:
                await self._refuse(refusal, scope, receive, answer.send)
        except key_watch.Ended:
            return
        except (Exception, errors.Fault) as error:
            # A WebSocket that is open has a server behind it that logs its failure.
            if answer.begun and scope["type"] != "http":
                raise
            problem = self._problem(scope, error)
            if answer.begun:
                raise
            await problems.refuse(problem, scope, receive, answer.send)

    def answer_lists(self) -> None:
        """Answer lists of runs directly, too, since the code for their forms is loaded."""
        self._at = {**self._at, ("GET", "/api/runs"): _list}

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Pages contain no data, and a browser must be able to load the one that signs in.
        shown = scope["type"] == "http" and not scope["path"].startswith(_DATA)
        if shown and self._pages is not None and self._pages.serves(scope):
            try:
                await self._pages(scope, receive, send)
            except HTTPException as refused:
                await problems.refuse(problems.of_http(refused, scope), scope, receive, send)
            return
        # The caller is known before the body is read, so that a stranger cannot make the service hold megabytes.
        scope, refusal = self._token.admitted(scope)
        if refusal is None:
            refusal = await self._denial(scope)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return
        async with self._token.while_valid(scope, receive, send) as (receive, send):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._serve_websocket(scope, receive, send)
        elif scope["method"] == "HEAD":
            await self._answer_head(scope, receive, send)
        else:
            await self._serve_http(scope, receive, send)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == callers.SOCKET_PATH:
            await self._app(scope, receive, send)
            return
        detail = f"there is no WebSocket at {scope['path']:.200}; it is at {callers.SOCKET_PATH}"
        await problems.refuse(problems.of_status(404, detail), scope, receive, send)

    async def _denial(self, scope: Scope) -> problems.Problem | None:
        """Return why a caller may not make a request; None if it may."""
        caller: access.Caller = scope[callers.CALLER]
        # Without a key the caller has the token or the service has none, and may do everything; or the caller is a
        # stranger, who reaches only open addresses.
        if caller.sha256 is None:
            return None
        needed = await self._token.needed(scope.get("method", "GET"), scope["path"])
        try:
            if needed is not None:
                await scoping.check(_services(scope), caller, *needed)
        except errors.ControlRoomError as error:
            return refusals.problem(error)
        return None

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        value = None
        if _has_body(scope):
            bodies = self._bodies or await self._load_forms()
            body = await bodies.read(scope, receive)
            if body is None:
                return
            if isinstance(body, problems.Problem):
                await body.response()(scope, receive, send)
                return
            receive, value = body.again, body.value
            scope[callers.BODY] = value
        await self._answer(scope, receive, send, value)

    async def _load_forms(self) -> request_models.BodyLimits:
        # The forms are loaded on a thread once the service is ready; an earlier request with a body waits for them.
        await self.state.load_forms()
        from app.api import request_models

        self._bodies = self._bodies or request_models.BodyLimits(self._max_body_bytes)
        self._at = {**self._at, ("POST", "/api/runs"): _start}
        return self._bodies

    async def _answer(self, scope: Scope, receive: Receive, send: Send, value: object = None) -> None:
        services = _services(scope)
        # Matching the route, solving dependencies and reading parameters cost several times as much as direct answers.
        # Direct answers are a second way besides the routes, so they may only return what the routes would: for an
        # unusual or refused request they return None, and the route, which has all the rules, answers it.
        direct = self._at.get((scope["method"], scope["path"]), _poll)
        answer = await direct(services, scope, value) if services is not None else None
        await (answer or self._app)(scope, receive, send)

    async def _answer_head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer HEAD with the status and headers of GET, without starting a stream."""

        async def head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadSent

        try:
            await self._answer({**scope, "method": "GET"}, receive, head)
        except _HeadSent:
            return

    async def _refuse(self, refusal: problems.Problem, scope: Scope, receive: Receive, send: Send) -> None:
        self._warnings.warn(refusal.code, refusal.detail, callers.address(scope))
        await problems.refuse(refusal, scope, receive, send)

    def _problem(self, scope: Scope, error: Exception | errors.Fault) -> problems.Problem:
        known = refusals.problem(error) if isinstance(error, errors.ControlRoomError | errors.Fault) else None
        if known is not None:
            return known
        incident = self._ids.token("inc_")
        _LOG.error(
            "a request failed",
            exc_info=error,
            extra={"incident_id": incident, "method": scope.get("method"), "path": callers.loggable(scope["path"])},
        )
        return problems.Problem(
            status=500,
            code="internal_error",
            title="An internal error occurred.",
            detail=f"see the service's log for {incident}",
            facts={"incident_id": incident},
        )


class _NotedResponse:
    """An answer on its way to the client, recorded when it begins."""

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
            # A client that invents methods must not create a metric for each of them.
            method = self._scope["method"] if self._scope["method"] in _METHODS else "other"
            route = str(getattr(self._scope.get("route"), "path", _UNMATCHED))
            metrics.request(method, route, status, self._clock.monotonic() - self._asked_at)


@dataclass(frozen=True, slots=True)
class _Route:
    path: str


_RUNS, _SHOW, _HEALTH, _READY = map(_Route, ("/api/runs", "/api/runs/{run_id}", "/healthz", "/readyz"))


class _HeadSent(Exception):
    """The rest of the answer is not needed."""


def _services(scope: Scope) -> Services | None:
    app = scope.get("app")
    return getattr(app.state, "services", None) if app is not None else None


def _has_body(scope: Scope) -> bool:
    if scope["method"] not in _WITH_BODIES:
        return False
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False


def alive() -> Response:
    """Return the answer of a process that is alive."""
    return Response(_ALIVE, media_type="application/json")


async def ready(services: Services) -> Response:
    """Return the answer of a service that accepts runs."""
    readiness = await services.health.ready()
    return Response(plain.encode(readiness.to_json()), media_type="application/json")


async def start(
    services: Services, connection: HTTPConnection, request: requests.StartRequest, author: Author
) -> Response:
    """Start a run and return the answer."""
    caller = callers.caller_of(connection)
    if caller.limits is not None:
        request = await scoping.scope_start(services, caller, request)
    asked_by = await callers.run_of(services, connection, request.parent_run_id)
    started = await services.runs.start(request, author=author, asked_by=asked_by)
    headers = {"Location": f"/api/runs/{started.run_id}"}
    status = 200 if started.existed else 201
    return Response(plain.encode(started.to_json()), status, headers, media_type="application/json")


async def _start(services: Services, scope: Scope, body: Any) -> Response | None:
    from pydantic import ValidationError

    from app.api import request_models

    keys, is_limited = _header(scope, b"idempotency-key"), scope[callers.CALLER].limits is not None
    # What a refusal may name depends on the scope of the caller.
    if body is None or scope["query_string"] or len(keys) > 1 or is_limited:
        return None
    key = keys[0].decode("latin-1") if keys else None
    if key is not None and key.startswith(requests.OWN_KEYS):
        return None
    try:
        wanted = request_models.StartBody.model_validate(body)
        connection = HTTPConnection(scope)
        author = callers.author_of(connection)
    except (ValidationError, errors.RequestInvalid):
        return None
    if requests.key_flaws(key):
        return None
    scope["route"] = _RUNS
    return await start(services, connection, wanted.request(key), author)


async def _list(services: Services, scope: Scope, _body: object) -> Response | None:
    from app.api import run_lists

    if (usual := run_lists.usual(scope)) is None:
        return None
    scope["route"] = _RUNS
    return await run_lists.page(services, *usual)


async def _alive(_services: Services, scope: Scope, _body: object) -> Response | None:
    if scope["query_string"]:
        return None
    scope["route"] = _HEALTH
    return alive()


async def _ready(services: Services, scope: Scope, _body: object) -> Response | None:
    if scope["query_string"]:
        return None
    scope["route"] = _READY
    return await ready(services)


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
    # The route refuses any other query.
    return seconds if seconds is not None and seconds <= polling.MOST_WAIT_SECONDS else None


def _header(scope: Scope, name: bytes) -> list[bytes]:
    return [value for known, value in scope["headers"] if known == name]


_Direct: TypeAlias = Callable[[Services, Scope, Any], Awaitable[Response | None]]
_AT: Mapping[tuple[str, str], _Direct] = {
    ("GET", "/healthz"): _alive,
    ("GET", "/readyz"): _ready,
}
