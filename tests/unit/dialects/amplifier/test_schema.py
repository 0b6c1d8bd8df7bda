"""Tests of the schemas and of the language reference: they agree with the parser."""

from __future__ import annotations

import json
import re

import pytest

from app.dialects.amplifier import schema
from app.domain import json_schemas
from tests.unit.dialects import reference
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import later, recipe, step


def test_editors_see_which_version_it_is():
    """A recipe without a version is of the first one; each schema accepts the recipes of its own version."""
    assert not json_schemas.flaws(schema.json_schema("1.1"), recipe(step()))
    assert not json_schemas.flaws(schema.json_schema("1.7"), later(step()))
    assert json_schemas.flaws(schema.json_schema("1.7"), recipe(step()))
    assert json_schemas.flaws(schema.json_schema("1.1"), later(step()))


REFERENCE = (recipe_harness.ROOT / "docs" / "reference" / "amplifier.md").read_text(encoding="utf-8")
TITLES = {
    "recipe": "Recipe",
    "stage": "Stage",
    "approval": "Approval",
    "step": "Step",
    "nested_foreach": "Inner loop",
    "retry": "Retries",
    "recursion": "Recursion",
    "rate_limiting": "Rate limiting",
    "backoff": "Backoff",
    "preference": "Preference",
}


@pytest.mark.parametrize("kind", schema.KINDS)
def test_the_reference_documents_every_field(kind):
    """The tables of docs/reference/amplifier.md list the same fields as the schemas."""
    documented = {row[0]: row[1:7] for row in reference.tables(REFERENCE, 5)[TITLES[kind]]}

    assert documented == {
        field.name: [
            reference.kind(field.rule),
            _required(field),
            field.since,
            json.dumps(field.rule["default"]) if "default" in field.rule else "–",
            "yes" if field.filled else "no",
            field.meaning,
        ]
        for field in schema.KINDS[kind]
    }
    assert list(documented) == [field.name for field in schema.KINDS[kind]]


def test_the_reference_names_every_code():
    """docs/reference/amplifier.md contains each code of a flaw, and of a failure of the language."""
    folder = recipe_harness.ROOT / "app" / "dialects" / "amplifier"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    calls = r'(?:flaw\([^"\n]*?(?:"\w+"[^"\n]*?)?|code=|Unfit\(|NoData\(|refuse\([^"\n]*?)"([a-z]+_[a-z_0-9]+)"'
    codes = set(re.findall(calls, text)) - {
        "nested_foreach",
        "depends_on",
        "reply_schema",
        "step_failed",
    }
    codes -= {"args_schema", "final_output", "update_context"}

    assert len(codes) > 20
    assert codes - set(re.findall(r"`([a-z_0-9]+)`", REFERENCE)) == set()


def test_the_examples_of_the_reference():
    """The recipes in docs/reference/amplifier.md are valid."""
    examples = re.findall(r"^```yaml\n(name: .*?)^```", REFERENCE, re.MULTILINE | re.DOTALL)

    assert [recipe_harness.parsed(example).recipe_id for example in examples] == ["greet", "review-changes"]


def _required(field):
    if field.required:
        return "yes"
    return f"in {field.required_in[0]}" if field.required_in else "no"
