"""Error handlers: every error of a route is answered with a problem document."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app import errors
from app.api import document, problems, refusals, request_flaws, scoping
from app.domain import json_text

_MOST_FLAWS = 200
_FLAW_CODES = {"extra_forbidden": "unknown_field", "missing": "missing", "json_invalid": "syntax"}


def install(app: FastAPI) -> None:
    """Answer errors of routes with problem documents."""
    app.add_exception_handler(errors.ControlRoomError, _answer)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)


def unfit(found: Iterable[Mapping[str, Any]], shape: Any = None) -> errors.RequestInvalid:
    """Return the refusal of an invalid body, from the flaws that pydantic found.

    Args:
        shape: Expected shape, for hints at the names of its fields.
    """
    flaws = [
        _flaw({**item, "loc": ("body", *item["loc"])}, request_flaws.fields_in(shape, item["loc"]))
        for item in itertools.islice(found, _MOST_FLAWS)
    ]
    return refusals.invalid(flaws)


async def _answer(request: Request, error: Exception) -> Response:
    problem = None
    if isinstance(error, errors.ControlRoomError):
        problem = refusals.problem(await scoping.disclosed_at(request, error))
    if problem is None:
        raise error
    return problem.response()


async def _answer_invalid(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    route = request.scope["route"]
    flaws: dict[object, errors.Flaw] = {}
    for number, item in enumerate(error.errors()[:_MOST_FLAWS]):
        loc, is_choice = _placed(item, error.body)
        flaw = _flaw({**item, "loc": loc}, request_flaws.fields_at(route, item["loc"]))
        place = flaw.path if is_choice else number
        flaws[place] = _joined(flaws[place], flaw) if place in flaws else flaw
    return await _answer(request, refusals.invalid(list(flaws.values())))


async def _answer_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    # Frameworks answer without `Allow`, which RFC 9110 requires with 405.
    if error.status_code == 405:
        error.headers = {"Allow": ", ".join(document.methods_at(request.app, request.url.path))}
    return problems.of_http(error, request.scope).response()


def _placed(item: Mapping[str, Any], body: Any) -> tuple[Sequence[str | int], bool]:
    """Return the position of a flaw in a body, and whether it is of one choice of several, whose name is left out."""
    (place, *parts), value = item["loc"], body
    if place != "body":
        return item["loc"], False
    placed: list[str | int] = []
    for number, part in enumerate(parts, 1):
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and part in range(len(value))):
            value = value[part]
            placed.append(part)
        elif number == len(parts) and (part == "[key]" or item["type"] == "missing"):
            placed.append(part)
    return (place, *placed), len(placed) < len(parts)


def _joined(first: errors.Flaw, second: errors.Flaw) -> errors.Flaw:
    """Return the flaw of a value that fits neither of two choices; one of whose type it is says more than the other."""
    if first.code == second.code == "wrong_type":
        return dataclasses.replace(first, message=f"{first.message} or {second.message.removeprefix('must be ')}")
    return second if first.code == "wrong_type" else first


def _flaw(item: Mapping[str, Any], known: Iterable[str]) -> errors.Flaw:
    kind, loc = str(item["type"]), item["loc"]
    code = _FLAW_CODES.get(kind, "wrong_type" if kind.endswith("_type") else "invalid")
    unknown = code == "unknown_field"
    message = request_flaws.unknown_field(str(loc[-1]), known) if unknown else request_flaws.message(item)
    return errors.Flaw(path=_path(loc), code=code, message=message)


def _path(loc: Sequence[str | int]) -> str:
    place, *parts = loc
    if place == "body":
        # The position of a disallowed name is the object that contains it.
        return json_text.json_path(tuple(parts[:-1] if parts and parts[-1] == "[key]" else parts))
    return ".".join(map(str, loc))[:200]
