"""Shapes: published values, each with one definition of its fields, its JSON and its schema."""

# A dataclass, its `to_json` and a pydantic model for the OpenAPI document diverge in their descriptions, and
# building the models takes part of every start. FastAPI can publish dataclasses, but it creates a validator for each,
# and pydantic is not allowed in `app/domain`.
#
# So a published value is a frozen dataclass that derives from `Shape`, which encodes it, or a `TypedDict` if a file
# contains the value. `app/api/schemas.py` builds the JSON Schema from the type hints and the comments at the fields,
# and only when the document is requested. Pydantic only checks requests. Values written for every step (journal lines,
# events, slots) have their own encoders.
#
# Price: the generator supports the types that answers use, about a dozen; another type needs a line there. Descriptions
# come from the source, so an installation without source has none.

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from app import errors
from app.domain import plain

_Class = TypeVar("_Class", bound=type)


class Shape:
    """A dataclass whose JSON is its fields; the comments at the fields describe them in the OpenAPI document."""

    __slots__ = ()

    def to_json(self) -> dict[str, plain.Json]:
        """Return the fields as plain JSON, without internal ones and without omittable ones at their default."""
        return all_json((self,))[0]


@dataclass(frozen=True, slots=True, eq=False)
class Keywords:
    """Further keywords of the schema of a field, as an annotation of its type."""

    keywords: Mapping[str, Any]  # Keywords of JSON Schema.


Instant = Annotated[str, Keywords({"format": "date-time", "examples": ["2026-02-10T14:30:00.000Z"]})]
"""A point in time in UTC."""

RunId = Annotated[str, Keywords({"examples": ["20260210T143000Z-k3x9af"]})]  # Id of a run.


def all_json(shapes: Iterable[Shape]) -> list[dict[str, plain.Json]]:
    """Return the JSON of several shapes at the cost of one call: a poll shows hundreds of steps."""
    made = []
    for shape in shapes:
        shown: dict[str, plain.Json] = {}
        kind: Any = type(shape)
        for name, may_be_omitted, is_shared, default in _published_names(kind):
            value = getattr(shape, name)
            if may_be_omitted and value == default:
                continue
            known = is_shared or value is None or isinstance(value, int) or (isinstance(value, str) and value.isascii())
            known = known or (isinstance(value, float) and math.isfinite(value))
            shown[name] = value if known else _plain(value)
        made.append(shown)
    return made


def omitted(default: Any = None) -> Any:
    """Return a field that is left out of the JSON while it has its default."""
    return field(default=default, metadata={"omitted": True})


def shared(**how: Any) -> Any:
    """Return a field of plain JSON that was read from JSON, so that it needs neither conversion nor copy."""
    return field(metadata={"shared": True}, **how)


def internal(**how: Any) -> Any:
    """Return a field that is never published."""
    return field(metadata={"internal": True}, **how)


def open_ended(shape: _Class) -> _Class:
    """Mark a shape whose JSON may have further fields."""
    shape.is_open_ended = True  # type: ignore[attr-defined]
    return shape


def published(shape: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that are in its JSON."""
    return [each for each in dataclasses.fields(shape) if _is_published(each)]


def is_omitted(each: dataclasses.Field[Any]) -> bool:
    """Return whether a field is omitted while it has its default."""
    return bool(each.metadata.get("omitted"))


@functools.cache
def _published_names(shape: type) -> tuple[tuple[str, bool, bool, Any], ...]:
    return tuple(
        (each.name, is_omitted(each), bool(each.metadata.get("shared")), each.default) for each in published(shape)
    )


def _is_published(each: dataclasses.Field[Any]) -> bool:
    return not each.metadata.get("internal")


def _plain(value: Any) -> plain.Json:
    match value:
        case Shape() | errors.Flaw():
            return value.to_json()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            for item in value.values():
                if isinstance(item, Shape):
                    return {name: _plain(part) for name, part in value.items()}
    return plain.plain(value)
