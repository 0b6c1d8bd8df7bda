"""
The service's application: routes, guards and handlers in one visible order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

import app as program
from app import clock, settings
from app.api import (
    conferences,
    document,
    errors,
    gates,
    guards,
    health,
    issues,
    library,
    measuring,
    payloads,
    polling,
    run_parts,
    runs,
    safety,
    session_tasks,
    sessions,
    ws,
)


def create(
    server: settings.ServerSettings,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[Any]] | None = None,
) -> FastAPI:
    """
    Return the application; `lifespan` puts the desk at `app.state.desk`, and until then routes answer 503.
    """
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
        middleware=_middleware(server),
    )
    for router in (
        runs.router,
        run_parts.router,
        gates.router,
        issues.router,
        sessions.router,
        session_tasks.router,
        conferences.router,
        library.router,
        health.router,
        ws.router,
    ):
        api.include_router(router)
    errors.install(api)
    document.install(api)
    return api


def _middleware(server: settings.ServerSettings) -> list[Middleware]:
    origins = list(server.allowed_origins)
    shared = [Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])]
    return [
        Middleware(measuring.Measuring, clock=clock.SystemClock()),
        Middleware(safety.Safety, ids=clock.RandomIds()),
        Middleware(guards.SiteGuard, server=server),
        *(shared if origins else []),
        Middleware(guards.TokenGuard, token=server.api_token),
        Middleware(payloads.Payloads, max_bytes=server.max_body_bytes),
        Middleware(polling.Polls),
    ]
