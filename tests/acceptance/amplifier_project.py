"""A project with amplifier recipes that a test writes, and one agent that says the same to every prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance import programs

AGENTS = {
    "default_backend": "said",
    "backends": {"said": {"type": "scripted", "file": "replies.json"}},
    "agents": [{"id": "w", "archetype": "w", "tier": "t3", "backend": "said", "role": "You answer."}],
}


def make(folder: Path, recipes: Mapping[str, Mapping[str, Any]]) -> programs.Project:
    """Create the project."""
    made = programs.Project(folder)
    made.write("agents.json", AGENTS)
    made.write("replies.json", {"*": "k"})
    for name, recipe in recipes.items():
        whole = {"schema": "1.7", "name": name, "description": "d", "version": "1.0.0", **recipe}
        made.write(f"recipes/amplifier/{name}.yaml", json.dumps(whole))
    return made


def child(recipe_id: str, **more: Any) -> dict[str, Any]:
    """Return a step that starts a run of a recipe."""
    return {"id": "below", "type": "recipe", "recipe": recipe_id, "output": "r", **more}


def bash(step_id: str, command: str) -> dict[str, Any]:
    """Return a step that runs a command."""
    return {"id": step_id, "type": "bash", "command": command, "output": step_id}


def runs_of(project: programs.Project, recipe_id: str) -> list[dict[str, Any]]:
    """Return the runs of a recipe."""
    return [run for run in programs.asked("runs", "list", project=project) if run["recipe_id"] == recipe_id]
