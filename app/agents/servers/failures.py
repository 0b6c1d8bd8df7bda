"""Failures of services: converted to errors of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import errors
from app.agents.programs.program import STATUS_CODES
from app.domain import plain
from app.engine import workspace_faults

_BY_KIND = {
    "authentication_error": "unauthorized",
    "permission_error": "unauthorized",
    "rate_limit_error": "rate_limited",
    "overloaded_error": "backend_unavailable",
    "request_too_large": "prompt_too_large",
    "context_length_exceeded": "prompt_too_long",
    "model_not_found": "unknown_model",
}
_TOO_LONG = ("prompt is too long", "maximum context length", "exceed_context_size")


def refused(error: Any) -> errors.AgentFailed:
    """Return the error for a status other than success."""
    kinds = _kinds(error.body)
    reported = str(error.message)
    code = next((_BY_KIND[kind] for kind in kinds if kind in _BY_KIND), None) or STATUS_CODES.get(error.status_code)
    # Services report this fault only in the message, with the code of any bad request.
    if any(hint in reported.lower() for hint in _TOO_LONG):
        code = "prompt_too_long"
    detail: dict[str, plain.Json] = {"status": error.status_code}
    if (retry_after := error.response.headers.get("retry-after")) is not None:
        detail["retry_after"] = str(retry_after)[:100]
    if kinds:
        detail["kinds"] = kinds
    if isinstance(parameter := getattr(error, "param", None), str):
        detail["parameter"] = parameter[:100]
    message = f"The service answered {error.status_code}: {plain.preview(reported) or 'no reason was given'}"
    return errors.AgentFailed(message, code=code or "agent_error", detail=detail)


def unreachable(error: Exception) -> errors.AgentFailed | errors.WorkspaceFault:
    """Return the error for a connection that failed or broke."""
    # The fault is this machine's (no descriptor, no memory), and the step waits for its end.
    if (lack := workspace_faults.shortage(error)) is not None:
        return workspace_faults.waits("", lack)
    cause = error.__cause__ or error
    return errors.AgentFailed(
        "The service could not be reached, or the connection broke before the reply was complete.",
        code="backend_unavailable",
        detail={"cause": plain.preview(f"{type(cause).__name__}: {cause}")},
    )


def unreadable(cause: object) -> errors.AgentFailed:
    """Return the error for an answer that does not fit the interface."""
    reported = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else str(cause)
    return errors.AgentFailed(
        "The service's answer does not have the form that its interface specifies.",
        code="reply_unreadable",
        detail={"cause": plain.preview(reported)},
    )


def _kinds(body: object) -> list[str]:
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        return []
    return [str(inner[name])[:100] for name in ("code", "type") if isinstance(inner.get(name), str)]
