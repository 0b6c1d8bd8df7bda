"""Nastiest: the largest and worst bodies that each address accepts, made from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BYTES = 1024 * 1024 - 4096
"""Size of the bodies: just below the limit of the service."""

_DEPTH = 60
_METHODS = ("post", "put", "patch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body for an address."""

    name: str
    """The nasty property of the body."""
    method: str
    """HTTP method."""
    path: str
    """Address, with placeholders for its parameters."""
    content: bytes
    """The body."""


def paths(document: Mapping[str, Any]) -> list[str]:
    """Return the addresses that take a body."""
    return [
        path for path, taken in document["paths"].items() if any("requestBody" in taken.get(m, {}) for m in _METHODS)
    ]


def bodies(document: Mapping[str, Any], only: str | None = None) -> Iterator[Body]:
    """Yield every nasty body for every address that takes one, or for one address."""
    for path in paths(document) if only is None else [only]:
        operations = document["paths"][path]
        for method in _METHODS:
            taken = operations.get(method, {}).get("requestBody")
            if taken is not None:
                schema = _resolved(document, taken["content"]["application/json"]["schema"])
                for name, content in contents(schema):
                    yield Body(name=name, method=method.upper(), path=path, content=content)


def contents(schema: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of nasty objects: with unknown fields, and with nasty values in each field.

    Args:
        usual: Fields that every object has; None: those of the schema's first example.
    """
    example = dict(usual if usual is not None else (schema.get("examples") or [{}])[0])
    for name, content in _unknown():
        yield f"unknown {name}", _with(example, content)
    for field in schema.get("properties", {}):
        rest = {other: value for other, value in example.items() if other != field}
        for name, value in _values():
            yield f"{field}: {name}", _with(rest, json.dumps(field) + ":" + value)


def _unknown() -> Iterator[tuple[str, str]]:
    yield "fields", ",".join(f'"{number:x}":0' for number in range(BYTES // 10))
    yield "long fields", ",".join(f'"{number}{"n" * 60_000}":0' for number in range(BYTES // 60_100))
    yield "repeated fields", ",".join(['"a":0'] * (BYTES // 6))
    yield "deep field", '"a":' + _deep(_filled("[{0}]", "1"))


def _values() -> Iterator[tuple[str, str]]:
    yield "long text", '"' + "a b," * (BYTES // 4) + '"'
    yield "escaped text", '"' + "\\u00e9" * (BYTES // 6) + '"'
    yield "NUL characters", _filled("[{0}]", '"\\u0000"')
    yield "halves of characters", _filled("[{0}]", '"\\ud800"')
    yield "empty objects", _filled("[{0}]", "{}")
    yield "nulls", _filled("[{0}]", "null")
    yield "numbers", _filled("[{0}]", "1")
    yield "long numbers", _filled("[{0}]", "9" * 64)
    yield "too long numbers", _filled("[{0}]", "9" * 65)
    yield "one number", "9" * BYTES
    yield "texts", _filled("[{0}]", '"ab"')
    yield "names", "{" + ",".join(f'"n{number:x}":"v"' for number in range(BYTES // 12)) + "}"
    yield "bad names", "{" + ",".join(f'"A {number:x}":0' for number in range(BYTES // 12)) + "}"
    yield "objects", _filled("[{0}]", '{"title":"a","recipe_id":"b","x":0}')
    yield "deep lists", _deep(_filled("[{0}]", "[]"))
    yield "unclosed lists", "[" * BYTES


def _filled(frame: str, item: str) -> str:
    return frame.format(",".join([item] * (BYTES // (len(item) + 1))))


def _deep(inner: str) -> str:
    return '{"a":' * _DEPTH + inner + "}" * _DEPTH


def _with(example: Mapping[str, Any], content: str) -> bytes:
    given = json.dumps(example)[1:-1]
    return ("{" + (given + "," if given else "") + content + "}").encode()[: BYTES + 4096]


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    for option in (schema, *schema.get("anyOf", ())):
        if "$ref" in option:
            found: Mapping[str, Any] = document["components"]["schemas"][option["$ref"].rpartition("/")[2]]
            return found
    return schema
