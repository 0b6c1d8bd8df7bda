"""Refusals: the status of each error, and every code that a client can receive, with an example."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from app import errors
from app.api import problems, refusal_examples

Responses: TypeAlias = dict[int | str, dict[str, Any]]  # `responses` of a route.

STATUS: Mapping[type[BaseException], int] = {
    errors.Unroutable: 422,
    errors.NotReady: 409,
    errors.TooLarge: 413,
    errors.InputRefused: 400,
    errors.Unauthenticated: 401,
    errors.Denied: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.JournalCorrupt: 409,
    errors.WriteFailed: 507,
    errors.StorageFault: 507,
    errors.DatabaseAway: 503,
    errors.Unreadable: 503,
    errors.Unavailable: 503,
    errors.InterruptionFault: 503,
}
"""Status by error; an error has the status of its nearest ancestor here. Every other error is a 500."""

ALWAYS = (
    "unknown_host", "request_invalid", "unauthorized", "key_expired", "role_missing", "out_of_scope", "foreign_origin",
    "internal_error", "starting", "stopping", "unreadable", "database_away", "storage_error",
)  # fmt: skip
"""Codes that every address can return."""

UNADDRESSED = (
    "malformed_request", "head_too_large", "too_many_headers", "head_too_slow", "body_too_slow", "too_many_connections",
    "not_found", "method_not_allowed", "upgrade_required",
)  # fmt: skip
"""Codes of requests that reach no operation: refused on the wire, or at an address or with a method that is none."""

BODY = ("malformed_body", "too_large", "too_many_values", "unsupported_media_type")
"""Codes of every address that takes a body."""

WRITE = (*BODY, "no_room")  # Codes of every address that writes.

RECIPE = ("unknown_recipe", "args_invalid", "recipe_invalid")
"""Codes of a request that names a recipe and its arguments."""

EXECUTED = (*RECIPE, "options_invalid", "unknown_backend")
"""Codes of a request by which a run of a recipe executes."""

CONVERSATION = ("session_locked", "agent_session_damaged", "unknown_agent_session")
"""Codes of a request by which a run continues a conversation."""

START = (
    *WRITE,
    "backend_not_ready",
    "working_dir_refused",
    "working_dir_missing",
    "unknown_parent",
    "depth_exceeded",
    "idempotency_conflict",
    "concurrency_limit",
)
"""Codes of every address that starts runs."""

COMMAND = (*WRITE, "run_not_found", "wrong_state", "run_busy", "journal_corrupt")
"""Codes of every command to a run."""


def problem(error: errors.ControlRoomError | errors.Fault) -> problems.Problem | None:
    """Return the problem that describes an error; None for an error that no client caused."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), None)
    if status is None:
        return None
    headers: Mapping[str, str] = {}
    if isinstance(error, errors.Unreadable | errors.DatabaseAway):
        headers = {"Retry-After": str(error.detail.get("retry_after_seconds", 1))}
    elif isinstance(error, errors.Unauthenticated):
        headers = {"WWW-Authenticate": "Bearer"}
    return problems.Problem(
        status=status,
        code=error.code,
        title=(inspect.getdoc(type(error)) or type(error).__name__).splitlines()[0],
        detail=error.message,
        flaws=error.flaws if isinstance(error, errors.InputRefused) else (),
        facts=error.detail if error.key is None else {**error.detail, "key": error.key},
        headers=headers,
    )


def invalid(flaws: Sequence[errors.Flaw]) -> errors.RequestInvalid:
    """Return the refusal of a request with these flaws."""
    return errors.RequestInvalid(f"{flaws[0].path}: {flaws[0].message}", flaws=flaws)


def repeated(path: str) -> errors.Flaw:
    """Return the flaw of a parameter or header that takes one value and has several."""
    return errors.Flaw(path=path, code="repeated", message="takes one value; give it once")


def documented(codes: Iterable[str]) -> Responses:
    """Return the declaration of a route's possible problems, by the names of their examples."""
    responses: Responses = {}
    for name in dict.fromkeys((*codes, *ALWAYS)):
        example = EXAMPLES[name]
        content = responses.setdefault(example.status, _response(example.status))["content"]
        content[problems.MEDIA_TYPE]["examples"][example.code] = {"$ref": f"#/components/examples/{name}"}
    return responses


def components() -> dict[str, Any]:
    """Return the examples to which the declarations refer."""
    return {name: {"summary": example.title, "value": example.to_json()} for name, example in EXAMPLES.items()}


def _named(examples: Iterable[problems.Problem]) -> dict[str, problems.Problem]:
    found: dict[str, problems.Problem] = {}
    for example in examples:
        found[f"{example.code}.{example.status}" if example.code in found else example.code] = example
    return found


def _response(status: int) -> dict[str, Any]:
    reference = {"$ref": "#/components/schemas/Problem"}
    content = {problems.MEDIA_TYPE: {"schema": reference, "examples": {}}}
    return {"description": problems.of_status(status, "").title, "content": content}


_PROBLEMS = (
    *filter(None, map(problem, refusal_examples.ERRORS)),
    problems.of_status(
        400, "Host example.org is not allowed; add it to CONTROL_ROOM_ALLOWED_HOSTS", code="unknown_host"
    ),
    problems.of_status(
        401,
        "the header `Authorization: Bearer SECRET` is missing or wrong; SECRET is a key, or the token of the service,"
        " and commands send what CONTROL_ROOM_API_TOKEN contains",
    ),
    problems.of_status(
        403, "Origin https://example.org is not allowed; add it to CONTROL_ROOM_ALLOWED_ORIGINS", code="foreign_origin"
    ),
    problems.of_status(400, "the request is not HTTP/1.1", code="malformed_request"),
    problems.of_status(404, "there is no resource at /api/run"),
    problems.of_status(405, "PUT is not allowed at /api/runs"),
    problems.of_status(408, "the head of a request must be complete within 20 s", code="head_too_slow"),
    problems.of_status(408, "a request's body must be complete within 60 s of its head", code="body_too_slow"),
    problems.of_status(426, "this address is a WebSocket"),
    problems.of_status(431, "the head of a request has at most 65536 bytes", code="head_too_large"),
    problems.of_status(431, "a request has at most 100 headers", code="too_many_headers"),
    problems.of_status(503, "at most 1000 connections are served at a time", code="too_many_connections"),
    problems.of_status(416, "the log draft.1.reply.md has 1024 bytes; ask for a range within them"),
    problems.of_status(415, "the body must be JSON in UTF-8 with Content-Type: application/json"),
    problems.Problem(
        status=500,
        code="internal_error",
        title="An internal error occurred.",
        detail="see the service's log for inc_5h2m9q0x7c1v8b3n",
        facts={"incident_id": "inc_5h2m9q0x7c1v8b3n"},
    ),
)

EXAMPLES: Mapping[str, problems.Problem] = _named(_PROBLEMS)
"""An example of each problem, by code; those of a code with a second status by code and status, joined by a dot."""
