"""Create small projects on disk for the tests of tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.engine import ports
from app.tools import registry
from app.tools.scanning import Limits
from app.tools.workspace import Workspace

EXAMPLE = Path(__file__).parents[3] / ".control-room" / "example"
"""The example project."""

KAEL = """---
name: Kael Arden
kind: character
aliases: [Kael, the courier]
pronouns: he/him
---
- Eyes: grey
- Hand: left-handed
- Age: 34
"""

MIRA = """---
name: Mira Voss
kind: character
aliases: [Mira]
pronouns: she/her
---
- Eyes: brown
"""

KEY = """---
name: the brass key
kind: item
owner: Mira Voss
material: brass
---
"""

STORM = """---
name: the Long Storm
kind: event
date: 12 October 1893
---
"""

CANON = {
    "canon/CHAR-kael.md": KAEL,
    "canon/CHAR-mira.md": MIRA,
    "canon/ITEM-key.md": KEY,
    "canon/EVENT-storm.md": STORM,
}
"""A small canon."""


def write(root: Path, files: Mapping[str, str | bytes], limits: Limits | None = None) -> Workspace:
    """Write files below a folder and return it as a workspace."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Workspace(root, limits)


def run(tool: registry.Tool, workspace: Workspace, **args: Any) -> ports.ToolOutput:
    """Execute a tool."""
    return tool.execute(args, workspace)


def payload(tool: registry.Tool, workspace: Workspace, **args: Any) -> dict[str, Any]:
    """Execute a tool and return its payload."""
    return run(tool, workspace, **args).payload


def findings_of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the findings of one kind."""
    return [finding for finding in found if finding["kind"] == kind]
