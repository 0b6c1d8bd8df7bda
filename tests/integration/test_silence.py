"""Silent steps in every recipe language end after their own `idle_seconds`."""

from __future__ import annotations

import json

import pytest

from tests.integration import served
from tests.integration.project import Project, agent_step, draft

SILENT = "echo begun; exec sleep 600"
AMPLIFIER = f"""
name: quiet
description: A command that falls silent.
version: 1.0.0
schema: "1.7"
steps:
  - {{id: build, type: bash, command: "{SILENT}", timeout: 600, idle_seconds: 0.2}}
"""
ORCHESTRATE = f"""
version: "1.1"
name: quiet
steps:
  - name: build
    command: ["sh", "-c", "{SILENT}"]
    idle_seconds: 0.2
"""
AGENT_RECIPES = {
    "id": "quiet",
    "label": "Quiet",
    "description": "An agent that falls silent.",
    "initialStep": "build",
    "guardrails": {},
    "steps": {
        "build": {
            "prompt": "Build.",
            "outcomes": ["done"],
            "onOutcome": {"done": {"action": "exit", "reason": "done"}},
            "idle_seconds": 0.2,
        }
    },
}


CONTROL_ROOM = draft("quiet") | {
    "phase_b": [agent_step("build", "writer", "write", ["discovery"], "built") | {"idle_seconds": 0.2}],
    "dod": [],
}

LANGUAGES = {
    "control_room": ("quiet.json", CONTROL_ROOM, "agent_idle"),
    "agent_recipes": ("agent_recipes/quiet.json", AGENT_RECIPES, "agent_idle"),
    "amplifier": ("amplifier/quiet.yaml", AMPLIFIER, "idle"),
    "orchestrate": ("orchestrate/quiet.yaml", ORCHESTRATE, "idle"),
}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_silent_step_is_ended(project: Project, language: str) -> None:
    """A step of any language fails after it has been silent for its `idle_seconds`, long before its time limit."""
    file, recipe, code = LANGUAGES[language]
    project.write(f".control-room/recipes/{file}", recipe if isinstance(recipe, str) else json.dumps(recipe))
    project.say("build", text="Late.", delay_seconds=600)
    async with served.in_process(project) as service:
        arguments = {"backend": "said"} if language == "agent_recipes" else {}
        arguments |= {"scene_path": "Story/Scenes/SCN-the-arrival.md"} if language == "control_room" else {}
        shown = await service.run("quiet", args=arguments)
        steps = (await service.http.get(f"/api/runs/{shown['run_id']}/steps")).json()
    errors = [step["error"] for step in steps if step["key"] == "build"]

    assert shown["status"] == "failed"
    assert [error["code"] for error in errors] == [code]
    assert errors[0]["detail"] == {"idle_seconds": 0.2}
