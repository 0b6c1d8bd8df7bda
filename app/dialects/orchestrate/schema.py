"""The JSON Schemas of workflows, one for each version of the language (workflow-dsl, version gating summary)."""

from __future__ import annotations

from app.dialects.orchestrate import fields
from app.domain import plain

_Schema = dict[str, plain.Json]


def json_schema(version: str = fields.NEWEST) -> _Schema:
    """Return the schema of one version, strict: no object takes a field that the version does not name."""
    kinds = {kind: _object(kind, version) for kind in fields.KINDS if _known(kind, version)}
    workflow = kinds.pop("workflow")
    workflow["properties"]["version"] = _rule(fields.KINDS["workflow"][0]) | {"enum": [version]}
    kinds["step"] |= {
        "oneOf": [{"required": [form]} for form in fields.FORMS],
        "dependentRequired": {"provider_params": ["provider"]},
    }
    kinds["for_each"] |= {"oneOf": [{"required": ["items"]}, {"required": ["items_from"]}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:control-room:schema:orchestrate:{version}",
        "title": f"Orchestrate workflow {version}",
        "description": "Commands and providers in order, with conditions, jumps and loops; files are their queues.",
        **workflow,
        "$defs": kinds,
    }


def published() -> dict[str, _Schema]:
    """Return the schemas of all versions by the names of their files."""
    return {f"orchestrate-{version}": json_schema(version) for version in fields.VERSIONS}


def _known(kind: str, version: str) -> bool:
    holders = [field for kinds in fields.KINDS.values() for field in kinds if field.below == kind]
    return kind == "workflow" or any(field.known_in(version) for field in holders)


def _object(kind: str, version: str) -> _Schema:
    known = [field for field in fields.KINDS[kind] if field.known_in(version)]
    made: _Schema = {
        "type": "object",
        "required": [field.name for field in known if field.required],
        "properties": {field.name: _rule(field) for field in known},
        "additionalProperties": False,
    }
    return made | {"minProperties": 1} if kind in fields.NOT_EMPTY else made


def _rule(field: fields.Field) -> _Schema:
    return {**field.rule, "description": field.meaning}
