"""Safety: whatever goes wrong in a route, the client gets a problem document and the log the
traceback, under one id.
"""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import clock, errors
from app.api import problems, refusals

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
            title="Something went wrong in the service.",
            detail="the service's log tells more under this incident",
            facts={"incident_id": incident},
        )
