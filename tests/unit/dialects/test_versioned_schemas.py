"""Tests of the schemas of languages with versions: each is published, strict, and extends the one before."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.dialects.amplifier import schema as amplifier
from app.dialects.orchestrate import schema as orchestrate
from app.domain import json_schemas

ROOT = Path(__file__).resolve().parents[3]
LANGUAGES: dict[str, tuple[Any, str]] = {"amplifier": (amplifier, "schema"), "orchestrate": (orchestrate, "version")}
"""The module of each language's schemas, and the field that names the version."""

VERSIONS = [(language, version) for language, (schema, _) in LANGUAGES.items() for version in schema.VERSIONS]


@pytest.mark.parametrize(("language", "version"), VERSIONS)
def test_the_published_schema_is_the_one_in_use(language: str, version: str) -> None:
    """recipes/schema/ contains the output of `scripts/publish_schemas.py` for each version, which is a valid schema."""
    schema, field = LANGUAGES[language]
    name = f"{language}-{version}"
    published = json.loads((ROOT / "recipes" / "schema" / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)

    assert published == schema.published()[name]
    assert published["properties"][field]["enum"] == [version]


@pytest.mark.parametrize(("language", "version"), VERSIONS)
def test_every_object_of_a_schema_is_strict(language: str, version: str) -> None:
    """No object accepts a field that its version does not name, and each part of a schema is used."""
    made = LANGUAGES[language][0].json_schema(version)

    assert all(part["additionalProperties"] is False for part in (made, *made["$defs"].values()))
    assert set(re.findall(r"#/\$defs/(\w+)", json.dumps(made))) == set(made["$defs"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_versions_only_add(language: str) -> None:
    """A higher version has every field of a lower one, and more."""
    schema = LANGUAGES[language][0]
    names = [
        {
            (kind, name)
            for kind, part in {**schema.json_schema(version)["$defs"], "": schema.json_schema(version)}.items()
            for name in part["properties"]
        }
        for version in schema.VERSIONS
    ]

    assert all(lower < higher for lower, higher in itertools.pairwise(names))
    assert len(names[-1]) == sum(map(len, schema.KINDS.values()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_defaults_are_values_that_are_allowed(language: str) -> None:
    """The default of an omitted field fits the schema."""
    fields = [field for kind in LANGUAGES[language][0].KINDS.values() for field in kind if "default" in field.rule]

    assert [field.name for field in fields if json_schemas.flaws(field.rule, field.rule["default"])] == []
