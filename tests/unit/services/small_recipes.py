"""Small control_room recipes, and what they refer to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app import clock
from app.domain import library
from app.services import recipe_versions

TOOLS = {
    "file_locator": library.ToolSpec(
        name="file_locator",
        description="Find files.",
        args_schema={
            "type": "object",
            "properties": {"search_criteria": {"type": "string"}},
            "required": ["search_criteria"],
            "additionalProperties": False,
        },
    )
}
"""The one tool that these recipes use."""

LIBRARY = library.Library(tools=TOOLS)
"""The library that these recipes refer to."""

READY = recipe_versions.Readiness(
    backend_lack=lambda *_: None, program_lack=lambda _: None, default_backend=None, clock=clock.FakeClock()
)
"""A machine on which every backend works."""


def recipe(recipe_id: str, **fields: Any) -> dict[str, Any]:
    """Return a recipe of one step."""
    step = {
        "step_id": "discover",
        "tool": "file_locator",
        "args": {"search_criteria": {"$ref": "task.description"}},
        "output_slot": "discovery",
    }
    whole = {"recipe_id": recipe_id, "label": f"The {recipe_id}", "task_patterns": [f"do {recipe_id}"]}
    return whole | {"phase_a": [step], "phase_b": [], "dod": []} | fields


def write(folder: Path, name: str, content: Any) -> Path:
    """Write a recipe file; a string is written unchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
