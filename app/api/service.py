"""The service's application: routes, guards and handlers in one visible order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

import app as program
from app import clock, settings
from app.api import (
    api_keys,
    audit,
    browser_sessions,
    budgets,
    bulk,
    conferences,
    connections,
    definitions,
    document,
    errors,
    feed,
    forks,
    gates,
    gateway,
    guards,
    health,
    issues,
    maintenance,
    notifications,
    request_flaws,
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
    ring: browser_sessions.Keys = keys.NONE,
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
        generate_unique_id_function=_name,
        lifespan=lifespan,
    )
    api.router.routes.extend(_routes())
    sign_ins = browser_sessions.BrowserSessions(server.token, clock.SystemClock(), clock.RandomIds(), ring)
    guard = guards.TokenGuard(issued, sign_ins, addresses(api))
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


@functools.cache
def _routes() -> tuple[BaseRoute, ...]:
    # FastAPI takes longer to include them than for all else; every application of the process has the same.
    whole = FastAPI(openapi_url=None, generate_unique_id_function=_name)
    for router in _ROUTERS:
        whole.include_router(router, dependencies=[Depends(request_flaws.check_parameters)])
    whole.include_router(ws.router)
    return tuple(whole.routes)


def _name(route: APIRoute) -> str:
    return route.name


def addresses(api: FastAPI) -> list[BaseRoute]:
    """Return the routes of all addresses, each with its whole path."""
    return [*api.routes, *(route for router in (*_ROUTERS, ws.router) for route in router.routes)]


def build_routes(api: FastAPI) -> None:
    """Build now what FastAPI would build at the first requests, which would wait for it."""
    for route in api.routes:
        route.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})
