"""The service's application: routes, guards and handlers in one visible order."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp

import app as program
from app import clock, settings
from app.api import (
    api_keys,
    audit,
    browser_sessions,
    budgets,
    bulk,
    callers,
    conferences,
    connections,
    definitions,
    document,
    errors,
    feed,
    forks,
    gates,
    gateway,
    health,
    issues,
    maintenance,
    notifications,
    retention,
    run_logs,
    run_parts,
    runs,
    session_tasks,
    sessions,
    statistics,
    terms,
    tickets,
    triggers,
    ws,
)
from app.domain import keys

_ROUTERS = (
    runs.router,
    bulk.router,
    forks.router,
    retention.router,
    statistics.router,
    feed.router,
    run_parts.router,
    run_logs.router,
    gates.router,
    issues.router,
    sessions.router,
    session_tasks.router,
    conferences.router,
    definitions.router,
    budgets.router,
    terms.router,
    audit.router,
    api_keys.router,
    tickets.router,
    triggers.router,
    triggers.deliveries,
    notifications.router,
    browser_sessions.router,
    maintenance.router,
    health.router,
    ws.router,
)


class _Service(FastAPI):
    """Routes behind the gateway: it does what FastAPI's own layers around them do, and guards them."""

    surround: Callable[[ASGIApp], ASGIApp]
    """Returns what serves every request, given what serves those that need a route."""

    def build_middleware_stack(self) -> ASGIApp:
        routed = ExceptionMiddleware(AsyncExitStackMiddleware(self.router), self.exception_handlers)
        return self.surround(routed)


def create(
    server: settings.ServerSettings,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[Any]] | None = None,
    pages: gateway.Pages | None = None,
    ring: callers.Keys = keys.NONE,
) -> FastAPI:
    """Return the application; `lifespan` sets `app.state.services`, and until then routes answer 503.

    Args:
        pages: What needs no token; None: nothing but the interface is served.
        ring: API keys.
    """
    issued = tickets.Tickets(clock.SystemClock(), clock.RandomIds())
    warnings = connections.Warnings(clock.SystemClock().monotonic)
    api = _Service(
        title="Control Room",
        version=program.__version__,
        summary=document.SUMMARY,
        description=document.DESCRIPTION,
        openapi_tags=document.TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    for router in _ROUTERS:
        api.router.routes.extend(router.routes)
    credentials = callers.Credentials(server.token, ring)
    sign_ins = browser_sessions.BrowserSessions(credentials, clock.SystemClock(), clock.RandomIds())
    guard = callers.TokenGuard(issued, sign_ins, api.routes)
    api.surround = lambda app: gateway.Gateway(
        app, server, guard, warnings, clock.SystemClock(), clock.RandomIds(), pages
    )
    api.state.key_ring = ring
    api.state.tickets = issued
    api.state.browser_sessions = sign_ins
    api.state.warnings = warnings
    errors.install(api)
    document.install(api)
    return api


def openapi_text() -> str:
    """Return the document in `openapi/openapi.json`, the same for the same code."""
    shown = create(settings.ServerSettings()).openapi()
    return json.dumps(shown, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
