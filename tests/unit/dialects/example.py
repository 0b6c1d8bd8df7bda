"""The bundled recipes on the example project: real tools, real files, replies from a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.agents import roster
from app.domain import library
from app.services import prompts
from app.tools import checks, registry, tool_performer, workspace
from tests.unit.dialects import bench

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "recipes" / "control_room"

ROUTE: Any = lambda text: None  # noqa: E731
TOOLS = registry.bundled_tools(ROUTE)

TABLE = {
    "creative_draft_scene": (
        ["file_locator", "outline_analyzer", "canon_checker"],
        ["planner", "writer", "editor", "continuity", "critic"],
    ),
    "analytical_consistency": (["file_locator", "consistency_checker"], ["continuity", "editor"]),
    "analytical_prose": (["file_locator", "prose_analyzer"], ["writer", "critic"]),
    "analytical_foreshadow": (
        ["file_locator", "stakes_mapper", "reader_experience_simulator"],
        ["critic", "planner", "writer"],
    ),
    "analytical_scene_validate": (["file_locator", "scene_draft_validator"], ["planner", "continuity"]),
    "structural_canon": (["file_locator", "canon_checker"], ["continuity", "librarian"]),
    "structural_outline": (["file_locator", "outline_analyzer"], ["planner", "critic"]),
}
"""Tools and agents of each recipe (execution-modes, task types and recipe map)."""

SCENE = "Story/Scenes/SCN-the-arrival.md"
ARGS: dict[str, dict[str, Any]] = {
    "creative_draft_scene": {"scene_path": SCENE, "canon_paths": ["Compendium/Characters/CHAR-kael.md"]},
    "analytical_prose": {"scene_path": SCENE},
    "analytical_scene_validate": {"scene_path": SCENE},
    "structural_canon": {"scene_path": SCENE},
}


def bundled(tier: library.Tier | None = None) -> library.Library:
    """Return the bundled tools, agents and prompts; a given tier applies to all agents."""
    people = roster.load([ROOT / "recipes" / "agents.json"])
    assert people.broken == ()
    registry = prompts.load([ROOT / "recipes" / "prompts"])
    assert registry.flaws == ()
    agents = people.agents
    if tier is not None:
        agents = tuple(library.Agent(**agent.to_json() | {"tier": tier, "modes": agent.modes}) for agent in agents)
    return library.Library(tools=TOOLS.specs(), agents=agents, prompts=registry.templates)


def document(recipe_id: str) -> dict[str, Any]:
    """Return a bundled recipe from its file."""
    read: dict[str, Any] = json.loads((RECIPES / f"{recipe_id}.json").read_text(encoding="utf-8"))
    return read


def pipeline(recipe_id: str, project: Path, tier: library.Tier | None = None, **args: Any) -> bench.Pipeline:
    """Return a run of a bundled recipe in a copy of the example project."""
    recipe = document(recipe_id)
    rules = recipe["args_schema"]["properties"]
    defaults = {name: rule["default"] for name, rule in rules.items() if "default" in rule}
    made = bench.Pipeline(
        recipe,
        bundled(tier),
        description=recipe["label"],
        args=defaults | ARGS.get(recipe_id, {}) | args,
        working_dir=str(project),
        session_id="sess_1",
    )
    places = workspace.Workspaces([project])
    made.performers = {
        "tool_call": tool_performer.ToolPerformer(TOOLS, places),
        "check": checks.CheckPerformer(places),
        "commit_file": checks.CommitFilePerformer(places),
    }
    return made
