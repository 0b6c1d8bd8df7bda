"""A small project in a temporary folder: two chapters, agents with scripted replies, and recipes for every ending."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCENE = "# The arrival\n\nKael reached the harbour before dawn. Nobody waited for him.\n"
"""A scene that tools can read."""

REPLY = "Kael stepped off the last ferry and saw that the lantern was dark."
"""The reply of the writer."""


class Project:
    """A project whose files a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / ".control-room"
        self._replies: dict[str, dict[str, Any]] = {}
        self.write("Story/Scenes/SCN-the-arrival.md", SCENE)
        self.write("Story/Scenes/SCN-the-bridge.md", SCENE.replace("arrival", "bridge"))
        self._write_agents()
        self._write_prompts()
        self.say("*", text=REPLY)
        for recipe in (quick(), draft(), picky(), unguarded()):
            self.add_recipe(recipe)

    def write(self, path: str, text: str) -> Path:
        """Write a file below the project."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def add_recipe(self, recipe: dict[str, Any]) -> Path:
        """Write a recipe of the project."""
        return self.write(f".control-room/recipes/{recipe['recipe_id']}.json", json.dumps(recipe, indent=1))

    def say(self, key: str, **entry: Any) -> None:
        """Add a scripted reply for a step, by its key or a pattern; see the scripted backend."""
        self._replies[key] = {"key": key} | entry
        entries = sorted(self._replies.values(), key=lambda one: one["key"] == "*")
        self.write(".control-room/replies.json", json.dumps(entries))

    def propose(self, session_id: str, *fields: Mapping[str, Any]) -> None:
        """Write a draft of one task, for which the chief proposes further tasks."""
        proposals = [
            {"id": number, "after_task": 1, "kind": "add_task", "fields": {"description": "Look on"} | dict(each)}
            for number, each in enumerate(fields, 1)
        ]
        plan = {"session_id": session_id, "tasks": [{"id": 1, "description": "Look"}], "proposals": proposals}
        self.write(f".control-room/sessions/{session_id}/plan.json", json.dumps(plan))

    def _write_agents(self) -> None:
        agents = [
            {
                "id": f"{archetype}-1",
                "archetype": archetype,
                "tier": "t3",
                "backend": "said",
                "role": f"The {archetype}.",
            }
            for archetype in ("writer", "editor")
        ]
        backends = {"said": {"type": "scripted", "file": "replies.json"}}
        self.write(".control-room/agents.json", json.dumps({"agents": agents, "backends": backends}))

    def _write_prompts(self) -> None:
        names = ("write", "polish")
        templates = {name: {"label": name, "variants": {"t3": f"templates/{name}.t3.md"}} for name in names}
        self.write(".control-room/prompts/prompts.json", json.dumps({"pipeline_templates": templates}))
        self.write(
            ".control-room/prompts/templates/write.t3.md", "Write it.\n\n{{discovery}}\n\n{{task.description}}\n"
        )
        self.write(".control-room/prompts/templates/polish.t3.md", "Polish it.\n\n{{draft}}\n")


def tool_step(step_id: str, tool: str, output_slot: str, **args: Any) -> dict[str, Any]:
    """Return a step of phase A."""
    return {"step_id": step_id, "tool": tool, "args": args, "output_slot": output_slot}


def agent_step(step_id: str, archetype: str, prompt_type: str, inputs: list[str], output_slot: str) -> dict[str, Any]:
    """Return a step of phase B."""
    return {
        "step_id": step_id,
        "agent_archetype": archetype,
        "input_slots": inputs,
        "output_slot": output_slot,
        "prompt_type": prompt_type,
    }


DISCOVER = tool_step("discover", "file_locator", "discovery", search_criteria={"$ref": "task.description"})
"""A step that always succeeds."""

ANALYZE = tool_step("analyze", "prose_analyzer", "prose", scene_path={"$ref": "task.args.scene_path"})
"""A step that fails if its file is missing."""


def quick(recipe_id: str = "quick") -> dict[str, Any]:
    """Return a recipe of one tool step."""
    return {
        "recipe_id": recipe_id,
        "label": "Look around",
        "task_patterns": ["look around"],
        "phase_a": [dict(DISCOVER)],
        "dod": [],
    }


def draft(recipe_id: str = "draft") -> dict[str, Any]:
    """Return a recipe of two tool steps, two agents and a definition of done."""
    return {
        "recipe_id": recipe_id,
        "label": "Draft a scene",
        "task_patterns": ["sketch scene", "jot down"],
        "args_schema": {
            "type": "object",
            "properties": {
                "scene_path": {"type": "string"},
                "words": {"type": "integer", "minimum": 1, "default": 500},
            },
            "required": ["scene_path"],
        },
        "phase_a": [dict(DISCOVER), dict(ANALYZE)],
        "phase_b": [
            agent_step("draft", "writer", "write", ["discovery"], "draft"),
            agent_step("polish", "editor", "polish", ["draft"], "edited_draft"),
        ],
        "dod": [{"check": "slot_not_null", "slot": "edited_draft"}],
    }


def picky() -> dict[str, Any]:
    """Return a recipe that needs two arguments, and whose definition of done always fails."""
    reads = [
        tool_step("analyze", "prose_analyzer", "prose", scene_path={"$ref": "task.args.scene_path"}),
        tool_step("compare", "prose_analyzer", "other", scene_path={"$ref": "task.args.other_path"}),
    ]
    checks = [{"check": "file_exists", "path": "Story/Scenes/SCN-never.md"}]
    return {"recipe_id": "picky", "label": "Compare", "task_patterns": ["compare"], "phase_a": reads, "dod": checks}


def unguarded() -> dict[str, Any]:
    """Return a recipe whose only step is its writer's."""
    steps = [agent_step("draft", "writer", "write", ["discovery"], "draft")]
    return {
        "recipe_id": "unguarded",
        "label": "Write on",
        "task_patterns": [],
        "phase_a": [dict(DISCOVER)],
        "phase_b": steps,
        "dod": [],
    }
