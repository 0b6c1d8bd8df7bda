"""
The example project, copied for a test.
"""

from __future__ import annotations

import shutil
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / ".control-room" / "example"
"""Where it lies in the repository."""


def copy(target: Path) -> Path:
    """
    Copy the project without what demonstrations have left in it.
    """
    return shutil.copytree(EXAMPLE, target, ignore=shutil.ignore_patterns(".control-room", "Drafts"))
