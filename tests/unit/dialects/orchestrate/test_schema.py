"""Tests of the schemas and of the language reference: they agree with the parser."""

from __future__ import annotations

import json
import re

import pytest

from app.dialects.orchestrate import dependencies, parse, schema, variables
from app.domain import json_schemas
from app.tools import captures
from tests.unit.dialects import reference
from tests.unit.dialects.orchestrate import workflow_harness
from tests.unit.dialects.orchestrate.workflow_harness import flaws, loop, step, workflow

REFERENCE = (workflow_harness.ROOT / "docs" / "reference" / "orchestrate.md").read_text(encoding="utf-8")
TITLES = {
    "workflow": "Workflow",
    "provider": "Provider",
    "step": "Step",
    "requirement": "Requirement",
    "wait_for": "Wait",
    "depends_on": "Dependencies",
    "injection": "Injection",
    "retries": "Retries",
    "when": "Condition",
    "equals": "Comparison",
    "on": "Branches",
    "goto": "Jump",
    "for_each": "Loop",
    "on_item_complete": "Completion",
    "move": "Move",
}


@pytest.mark.parametrize(
    "given",
    [
        {"name": "A"},
        step(provider="echo", command=["x"]),
        step(wait_for={"glob": "x"}, command=["x"]),
        step(command=["x"], provider_params={}),
        loop("A", step("B"), items=[], items_from="steps.A.lines"),
        step(for_each={"steps": [step("B")]}),
    ],
)
def test_the_schema_has_the_exclusions_of_the_parser(given):
    """The schema has the same exclusive forms of a step and of a loop's items as the parser."""
    document = workflow(given)

    assert flaws(document)
    assert json_schemas.flaws(schema.json_schema(), document)


@pytest.mark.parametrize("kind", schema.KINDS)
def test_the_reference_documents_every_field(kind):
    """The tables of docs/reference/orchestrate.md match the fields: type, necessity, version, default, variables."""
    documented = {row[0]: row[1:6] for row in reference.tables(REFERENCE)[TITLES[kind]]}

    assert documented == {
        field.name: [
            reference.kind(field.rule),
            "yes" if field.required else "no",
            field.since,
            json.dumps(field.rule["default"]) if "default" in field.rule else "–",
            "yes" if field.filled else "no",
        ]
        for field in schema.KINDS[kind]
    }
    assert list(documented) == [field.name for field in schema.KINDS[kind]]


def test_the_reference_names_every_code():
    """docs/reference/orchestrate.md lists every code of a flaw, field of a result and part of an error context."""
    folder = workflow_harness.ROOT / "app" / "dialects"
    text = "".join(path.read_text(encoding="utf-8") for path in (folder / "orchestrate").glob("*.py"))
    text += (folder / "yaml_text.py").read_text(encoding="utf-8")
    calls = r'(?:flaw\([^"\n]*?(?:"\w+"[^"\n]*?)?|_note\(|code=|return )"([a-z]+_[a-z_0-9]+|syntax|tag)"'
    contexts = set(re.findall(r'context\["(\w+)"\]|\{"(json_\w+)": |"(in\w+_reference)": ', text))
    codes = set(re.findall(calls, text)) - {"json_schema", "depends_on", "for_each"}
    told = set(re.findall(r"`([a-z_0-9]+)`", REFERENCE))

    assert len(codes) > 25
    assert codes - told == set()
    assert {name for found in contexts for name in found if name} - told == set()
    assert set(variables.RESULTS) - told == set()


def test_the_reference_states_the_limits_of_the_code():
    """Sizes in docs/reference/orchestrate.md are those of the code."""
    assert f"{captures.TEXT_BYTES // 1024} KiB" in REFERENCE
    assert f"{captures.MOST_LINES:,}" in REFERENCE
    assert f"{captures.JSON_BYTES // 1024**2} MiB" in REFERENCE
    assert f"{dependencies.CAP_BYTES // 1024} KiB" in REFERENCE


def test_the_examples_of_the_reference():
    """The workflows in docs/reference/orchestrate.md are valid."""
    examples = re.findall(r"^```yaml\n(.*?)^```", REFERENCE, re.MULTILINE | re.DOTALL)

    assert [parse.parse(example, "example").label for example in examples] == ["example", "Review what is new"]
