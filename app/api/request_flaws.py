"""Flaws of requests: reports unknown fields with the nearest known name, and explains wrong values in plain words."""

from __future__ import annotations

import difflib
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request

from app import errors, printable
from app.api import refusals
from app.domain import budgets, concurrency, keys
from app.services import issue_texts, requests

KEY_HEADER = "Idempotency-Key"  # Header that makes a request safe to repeat.

_SHOWN_CHARACTERS = 80
_MOST_SHOWN = 30
_MOST_FLAWS = 200
_BEGINNING = 4  # Number of first characters in which two similar names must agree.

_parameters: dict[Any, Mapping[str, bool]] = {}


async def check_parameters(request: Request) -> None:
    """Refuse query parameters that the address does not define, and several values or keys where it takes one.

    Raises:
        errors.RequestInvalid: names each such parameter, and the nearest known one.
    """
    if len(request.headers.getlist(KEY_HEADER)) > 1:
        raise refusals.invalid([refusals.repeated(f"header.{KEY_HEADER}")])
    if not request.scope["query_string"]:
        return
    known = _parameters_of(request.scope["route"])
    given = Counter(name for name, _ in request.query_params.multi_items())
    wrong = [name for name, times in given.items() if name not in known or (times > 1 and not known[name])]
    if wrong:
        raise refusals.invalid([_parameter_flaw(name, known) for name in wrong[:_MOST_FLAWS]])


def unknown_field(name: str, known: Iterable[str]) -> str:
    """Return the message about an unknown field, with the nearest known name or all known names."""
    names = sorted(known)
    plain_name = _plain(name[:_SHOWN_CHARACTERS])
    begun = [one for one in names if plain_name and _plain(one).startswith(plain_name)]
    near = difflib.get_close_matches(name[:_SHOWN_CHARACTERS], names, 1)
    if near and not near[0].startswith(name[:_BEGINNING]):
        near = [one for one in names if one.startswith(name[:_BEGINNING])][:1] + near
    if begun or near:
        return f"is not known; did you mean {' or '.join(begun[:1] or near)}?"
    return f"is not known; there are {printable.listed(names, _MOST_SHOWN) or 'none'}"


def fields_at(route: Any, loc: Sequence[str | int]) -> frozenset[str]:
    """Return the allowed fields at a position of a request: of the query, or of an object in the body.

    Args:
        loc: Position as pydantic reports it, `("body", "tasks", 0, "descripton")`.
    """
    if not loc or loc[0] != "body":
        return frozenset(_parameters_of(route))
    field = getattr(route, "body_field", None)
    return fields_in(field.field_info.annotation if field is not None else None, loc[1:])


def fields_in(shape: Any, loc: Sequence[str | int]) -> frozenset[str]:
    """Return the fields of the object that contains the last part of a position, as its shape declares them."""
    models = list(_models(shape))
    for part in loc[:-1]:
        inner = [field for model in models for field in _fields(model, part)] if isinstance(part, str) else []
        models = [found for field in inner for found in _models(field)] or models
    return frozenset(info.alias or name for model in models for name, info in model.model_fields.items())


def _fields(model: type[BaseModel], name: str) -> list[Any]:
    return [info.annotation for known, info in model.model_fields.items() if name in (known, info.alias)]


def _models(shape: Any) -> Iterable[type[BaseModel]]:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        yield shape
    for inner in typing.get_args(shape):
        yield from _models(inner)


def _parameter_flaw(name: str, known: Mapping[str, bool]) -> errors.Flaw:
    if name in known:
        return refusals.repeated(f"query.{name}")
    return errors.Flaw(path=f"query.{name}"[:200], code="unknown_field", message=unknown_field(name, known))


def _parameters_of(route: Any) -> Mapping[str, bool]:
    """Return the query parameters of a route, and whether each takes several values."""
    known = _parameters.get(route.endpoint)
    if known is None:
        known = dict(_query(route.dependant))
        _parameters[route.endpoint] = known
    return known


def _query(dependant: Any) -> Iterator[tuple[str, bool]]:
    for field in dependant.query_params:
        shape = field.field_info.annotation
        if models := list(_models(shape)):
            yield from (
                (name, _is_list(info.annotation)) for model in models for name, info in model.model_fields.items()
            )
        else:
            yield field.alias, _is_list(shape)
    for inner in dependant.dependencies:
        yield from _query(inner)


def _is_list(shape: Any) -> bool:
    return typing.get_origin(shape) is list or any(_is_list(inner) for inner in typing.get_args(shape))


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


LABEL_PATTERN = r"^[^\x00:]+:[^\x00]*$"
BUDGET_LABEL_PATTERN = r"^[A-Za-z0-9_./-]{1,64}:"
KEY_LABEL_PATTERN = f"^{keys.LABEL_PATTERN}$"
_LABEL = "must be a label such as `book:one` or `book=one`"
_NO_SPACE_AROUND = "printable ASCII characters, with no space at either end"

FORMS = {
    LABEL_PATTERN: _LABEL,
    BUDGET_LABEL_PATTERN: _LABEL,
    KEY_LABEL_PATTERN: _LABEL,
    requests.LABEL_NAME_PATTERN: requests.LABEL_NAME_FORM,
    requests.SESSION_ID_PATTERN: requests.SESSION_ID_FORM,
    keys.NAME_PATTERN: keys.NAME_FORM,
    budgets.NAME_PATTERN: budgets.NAME_FORM,
    f"^{keys.RECIPE_PATTERN}$": "must be 1 to 200 characters, none of them a control character",
    concurrency.KEY_PATTERN: f"must be 1 to 200 {_NO_SPACE_AROUND}",
    requests.IDEMPOTENCY_KEY_PATTERN: f"must be 1 to 255 {_NO_SPACE_AROUND}",
    issue_texts.TITLE_PATTERN: "must be one line of printable characters that says something",
    issue_texts.KIND_PATTERN: "must be 1 to 64 of a to z, 0 to 9, '_', '.' and '-', and begin with a letter or digit",
    r"^[^\x00]*$": "must not contain the character U+0000",
    r"^[^\x00/]+/[^\x00]+$": "must be the cursor of a `Link` header",
    r"^[0-9]{1,15}$": "must be a whole number of at most 15 digits",
    r"^[0-9a-f]{64}$": "must be 64 digits and letters from a to f",
    r"^[+-](0\d|1[0-3]):(00|15|30|45)$|^[+-]14:00$": "must be an offset from UTC such as +05:30",
    r"\S": "must say something",
    "^current$": "must be 'current'",
}
"""Patterns in words, for people who do not read regular expressions."""

_TYPES = {
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "missing": "is required",
}

_LIMITS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "string_too_short": lambda limits: "must say something",
    "string_too_long": lambda limits: f"has more than {limits['max_length']} characters",
    "string_pattern_mismatch": lambda limits: FORMS.get(limits["pattern"], f"must match {limits['pattern']}"),
    "too_short": lambda limits: "must not be empty",
    "too_long": lambda limits: f"has more than {limits['max_length']} entries",
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']}",
    "enum": lambda limits: f"must be {limits['expected']}",
    "literal_error": lambda limits: f"must be {limits['expected']}",
    "value_error": lambda limits: str(limits["error"]),
}


def message(item: Mapping[str, Any]) -> str:
    """Return the message about a value that pydantic rejected, in plain words.

    Args:
        item: An error of pydantic with its context; an unknown kind of error keeps pydantic's message.
    """
    kind, limits = str(item["type"]), item.get("ctx") or {}
    if kind == "missing" and tuple(item.get("loc", ())) == ("body",):
        return "must be an object; the request has no body"
    if kind in _TYPES:
        return _TYPES[kind]
    return _LIMITS[kind](limits) if kind in _LIMITS else str(item["msg"])
