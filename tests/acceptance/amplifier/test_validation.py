"""Checks before and during the execution of a recipe, by the program and by the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs
from tests.unit.dialects.amplifier.recipe_harness import recipe, step

BROKEN = """\
name: "broken recipe"
description: "What is wrong with it"
version: "1.0"
steps:
  - id: "look"
    agent: "writer"
    promt: "Look at {{file}}."
  - id: "look"
    agent: "nobody"
    prompt: "Look at {{file}}."
    condition: "'x' == 'x'"
    timeout: 0
    retry: { max_attempts: 0 }
    on_error: "ignore"
    depends_on: ["later"]
    parallel: true
"""


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose agents answer from a script."""
    return programs.make_project(tmp_path / "project")


def _write(project: programs.Project, document: dict[str, Any], name: str = "") -> Path:
    return project.write(f"recipes/amplifier/{name or document['name']}.yaml", json.dumps(document))


def _asks(id: str = "a", **more: Any) -> dict[str, Any]:
    return step(id, **{"agent": "writer", **more})


def test_validate_reports_every_flaw_with_its_line(project: programs.Project) -> None:
    """`recipes validate` ends with 2 and reports each flaw of a file with its line, and with the nearest name."""
    file = project.write("recipes/amplifier/broken.yaml", BROKEN)
    ended = programs.program("recipes", "validate", file, project=project, code=2)
    told = ended.stdout + ended.stderr
    found = {
        (1, "$.name"),
        (3, "$.version"),
        (7, "$.steps[0].promt"),
        (8, "$.steps[1].id"),
        (10, "$.steps[1].prompt"),
        (11, "$.steps[1].condition"),
        (12, "$.steps[1].timeout"),
        (13, "$.steps[1].retry.max_attempts"),
        (14, "$.steps[1].on_error"),
        (15, "$.steps[1].depends_on[0]"),
        (16, "$.steps[1].parallel"),
    }

    assert {(line, path) for line, path in found if not _is_reported(told, line, path)} == set(), told
    assert "did you mean prompt?" in told
    assert 'needs schema: "1.7"' in told


def test_names_are_unique_in_the_library(project: programs.Project) -> None:
    """Two files with one name are a flaw of both, and the program runs neither."""
    _write(project, recipe(_asks(), name="same"), "one")
    _write(project, recipe(_asks(), name="same"), "two")
    listed = programs.asked("recipes", "list", project=project)
    entries = [entry for entry in listed if entry["recipe_id"] == "same"]
    ended = programs.control_room("run", "same", project=project, code=2)

    assert entries
    assert all(entry["flaws"] for entry in entries)
    assert "same" in ended.stderr


def test_agents_are_there_before_anything_is_asked(project: programs.Project) -> None:
    """A recipe whose last step asks an unknown agent is refused, and no run is created."""
    _write(project, recipe(_asks("a"), _asks("b", agent="nobody"), name="own"))
    ended = programs.control_room("run", "own", project=project, code=2)

    assert "nobody" in ended.stderr
    assert not list((project.data / "runs").glob("[0-9]*"))


def test_time_outs_are_enforced(project: programs.Project) -> None:
    """An agent that never answers fails its step after the time-out, and the run can be resumed from there."""
    _write(project, recipe(_asks("a"), _asks("b", timeout=3, output="x"), name="own"))
    project.write("replies.json", [{"key": "b", "attempt": 1, "hang": True}, {"key": "*", "text": "said"}])
    run = programs.asked("run", "own", project=project, code=1)
    resumed = programs.asked("runs", "resume", run["run_id"], project=project)

    assert (run["error"]["code"], run["error"]["key"]) == ("agent_timeout", "b")
    assert "within 3 seconds" in run["error"]["message"]
    assert [(line["key"], line["attempt"], line["status"]) for line in resumed["steps"]] == [
        ("a", 1, "done"),
        ("b", 2, "done"),
    ]


def test_a_time_out_is_tried_again(project: programs.Project) -> None:
    """`retry` asks again after a time-out, and both attempts are in the journal."""
    _write(project, recipe(_asks(timeout=3, retry={"max_attempts": 2, "initial_delay": 0}), name="own"))
    project.write("replies.json", [{"key": "a", "attempt": 1, "hang": True}, {"key": "*", "text": "said"}])
    run = programs.asked("run", "own", project=project)
    journal = (project.data / "runs" / run["run_id"] / "steps.jsonl").read_text().splitlines()

    assert [(line["attempt"], line["status"], line["final"]) for line in map(json.loads, journal)] == [
        (1, "failed", False),
        (2, "done", True),
    ]


def test_no_conflicting_sessions(project: programs.Project) -> None:
    """With `exclusive` a second run of a recipe is refused while the first is unfinished, and accepted afterwards."""
    _write(project, recipe(_asks(), name="own"))
    project.write("replies.json", [{"key": "a", "hang": True}])
    body = {"recipe_id": "own", "args": {}, "exclusive": True}
    with programs.service(project) as service, service.http() as http:
        first = service.start_run(**body)
        refused = http.post("/api/runs", json=body)
        http.post(f"/api/runs/{first}/cancel")
        service.wait(first)
        taken = http.post("/api/runs", json=body)
        http.post(f"/api/runs/{taken.json()['run_id']}/cancel")
        service.stop()

    assert (refused.status_code, taken.status_code) == (409, 201)


def _is_reported(told: str, line: int, path: str) -> bool:
    return any(path in one and str(line) in one.replace(path, "") for one in told.splitlines())
