"""Workflows by their paths, and single steps of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from app import errors
from app.cli.orchestrate import places, showing, workflows

FLOW = """\
version: "{version}"
context: {{who: you}}
providers:
  reader: {{command: [cat], input_mode: stdin}}
steps:
  - name: Look
    command: [ls]
    output_capture: lines
    on: {{failure: {{goto: Each}}}}
  - name: Each
    for_each:
      items: [a, b]
      steps:
        - {{name: Say, provider: reader, input_file: "${{item}}"}}
  - name: Read
    for_each: {{items_from: steps.Look.lines, steps: [{{name: Say, command: [echo]}}]}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> places.Place:
    """Change to a workspace."""
    monkeypatch.chdir(tmp_path)
    return places.of(None)


def write(place: places.Place, version: str = "1.3") -> workflows.Workflow:
    """Write a workflow and read it."""
    (place.workspace / "flow.yaml").write_text(FLOW.format(version=version))
    return workflows.read(Path("flow.yaml"), place)


def test_a_checksum_is_that_of_the_file(place: places.Place):
    """The checksum is the SHA-256 of the file's bytes, in the workflow and in the frozen recipe."""
    workflow = write(place)
    expected = hashlib.sha256((place.workspace / "flow.yaml").read_bytes()).hexdigest()

    assert workflow.checksum == f"sha256:{expected}"
    assert workflow.recipe_version().frozen()["frozen"]["workflow_checksum"] == workflow.checksum


@pytest.mark.parametrize("version", ["1.1", "1.1.1", "1.2", "1.3"])
def test_a_step_alone_is_a_workflow(place: places.Place, version: str):
    """A single step becomes a workflow of the same version, with the shared context and without transitions."""
    alone = write(place, version).only("Each")

    assert [step["name"] for step in alone.recipe.document["steps"]] == ["Each"]
    assert alone.recipe.document["context"] == {"who": "you"}
    assert alone.recipe.document["version"] == version
    assert "on" not in write(place, version).only("Look").recipe.document["steps"][0]


def test_a_step_alone_is_the_same_each_time(place: places.Place):
    """A single step has the same checksum each time, and another one than the whole file."""
    assert write(place).only("Each").checksum == write(place).only("Each").checksum != write(place).checksum


def test_a_step_that_needs_another_cannot_be_alone(place: places.Place):
    """A single step that needs another is refused, and the flaw has the other step, and its own place in the file."""
    with pytest.raises(errors.RecipeInvalid, match="Read alone") as refused:
        write(place).only("Read")
    (flaw,) = refused.value.flaws
    assert "'Look'" in flaw.message
    assert (flaw.path, flaw.line) == ("$.steps[2].for_each.items_from", None)


def test_an_unknown_step_is_refused_with_the_nearest_name(place: places.Place):
    """An unknown step is refused with the nearest name."""
    with pytest.raises(errors.RequestInvalid, match="Look"):
        write(place).only("Loook")


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"- [", b"x" * (1024 * 1024 + 1)])
def test_an_unreadable_workflow_is_refused_by_its_path(place: places.Place, content: bytes | None):
    """A file that is missing, not text, not YAML or too large is refused with its name."""
    if content is not None:
        (place.workspace / "odd.yaml").write_bytes(content)

    with pytest.raises(errors.RecipeInvalid, match=r"^odd\.yaml"):
        workflows.read(Path("odd.yaml"), place)


def test_faults_of_several_files_have_path_and_line(place: places.Place, capsys: pytest.CaptureFixture[str]):
    """A check of several files reports each with paths and lines, and has the worst exit code."""
    write(place)
    (place.workspace / "bad.yaml").write_text('version: "1.1"\nsteps:\n  - name: A\n    comand: [ls]\n')
    code = showing.validate(place, [Path("flow.yaml"), Path("bad.yaml")], as_json=False)
    told = capsys.readouterr().out
    showing.validate(place, [Path("bad.yaml")], as_json=True)
    (shown,) = json.loads(capsys.readouterr().out)

    assert code == 2
    assert "flow.yaml: valid\nbad.yaml: not valid\n" in told
    assert "$.steps[0].comand (line 4)" in told
    assert {flaw["line"] for flaw in shown["flaws"]} == {3, 4}


def test_a_plan_lists_the_steps_in_order(place: places.Place, capsys: pytest.CaptureFixture[str]):
    """A plan lists the steps in order with loop steps below their loop, and starts no run."""
    showing.plan(write(place), {}, as_json=False)
    told = capsys.readouterr().out

    assert told.splitlines()[1:] == [
        "[1/3] Look: ls",
        "[2/3] Each: for each of 2",
        "  [1/1] Say: ask reader",
        "[3/3] Read: for each of steps.Look.lines",
        "  [1/1] Say: echo",
    ]
    assert list(place.workspace.iterdir()) == [place.workspace / "flow.yaml"]
