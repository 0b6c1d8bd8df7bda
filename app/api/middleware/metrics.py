"""Measuring: how many requests there are and how long an answer takes to begin."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import clock, telemetry

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
            # Whoever invents methods must not make a series of numbers for each.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            metrics.request(method, _route(scope), status, seconds)


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", _UNMATCHED))
