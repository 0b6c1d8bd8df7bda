"""The example project, copied for a test."""

from __future__ import annotations

import shutil
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / ".control-room" / "example"
"""Folder of the example project in the repository."""


def copy(target: Path) -> Path:
    """Copy the project without the files that demonstrations left in it."""
    return shutil.copytree(EXAMPLE, target, ignore=_left_by_demonstrations)


def _left_by_demonstrations(folder: str, names: list[str]) -> set[str]:
    return set(names) - {"recipes"} if Path(folder).name == ".control-room" else {"Drafts"}
