"""Answering: plain JSON as bytes, and what routes declare about requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from app.api import problem_codes
from app.domain import plain
from app.services import requests

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Repeating a request with the same key returns the result of the first one.",
        pattern=requests.IDEMPOTENCY_KEY_PATTERN,
    ),
]
"""Header under which a request may be sent again."""


def as_json(value: plain.Json, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of plain JSON."""
    return Response(plain.encode(value), status, dict(headers or {}), media_type="application/json")


def declared(
    shape: Any, *codes: str, status: int = 200, meaning: str = "The answer.", headers: Mapping[str, str] | None = None
) -> problem_codes.Responses:
    """Return the `responses` of a route: the shape of its answer, and the problems that it can answer with.

    Args:
        headers: What each header of the answer is for.
    """
    answer: dict[str, Any] = {"model": shape, "description": meaning}
    if headers:
        answer["headers"] = {
            name: {"description": told, "schema": {"type": "string"}} for name, told in headers.items()
        }
    return {status: answer, **problem_codes.documented(codes)}
