"""Folders: opens a folder step by step from the root, so that no folder on the path can be replaced by a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_BY_NAME = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Passing through a folder, or working in it, does not need the permission to list it.
_THROUGH = _BY_NAME | getattr(os, "O_PATH", os.O_RDONLY)


def opened(folder: Path, seen: Callable[[int, int], object] = lambda _, __: None) -> int:
    """Return the descriptor of a folder to work in, by its absolute path without links.

    Args:
        seen: Called with depth and descriptor of each folder on the path and of the last; an exception ends the walk.

    Raises:
        OSError: one of them is missing, or is not a folder; a link is not one.
    """
    reached = os.open("/", _THROUGH)
    try:
        # Step by step from the root: a link that has replaced a folder meanwhile is not followed.
        for depth, name in enumerate(folder.parts[1:], 1):
            above, reached = reached, os.open(name, _THROUGH, dir_fd=reached)
            os.close(above)
            seen(depth, reached)
    except BaseException:
        os.close(reached)
        raise
    return reached
