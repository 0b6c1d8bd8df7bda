"""The JSON Schemas of recipes, one for each version of the language."""

from __future__ import annotations

from app.dialects.amplifier import fields
from app.domain import plain

_Schema = dict[str, plain.Json]


def json_schema(version: str = fields.NEWEST) -> _Schema:
    """Return the schema of one version, strict: no object takes a field that the version does not name."""
    reached = _reached(version)
    kinds = {kind: _object(kind, version) for kind in fields.KINDS if kind in reached}
    recipe = kinds.pop("recipe")
    recipe["properties"]["schema"]["enum"] = [version]
    if version != fields.FIRST:
        del recipe["properties"]["schema"]["default"]
        recipe["required"].append("schema")
        recipe["oneOf"] = [{"required": ["steps"]}, {"required": ["stages"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:control-room:schema:amplifier:{version}",
        "title": f"Amplifier recipe {version}",
        "description": "Prompts to agents in order, with variables, conditions and loops.",
        **recipe,
        "$defs": kinds,
    }


def published() -> dict[str, _Schema]:
    """Return the schemas of all versions by the names of their files."""
    return {f"amplifier-{version}": json_schema(version) for version in fields.VERSIONS}


def _reached(version: str) -> set[str]:
    found, waiting = {"recipe"}, ["recipe"]
    while waiting:
        for field in fields.KINDS[waiting.pop()]:
            if field.known_in(version) and field.below is not None and field.below not in found:
                found.add(field.below)
                waiting.append(field.below)
    return found


def _object(kind: str, version: str) -> _Schema:
    known = [field for field in fields.KINDS[kind] if field.known_in(version)]
    return {
        "type": "object",
        "required": [field.name for field in known if version in field.required_in],
        "properties": {field.name: {**field.rule, "description": field.meaning} for field in known},
        "additionalProperties": False,
    }
