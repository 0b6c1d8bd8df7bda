"""Applications behind the gateway of a service that does not run."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import State
from starlette.types import ASGIApp

from app import clock, settings
from app.api import browser_sessions, callers, connections, gateway, tickets


def behind(app: ASGIApp, time: clock.FakeClock | None = None, **facts: Any) -> gateway.Gateway:
    """Return an application behind the gateway of a service with these settings."""
    time, ids = time or clock.FakeClock(), clock.RandomIds()
    server = settings.ServerSettings(**facts)
    sign_ins = browser_sessions.BrowserSessions(callers.Credentials(server.token), time, ids)
    guard = callers.TokenGuard(tickets.Tickets(time, ids), sign_ins, _none)
    state = State({"warnings": connections.Warnings(time.monotonic), "load_forms": _none})
    return gateway.Gateway(app, server, guard, state, time, ids)


async def _none() -> list[Any]:
    return []
