"""A copy of the example project whose agents answer from a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests import example_project
from tests.acceptance import programs


def make(folder: Path, archetypes: Iterable[str], replies: Mapping[str, Any], suffix: str) -> programs.Project:
    """Copy the example project; each agent's id is its archetype with the suffix."""
    project = programs.Project(example_project.copy(folder))
    agents = [
        {
            "id": f"{name}-{suffix}",
            "archetype": name,
            "tier": "t3",
            "backend": "script",
            "evidence": "none",
            "role": f"You are the {name}.",
        }
        for name in archetypes
    ]
    project.write("agents.json", {"agents": agents, "backends": programs.AGENTS["backends"]})
    project.write("replies.json", replies)
    return project
