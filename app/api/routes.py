"""The routes of the service, their errors and their document, as an application behind the gateway.

It is loaded after the gateway: FastAPI, the forms of requests and all routes take a third of a start.
"""

from __future__ import annotations

import json

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.datastructures import State
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp

import app as program
from app.api import (
    api_keys,
    audit,
    budgets,
    bulk,
    conferences,
    definitions,
    document,
    errors,
    feed,
    forks,
    gates,
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
    sign_in,
    statistics,
    terms,
    ticket_routes,
    triggers,
    ws,
)

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
    ticket_routes.router,
    triggers.router,
    triggers.deliveries,
    notifications.router,
    sign_in.router,
    maintenance.router,
    health.router,
    ws.router,
)


class _Routes(FastAPI):
    """Routes behind the gateway, which replaces FastAPI's own outer layers and guards the routes."""

    def build_middleware_stack(self) -> ASGIApp:
        return ExceptionMiddleware(AsyncExitStackMiddleware(self.router), self.exception_handlers)


def create(state: State | None = None) -> FastAPI:
    """Return the routes of a service.

    Args:
        state: State that they share with the gateway; None: only their document is needed.
    """
    api = _Routes(
        title="Control Room",
        version=program.__version__,
        summary=document.SUMMARY,
        description=document.DESCRIPTION,
        openapi_tags=document.TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in _ROUTERS:
        api.router.routes.extend(router.routes)
    api.state = state or State()
    errors.install(api)
    document.install(api)
    return api


def openapi_text() -> str:
    """Return the document in `openapi/openapi.json`, the same for the same code."""
    return json.dumps(create().openapi(), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
