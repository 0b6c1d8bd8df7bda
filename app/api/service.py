"""The service's application: the gateway, its checks of callers, and the routes behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.datastructures import State
from starlette.routing import Router

from app import clock, settings
from app.api import browser_sessions, callers, connections, gateway, late_routes, tickets
from app.domain import keys


def create(
    server: settings.ServerSettings,
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
    pages: gateway.Pages | None = None,
    ring: callers.Keys = keys.NONE,
) -> gateway.Gateway:
    """Return the application; `lifespan` sets `state.services`, and until then routes answer 503.

    Args:
        pages: Pages that need no token; None: only the interface is served.
        ring: API keys.
    """
    time, ids, state = clock.SystemClock(), clock.RandomIds(), State()
    credentials = callers.Credentials(server.token, ring)
    state.key_ring = ring
    state.tickets = tickets.Tickets(time, ids)
    state.browser_sessions = browser_sessions.BrowserSessions(credentials, time, ids)
    state.warnings = connections.Warnings(time.monotonic)
    routes = late_routes.LateRoutes(state, lambda: made.answer_lists())
    state.load_routes, state.load_forms = routes.load, routes.load_forms
    guard = callers.TokenGuard(state.tickets, state.browser_sessions, routes.listed)
    made = gateway.Gateway(routes, server, guard, state, time, ids, pages)
    made.router = Router(lifespan=lifespan)
    return made
