"""Agents that start runs from inside runs: each knows its own run, and nesting stops at the depth limit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import nesting_agent, programs
from tests.unit.dialects.agent_recipes import recipe_harness

DEEPEST = 3


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project with a recipe of one prompt."""
    made = programs.make_project(tmp_path / "project")
    only = recipe_harness.recipe(id="nested", initialStep="commit", steps={"commit": recipe_harness.COMMIT})
    made.write("recipes/agent_recipes/nested.json", only)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Create a folder with the agent program."""
    made = tmp_path / "agent"
    made.mkdir()
    (made / "claude").write_text(f'#!/bin/sh\nexec {sys.executable} {Path(nesting_agent.__file__)} "$@"\n')
    (made / "claude").chmod(0o755)
    return made


def environment(home: Path) -> dict[str, Any]:
    """Return the environment that directs the service to the program."""
    return {"CLAUDE_CLI_PATH": str(home / "claude"), "NESTING_HOME": str(home), "IS_SANDBOX": "1"}


def calls(home: Path) -> list[dict[str, Any]]:
    """Return the recorded calls of the program, by increasing depth."""
    made = [json.loads(line) for line in (home / "calls.jsonl").read_text().splitlines()]
    return sorted(made, key=lambda call: int(call["CONTROL_ROOM_DEPTH"]))


def refused_at_the_deepest(made: list[dict[str, Any]]) -> None:
    """Verify that every call but the last started a run, and that the last one was refused with the reason."""
    assert [call["CONTROL_ROOM_DEPTH"] for call in made] == [str(depth) for depth in range(DEEPEST + 1)]
    assert [call["code"] for call in made] == [0] * DEEPEST + [2], made
    assert f"would be at depth {DEEPEST + 1}" in made[-1]["said"]
    assert "Traceback" not in made[-1]["said"]


def test_runs_nest_only_so_deep_through_a_service(project: programs.Project, home: Path) -> None:
    """Agents that ask the service for further runs are refused at the fourth level, which then has no run."""
    with programs.service(project, **environment(home)) as service:
        (home / "url").write_text(service.url)
        first = service.start_run(recipe_id="nested", args={})
        chain = [first]
        for _ in range(DEEPEST):
            service.wait(chain[-1], "done")
            with service.http() as http:
                (below,) = http.get("/api/runs", params={"parent_run_id": chain[-1]}).json()
            chain.append(below["run_id"])
        last = service.wait(chain[-1], "done")
        with service.http() as http:
            everything = http.get("/api/runs").json()
        service.stop()

    made = calls(home)
    assert [call["CONTROL_ROOM_RUN_ID"] for call in made] == chain
    assert (last["parent_run_id"], len(everything)) == (chain[-2], DEEPEST + 1)
    refused_at_the_deepest(made)


def test_runs_nest_only_so_deep_through_commands(project: programs.Project, home: Path) -> None:
    """Agents that execute further runs themselves, each inside the other, are refused at the same depth."""
    done = programs.program("run", "nested", project=project, **environment(home))
    listed = programs.asked("runs", "list", project=project)

    made = calls(home)
    assert done.returncode == 0
    assert {run["status"] for run in listed} == {"done"}
    assert len(listed) == DEEPEST + 1
    refused_at_the_deepest(made)
