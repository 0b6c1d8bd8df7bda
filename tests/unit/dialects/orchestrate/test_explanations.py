"""Tests of the messages for an unknown field, or a value in another form."""

from __future__ import annotations

from typing import Any

import pytest

from app.dialects.orchestrate import explanations, schema
from tests.unit.dialects.orchestrate.workflow_harness import all_flaws, loop, step, workflow


def message(document: Any) -> str:
    """Return the first flaw's message."""
    return all_flaws(document)[0].message


@pytest.mark.parametrize(
    ("made", "guess"),
    [
        (step(timeout=3), "did you mean timeout_sec?"),
        (step(comand=["x"]), "did you mean command?"),
        (step(output_schma="x", output_capture="json"), "did you mean output_schema?"),
        (step(on_failure="B"), "did you mean `on: {failure: {goto: …}}`?"),
        (step(model="small"), "did you mean `provider_params: {model: …}`?"),
        (step(retries={"attempts": 2, "max": 1}), "did you mean max?"),
        (step(wait_for={"glob": "a", "timeout": 2}), "did you mean timeout_sec?"),
        (step(when={"exist": "a"}), "did you mean exists?"),
        (loop("A", step("B"), items=["a"], item="x"), "did you mean as?"),
    ],
)
def test_a_misplaced_field_gets_a_suggestion(made: Any, guess: str) -> None:
    """Misspelled fields, those of other tools, and those that belong one level deeper get a suggestion."""
    assert f"is not a known field; {guess}; its fields are " in message(workflow(made))


def test_all_fields_are_listed() -> None:
    """The message for an unknown field without a similar one lists every field of the object in that version."""
    of_step = [field.name for field in schema.KINDS["step"] if field.known_in("1.1")]

    assert message(workflow(step(zzz=1), version="1.1")) == f"is not a known field; its fields are {', '.join(of_step)}"
    assert message({**workflow(step()), "zzz": 1}).endswith(
        "inbox_dir, processed_dir, failed_dir, task_extension, steps"
    )


@pytest.mark.parametrize(
    ("document", "version"),
    [
        ({**workflow(step()), "inputs": {}}, "2.1"),
        (workflow(step(expected_outputs=[])), "1.2"),
        (workflow({**step(), "assert": {"exists": "a"}}), "1.5"),
        (workflow(step(when={"exists": "a", "compare": {}})), "1.6"),
        (workflow(loop("A", step("B", materialize_artifacts={}))), "2.14"),
        ({**workflow(step()), "providers": {"p": {"command": ["a"], "session_support": {}}}}, "2.10"),
    ],
)
def test_fields_of_later_versions_are_named_as_such(document: Any, version: str) -> None:
    """An upstream field of a later version has its own code, and the message names that version."""
    found = [flaw for flaw in all_flaws(document) if flaw.code == "later_field"]

    assert [flaw.message.partition(";")[0] for flaw in found] == [f"belongs to upstream's version {version}"]


@pytest.mark.parametrize(
    ("made", "form"),
    [
        (step(command="npm run build"), 'write `command: ["npm", "run", "build"]`'),
        (step(command="ls *.md | wc -l"), 'write `command: ["bash", "-c", "ls *.md | wc -l"]`'),
        (step(command="echo 'it"), 'write `command: ["bash", "-c", "echo \'it"]`'),
        (step(retries=2), "write `retries: {max: 2}`"),
        (step(retries=True), "write `retries: {max: 2}`"),
        (step(secrets="TOKEN"), 'write `secrets: ["TOKEN"]`'),
        (step(depends_on="a.md"), 'write `depends_on: {required: ["a.md"]}`'),
        (step(depends_on={"required": "a.md"}), 'write `required: ["a.md"]`'),
        (step(wait_for="in/*"), 'write `wait_for: {glob: "in/*"}`'),
        (step(on={"failure": "_end"}), 'write `failure: {goto: "_end"}`'),
        ({"name": "A", "for_each": ["a"]}, 'write `for_each: {items: ["a"], steps: […]}`'),
        (step(when="true"), "write `when: {equals: {left: …, right: …}}`"),
    ],
)
def test_a_value_in_another_form_is_answered_with_the_form(made: Any, form: str) -> None:
    """A value in the form of another tool is answered with the form of this language."""
    flaw = next(flaw for flaw in all_flaws(workflow(made)) if flaw.code == "wrong_type")

    assert flaw.message.endswith(form)


def test_a_command_of_a_provider_is_answered_alike() -> None:
    """A provider's template is explained like a command; a very long text is not repeated."""
    document = {**workflow(step()), "providers": {"p": {"command": "claude -p ${PROMPT}"}}}

    assert 'write `command: ["claude", "-p", "${PROMPT}"]`' in message(document)
    assert message(workflow(step(command="x " * 500))).endswith("write `command: […]`")


def test_tables_name_fields_that_there_are() -> None:
    """The table suggests only known fields, and explains none of this version's fields."""
    for kind, names in explanations._MEANT.items():
        known = {field.name for field in schema.KINDS[kind]}

        assert {meant.partition(":")[0] for meant in names.values()} <= known
        assert not names.keys() & known


@pytest.mark.parametrize(
    ("field", "fields"), [("when", "equals, exists, not_exists"), ("on", "success, failure, always")]
)
def test_an_empty_object_lists_its_fields(field: str, fields: str) -> None:
    """An object that must have a field says which it can have."""
    assert message(workflow({**step(), field: {}})) == f"is empty; its fields are {fields}"
