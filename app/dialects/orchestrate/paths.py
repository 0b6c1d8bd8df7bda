"""Paths that workflows name: relative to the workspace and never out of it (workflow-dsl, path safety).

What only the file system can tell, such as a symbolic link that leads outside, is looked at by whoever opens the path.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from app.dialects.orchestrate import variables
from app.domain import runs

MAX_CHARACTERS = 4096
"""Length of a path, variables substituted."""

_DRIVE = re.compile(r"[A-Za-z]:")
_STAND_IN = "v"


def problem(path: str, *, pattern: bool = False) -> str | None:
    """Return why a path cannot be used, None if it can.

    Args:
        path: The path, variables substituted.
        pattern: Whether it is a glob.
    """
    parts = path.split("/")
    if not path.strip():
        return "is blank"
    if len(path) > MAX_CHARACTERS:
        return f"is longer than {MAX_CHARACTERS} characters"
    if "\0" in path:
        return "holds the character U+0000"
    if "\\" in path:
        return "holds a backslash; folders are parted by /"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute; paths are relative to the workspace"
    if ".." in parts:
        return "holds `..`; paths stay inside the workspace"
    if pattern and "**" in parts:
        return "holds `**`, which is not supported; list the files with a command, or name each depth"
    return None


def problem_of_target(path: str, run_root: str) -> str | None:
    """Return why nothing can be written to a path, None if something can: a run's own files are not for its steps.

    Args:
        path: The path, variables substituted.
        run_root: The run's folder, as `${run.root}` names it.
    """
    parts, own = PurePosixPath(path).parts, PurePosixPath(run_root).parts
    if parts[: len(own)] == own and parts[len(own) : len(own) + 1] != (runs.ARTIFACTS,):
        return f"lies in the run's own folder; there steps may write below {runs.ARTIFACTS}/ only"
    return problem(path)


def problem_of_template(template: str, *, pattern: bool = False) -> str | None:
    """Return why a path cannot be used whatever its variables hold, None if it may turn out to be usable."""
    return problem(variables.with_stand_ins(template, _STAND_IN), pattern=pattern)
