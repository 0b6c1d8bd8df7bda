"""Schemas: the published JSON Schema of each shape, made from its class, type hints and the texts beside its fields."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from app.domain import shapes

PREFIX = "#/components/schemas/"
"""Prefix of a reference to a schema."""

_SCALARS: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}
_declared: dict[str, type] = {}


def components() -> dict[str, Any]:
    """Return the schemas of all shapes to which answers refer, by name."""
    made: dict[str, Any] = {}
    while missing := [name for name in _declared if name not in made]:
        made |= {name: _component(_declared[name]) for name in missing}
    return made


def reference(hint: Any) -> dict[str, Any]:
    """Return the schema of an answer, and record its shapes for `components`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(inner[0], inner[1:])
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [reference(each) for each in inner]}
    if origin is typing.Literal:
        only = {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
        return {"type": "string", **only}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": reference(inner[0])}
    if origin in (dict, Mapping):
        names = {} if inner[0] is str else {"propertyNames": reference(inner[0])}
        return {"type": "object", "additionalProperties": reference(inner[1]) or True, **names}
    if hint is Any:
        return {}
    return {"type": _SCALARS[hint]} if hint in _SCALARS else _named(hint)


def _annotated(hint: Any, notes: Sequence[Any]) -> dict[str, Any]:
    published = [note for note in notes if not isinstance(note, shapes.Keywords)]
    schema = reference(published[0] if published else hint)
    for note in notes:
        schema |= note.keywords if isinstance(note, shapes.Keywords) else {}
    return schema


def _named(shape: type) -> dict[str, Any]:
    name = getattr(shape, "published_as", shape.__name__)
    assert _declared.setdefault(name, shape) is shape, f"two shapes are published as {name}"
    return {"$ref": PREFIX + name}


def _component(shape: type) -> dict[str, Any]:
    name, text = getattr(shape, "published_as", shape.__name__), inspect.getdoc(shape)
    if issubclass(shape, StrEnum):
        return {"title": name, "type": "string", "description": text, "enum": [state.value for state in shape]}
    hints = typing.get_type_hints(shape, include_extras=True)
    required = _required(shape, hints)
    schema = {
        "title": name,
        "type": "object",
        "description": text,
        "properties": {each: _property(shape, each, hints[each]) for each in required},
        "additionalProperties": getattr(shape, "is_open_ended", False),
    }
    names = [each for each, is_required in required.items() if is_required]
    return schema | ({"required": names} if names else {})


def _required(shape: type, hints: Mapping[str, Any]) -> dict[str, bool]:
    if dataclasses.is_dataclass(shape):
        return {each.name: not shapes.is_omitted(each) for each in shapes.published(shape)}
    return {name: typing.get_origin(hint) is not typing.NotRequired for name, hint in hints.items()}


def _property(shape: type, name: str, hint: Any) -> dict[str, Any]:
    if typing.get_origin(hint) is typing.NotRequired:
        (hint,) = typing.get_args(hint)
    text = next(filter(None, (_attributes(each).get(name) for each in shape.__mro__)), None)
    titled = {"title": name.replace("_", " ").title()} if "$ref" not in (schema := reference(hint)) else {}
    # Clients read JSON, which has no None.
    return titled | schema | ({"description": re.sub(r"\bNone\b", "null", text)} if text else {})


@functools.cache
def _attributes(shape: type) -> dict[str, str]:
    """Return the descriptions of a class's attributes, from the comment beside each or the docstring under it."""
    lines, classes = _source(shape.__module__)
    defined = classes.get(shape.__name__)
    return dict(_described(defined.body, lines)) if defined else {}


@functools.cache
def _source(module: str) -> tuple[list[str], dict[str, ast.ClassDef]]:
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return [], {}
    return source.splitlines(), {each.name: each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _described(body: Sequence[ast.stmt], lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for field, after in itertools.zip_longest(body, body[1:]):
        if not isinstance(field, ast.AnnAssign):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield ast.unparse(field.target), inspect.cleandoc(str(after.value.value))
            continue
        # Only a comment can follow a statement on its line; positions count bytes.
        beside = lines[(field.end_lineno or field.lineno) - 1].encode()[field.end_col_offset :].decode().strip()
        if beside:
            yield ast.unparse(field.target), beside.removeprefix("# ")
