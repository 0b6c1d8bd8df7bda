"""
Answering: plain JSON as bytes, and what routes declare about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from app.api import refusals
from app.engine import plain


def as_json(value: plain.Json, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """
    Return an answer of plain JSON.
    """
    return Response(plain.encode(value), status, dict(headers or {}), media_type="application/json")


def declared(
    shape: Any, *codes: str, status: int = 200, meaning: str = "The answer.", headers: Mapping[str, str] | None = None
) -> refusals.Responses:
    """
    Return the `responses` of a route: the shape of its answer, and the problems that it can answer with.

    Args:
        headers: What each header of the answer is for.
    """
    answer: dict[str, Any] = {"model": shape, "description": meaning}
    if headers:
        answer["headers"] = {
            name: {"description": told, "schema": {"type": "string"}} for name, told in headers.items()
        }
    return {status: answer, **refusals.documented(codes)}
