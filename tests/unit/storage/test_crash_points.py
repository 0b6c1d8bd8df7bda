"""Points: the list that crash tests use contains the points that storage passes."""

from __future__ import annotations

import ast
from pathlib import Path

from app.storage import crash_points

STORAGE = Path(crash_points.__file__).parent

ENDINGS = {
    "storage.append": ("before_write", "before_sync", "after_sync"),
    "storage.decide": ("before_write", "before_sync", "after_sync"),
    "storage.create": ("before_sync", "after_sync"),
}
REPLACED = ("before_write", "before_rename", "after_rename")


def test_the_list_holds_exactly_the_points_in_the_code() -> None:
    """Each point in the code is in the list once, and each point of the list is in the code."""
    literals = {
        node.value
        for path in STORAGE.rglob("*.py")
        if path.name != "crash_points.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("storage.")
    }
    whole = {name for name in literals if name in crash_points.POINTS}
    prefixes = literals - whole
    made = whole | {f"{name}.{at}" for name in prefixes for at in ENDINGS.get(name, REPLACED)}

    assert made == set(crash_points.POINTS)
    assert len(crash_points.POINTS) == len(set(crash_points.POINTS))
