"""A project with a team for conferences: a chief, a critic, an editor and a writer with scripted replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.project import Project

SCENE_PATH = "Story/Scenes/SCN-the-arrival.md"
QUOTED = f'It is early.\nEvidence: "the harbour before dawn. Nobody waited" ({SCENE_PATH})'
DONE = '{"done": true}'
TEAM = ("critic", "editor", "writer")


def call(tool: str, **args: Any) -> str:
    """Return a reply of the chief that calls a tool."""
    return json.dumps({"tool": tool, "args": args})


LOOK = call("prose_analyzer", scene_path=SCENE_PATH)
"""The chief looks at the scene."""


def agents(backend: str = "said", **evidence: str) -> dict[str, Any]:
    """Return `agents.json` with every bundled agent excluded from conferences, so that only the team takes part."""
    bundled = ("planner", "writer", "editor", "continuity", "critic", "librarian", "chief")
    away = [{"id": f"{name}-001", "modes": ["pipeline"]} for name in bundled]
    team = [
        {
            "id": f"{name}-1",
            "archetype": name,
            "tier": "t3",
            "backend": backend,
            "role": f"The {name}.",
            "evidence": evidence.get(name, "none" if name == "chief" else "any"),
        }
        for name in ("chief", *TEAM)
    ]
    return {"agents": [*team, *away], "backends": {"said": {"type": "scripted", "file": "replies.json"}}}


def prepare(project: Project, **evidence: str) -> Project:
    """Prepare a project for conferences: by default, the chief calls one tool and all agents quote the scene."""
    project.write(".control-room/agents.json", json.dumps(agents(**evidence)))
    project.say("chief", text=LOOK)
    for turn in range(2, 7):
        project.say(f"chief#{turn}", text=DONE)
    same_answer(project, text=QUOTED)
    return project


def same_answer(project: Project, **entry: Any) -> None:
    """Let all participants give the same answer."""
    for name in TEAM:
        project.say(f"opinion.{name}-1", **entry)


def made(root: Path) -> Project:
    """Create a project that is prepared for conferences."""
    return prepare(Project(root))
