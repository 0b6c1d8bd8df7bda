"""Field tables: define the fields of a recipe language by kind of object, and make its schemas from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain import frozen_agents, plain

Rule: TypeAlias = plain.Object  # JSON Schema of a value.
Schema: TypeAlias = dict[str, plain.Json]  # JSON Schema of an object.
FIRST = "1.1"  # First version of the languages that have versions.
MOST_SECONDS = 7 * 24 * 60 * 60  # Longest time that a recipe can ask for.
ENV_NAME = r"^[^=\s]{1,256}$"  # Form of the names of environment variables.
NO: Schema = {"type": "boolean", "default": False}  # A switch that is off by default.
WORD: Schema = {"type": "string", "minLength": 1, "maxLength": 200}  # A short text.
ENV: Schema = {"type": "object", "propertyNames": {"pattern": ENV_NAME}, "additionalProperties": {"type": "string"}}
"""Variables of an environment."""
SECRETS: Schema = {
    "type": "array",
    "items": {"type": "string", "pattern": ENV_NAME},
    "maxItems": 200,
    "uniqueItems": True,
}
"""Names of secret variables."""
IDLE: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": frozen_agents.MOST_IDLE_SECONDS}
"""Longest silence of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of one kind of object."""

    name: str  # Its name.
    rule: Rule  # JSON Schema of its value.
    meaning: str  # Its meaning, in a sentence.
    required: bool = False  # Whether it is required in every version that has it.
    required_in: tuple[str, ...] = ()  # The only versions that require it.
    since: str = FIRST  # Version that introduced it.
    below: str | None = None  # Kind of the object, or objects, in it.
    path: Literal["file", "folder", "glob"] | None = None  # Kind of path in its text.
    filled: bool = False  # Whether variables are substituted in it.

    def known_in(self, version: str) -> bool:
        """Return whether a version has the field."""
        return _order(self.since) <= _order(version)

    def schema(self) -> Schema:
        """Return the JSON Schema of its value with its meaning."""
        return {**self.rule, "description": self.meaning}


Kinds: TypeAlias = Mapping[str, tuple[Field, ...]]  # The kinds of objects of a language, each with its fields in order.


def field(name: str, rule: Rule, meaning: str, **more: plain.Json) -> Field:
    """Return a field."""
    return Field(name=name, rule=rule, meaning=meaning, **more)


def one(kind: str) -> Rule:
    """Return the rule of a field with one object of a kind."""
    return {"$ref": f"#/$defs/{kind}"}


def several(kind: str) -> Rule:
    """Return the rule of a field with a list of objects of a kind."""
    return {"type": "array", "items": one(kind), "minItems": 1, "maxItems": 1_000}


def part(name: str, kind: str, meaning: str, **more: plain.Json) -> Field:
    """Return a field with one object of a kind."""
    return Field(name=name, rule=one(kind), meaning=meaning, below=kind, **more)


def objects(kinds: Kinds, root: str, version: str) -> dict[str, Schema]:
    """Return the schema of each kind that a version reaches from its root; no object takes an unknown field."""
    reached, waiting = {root}, [root]
    while waiting:
        below = {field.below for field in kinds[waiting.pop()] if field.known_in(version) and field.below} - reached
        reached |= below
        waiting += below
    return {kind: _object(kinds[kind], version) for kind in kinds if kind in reached}


def _object(listed: tuple[Field, ...], version: str) -> Schema:
    known = [field for field in listed if field.known_in(version)]
    return {
        "type": "object",
        "required": [field.name for field in known if field.required or version in field.required_in],
        "properties": {field.name: field.schema() for field in known},
        "additionalProperties": False,
    }


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
