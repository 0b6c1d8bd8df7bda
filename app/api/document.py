"""The OpenAPI document: made from the routes and the shapes, completed with what FastAPI omits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route

from app.api import callers, problems, refusals, schemas, streaming
from app.domain import events

SUMMARY = "A durable run manager for agent recipes."  # One line about the service.

DESCRIPTION = (
    "Start a run of a recipe, follow its steps, and read its slots. Every finished step is on disk "
    "before the next one starts. Every error is a problem document (RFC 9457) with a stable `code`."
)
"""A paragraph about the service."""

TAGS = [
    {"name": "runs", "description": "Executions of recipes."},
    {"name": "triggers", "description": "Schedules, webhooks and file drops that start runs."},
    {"name": "notifications", "description": "Endpoints that receive messages about runs."},
    {"name": "gates", "description": "Questions that runs ask people, and the answers."},
    {"name": "issues", "description": "Findings of runs, and notes from people."},
    {"name": "plans", "description": "Session plans: tasks with dependencies; each task is one run."},
    {"name": "conferences", "description": "Opinions of several agents on the same evidence."},
    {"name": "recipes", "description": "Recipes, and the router that chooses among them."},
    {"name": "library", "description": "Tools and agents that recipes can name."},
    {"name": "budgets", "description": "Limits on what several runs spend together."},
    {"name": "audit", "description": "Receipts of tool executions, and the audit log."},
    {"name": "keys", "description": "Keys for people and programs, with roles and scopes."},
    {"name": "upkeep", "description": "Verification of stored files, and repair of runs."},
    {"name": "service", "description": "Health and metrics."},
]
"""Groups of addresses."""

_LEFT_OUT = ("HTTPValidationError", "ValidationError")


def install(app: FastAPI) -> None:
    """Make the application answer with the completed document."""
    drafted = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(drafted())
        return app.openapi_schema

    app.__dict__["openapi"] = completed


def methods_at(app: FastAPI, path: str) -> list[str]:
    """Return the methods of an address; an address without parameters hides those with parameters."""
    # From the routes themselves: composing the document would delay every other answer for half a second.
    routes = [route for route in app.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.path == path]
    matching = matching or [route for route in routes if route.path_regex.match(path)]
    verbs = {verb for route in matching for verb in route.methods or ()}
    return sorted(verbs | {"HEAD"} if "GET" in verbs else verbs)


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    named = components.setdefault("schemas", {})
    for name in _LEFT_OUT:
        named.pop(name, None)
    schemas.reference(events.Event)
    named |= schemas.components()
    named["Problem"] = problems.schema()
    components["examples"] = refusals.components()
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "Token of the service or secret of a key; required if CONTROL_ROOM_API_TOKEN is set or "
            "a key has been added.",
        }
    }
    for path, operation in _operations(document):
        _drop_validation_error(operation)
        _describe_stream(operation)
        _describe_optional_body(operation)
        is_open = path in callers.OPEN_PATHS or path.startswith(callers.OPEN_PREFIX)
        operation["security"] = [] if is_open else [{"token": []}, {}]
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def _drop_validation_error(operation: dict[str, Any]) -> None:
    content = operation["responses"].get("422", {}).get("content", {})
    if "application/json" in content:
        del operation["responses"]["422"]


def _describe_stream(operation: dict[str, Any]) -> None:
    content = operation["responses"].get("200", {}).get("content", {})
    if streaming.EventStream.media_type in content:
        content[streaming.EventStream.media_type] = {"itemSchema": streaming.ITEM_SCHEMA}


def _describe_optional_body(operation: dict[str, Any]) -> None:
    # A body that may be omitted is not required; if it were nullable instead, generated clients could not omit it.
    body = operation.get("requestBody", {})
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    shapes = [shape for shape in schema.get("anyOf", ()) if shape != {"type": "null"}]
    if len(shapes) == 1:
        body["required"] = False
        body["content"]["application/json"]["schema"] = shapes[0]
