"""Shapes: the JSON of a value has the form of its published schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import jsonschema
import pytest

from app.api import request_flaws, schemas
from app.domain import records, runs, shapes, states
from tests.architecture import sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(shapes.Shape):
    """A sample."""

    published_as: ClassVar[str] = "SampleShown"

    made_at: shapes.Instant
    """When it was made; None: never."""
    state: states.StepState
    """State of it."""
    error: records.StepError | None = None
    """Why the sample failed."""
    notes: tuple[str, ...] = shapes.omitted(default=())  # Notes – each “one line”; None: unknown.
    secret: object = shapes.internal(default=None)
    """Hidden from clients."""


@pytest.fixture(autouse=True)
def _declared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the sample out of the document that other tests compare."""
    monkeypatch.setattr(schemas, "_declared", dict(schemas._declared))


def published(shape: Any) -> dict[str, Any]:
    """Return the schema of a shape with all schemas that it refers to."""
    return {**schemas.reference(shape), "components": {"schemas": schemas.components()}}


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (Sample(made_at="2026-02-10T14:30:00.000Z", state=states.StepState.DONE), {"made_at", "state", "error"}),
        (
            Sample(
                made_at="2026-02-10T14:30:00.000Z",
                state=states.StepState.FAILED,
                error=records.StepError(code="x", message="y", detail={"z": [1]}),
                notes=("a",),
                secret=object(),
            ),
            {"made_at", "state", "error", "notes"},
        ),
    ],
)
def test_the_json_of_a_shape_has_its_schema(value: Sample, fields: set[str]) -> None:
    """Fields that may be omitted are not required, and internal ones are neither written nor published."""
    jsonschema.validate(value.to_json(), published(Sample))

    assert value.to_json().keys() == fields
    assert "secret" not in schemas.components()["SampleShown"]["properties"]


def test_the_text_beside_a_field_describes_it() -> None:
    """The comment beside a field, or the docstring under it, is its description; the class's is that of the schema."""
    schemas.reference(Sample)
    found = schemas.components()["SampleShown"]

    assert found["description"] == "A sample."
    assert found["properties"]["state"]["description"] == "State of it."
    assert found["properties"]["made_at"]["format"] == "date-time"
    assert found["properties"]["made_at"]["description"] == "When it was made; null: never."
    assert found["properties"]["notes"]["description"] == "Notes – each “one line”; null: unknown."


def test_an_undocumented_field_is_refused() -> None:
    """A schema is closed: an answer with an undocumented field is refused."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**runs.Ending().to_json(), "further": 1}, published(runs.Ending))


def _patterns(schema: Any) -> Iterator[str]:
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and schema.get("type") == "string" and "pattern" in schema:
        yield schema["pattern"]
    for part in parts:
        yield from _patterns(part)


def test_every_pattern_has_words() -> None:
    """A value that does not fit the pattern of its field is refused in words, not with a regular expression."""
    document = json.loads((sources.ROOT / "openapi" / "openapi.json").read_text())

    assert set(_patterns(document)) - request_flaws.FORMS.keys() == set()
