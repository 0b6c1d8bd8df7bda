"""The service's application: routes, guards and handlers in one visible order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

import app as program
from app import clock, settings
from app.api import (
    conferences,
    connections,
    definitions,
    document,
    errors,
    gates,
    guards,
    health,
    issues,
    maintenance,
    polling,
    request_flaws,
    run_parts,
    runs,
    session_tasks,
    sessions,
    tickets,
    ws,
)
from app.api.middleware import body_limits, responses

EXPOSED_HEADERS = ("ETag", "Link", "Location", "Retry-After")
"""Headers that pages of allowed origins can read."""


def create(
    server: settings.ServerSettings,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[Any]] | None = None,
) -> FastAPI:
    """Return the application; `lifespan` sets `app.state.services`, and until then routes answer 503."""
    issued = tickets.Tickets(clock.SystemClock(), clock.RandomIds())
    warnings = connections.Warnings(clock.SystemClock().monotonic)
    api = FastAPI(
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
        middleware=_middleware(server, issued, warnings),
    )
    for router in (
        runs.router,
        run_parts.router,
        gates.router,
        issues.router,
        sessions.router,
        session_tasks.router,
        conferences.router,
        definitions.router,
        tickets.router,
        maintenance.router,
        health.router,
    ):
        api.include_router(router, dependencies=[Depends(request_flaws.check_parameters)])
    api.include_router(ws.router)
    api.state.tickets = issued
    api.state.warnings = warnings
    errors.install(api)
    document.install(api)
    return api


def build_routes(api: FastAPI) -> None:
    """Build now what FastAPI would build at the first requests, which would wait for it."""
    for route in api.routes:
        route.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})


def _middleware(
    server: settings.ServerSettings, issued: tickets.Tickets, warnings: connections.Warnings
) -> list[Middleware]:
    origins = list(server.allowed_origins)
    shared = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=EXPOSED_HEADERS
    )
    return [
        Middleware(responses.RequestMetrics, clock=clock.SystemClock()),
        Middleware(responses.UnexpectedErrors, ids=clock.RandomIds()),
        Middleware(guards.SiteGuard, server=server, warnings=warnings),
        *([shared] if origins else []),
        Middleware(guards.TokenGuard, token=server.token, issued=issued, warnings=warnings),
        Middleware(body_limits.BodyLimits, max_bytes=server.max_body_bytes),
        Middleware(responses.HeadRequests),
        Middleware(polling.Polls),
    ]
