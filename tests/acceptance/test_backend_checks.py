"""Backends that do not exist or cannot work here, as commands report them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance import programs
from tests.unit.dialects.agent_recipes import recipe_harness


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project with a recipe that can use any backend."""
    made = programs.make_project(tmp_path / "project")
    made.write("recipes/agent_recipes/spoken.json", recipe_harness.recipe(id="spoken"))
    return made


def test_a_backend_that_does_not_exist_is_refused(project: programs.Project) -> None:
    """A run and a dry run with an unknown backend are refused, and the message suggests the nearest name."""
    for dry in ([], ["--dry-run"]):
        told = programs.control_room("run", "spoken", "--arg", "backend=scrip", *dry, project=project, code=2)
        assert "there is no backend 'scrip'; did you mean script?" in told.stderr

    assert programs.asked("runs", "list", project=project) == []


@pytest.mark.model
def test_the_check_reports_a_backend_without_its_program(project: programs.Project, tmp_path: Path) -> None:
    """The check of the agents reports each backend, names what to install for a missing program, and ends with 0."""
    absent = tmp_path / "absent"
    checked = programs.control_room("agents", "check", project=project, CODEX_CLI_PATH=str(absent))
    lines = checked.stdout.splitlines()

    assert "backend script: ready" in lines
    (codex,) = [line for line in lines if line.startswith("backend codex: ")]
    assert str(absent) in codex
    assert "npm install -g @openai/codex" in codex
