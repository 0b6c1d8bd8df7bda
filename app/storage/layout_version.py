"""The mark of a data directory's layout: keeps a program from writing to files that it does not understand.

`layout.json` is `{"layout": N, "written_by": VERSION}`. A directory without it has layout 1, from before the mark. Only
a change that an older program would read wrongly raises the number. Only a process that holds the service lock raises
it, since a running service of an older version does not read the mark again.
"""

from __future__ import annotations

import json
from pathlib import Path

import app
from app import errors
from app.domain import plain
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk

FILE = "layout.json"  # The mark's file in the data directory.
FIRST = 1  # Layout of a directory without a mark.

LAYOUT = 2
"""Layout that this program writes, and the newest that it reads: 2 has runs that are labelled, pinned and forked."""


def check(files: Disk, path: Path) -> int | None:
    """Refuse a directory whose layout is newer than this program, and return its layout; None if it has no mark yet.

    Args:
        path: The directory, for the message.

    Raises:
        errors.ConfigurationError: `data_directory_newer`, or `data_directory_unusable` if the mark contains no layout.
        OSError: the mark could not be read.
    """
    try:
        content = files.read(FILE)
    except FileNotFoundError:
        return None
    layout, version = _mark_in(content)
    if layout is None:
        message = f"{path / FILE} does not say which layout the data directory has; put it back from a copy"
        raise errors.ConfigurationError(message, code="data_directory_unusable")
    if layout > LAYOUT:
        message = (
            f"the data directory {path} has layout {layout}, written by Control Room {version}; this is Control Room"
            f" {app.__version__}, which knows layouts up to {LAYOUT}. Use Control Room {version} or later, or a copy of"
            " the data directory from before that upgrade"
        )
        detail = {"layout": layout, "written_by": version, "known": LAYOUT}
        raise errors.ConfigurationError(message, code="data_directory_newer", detail=detail)
    return layout


def write(files: Disk, layout: int = LAYOUT) -> None:
    """Write the mark of a layout durably.

    Raises:
        OSError: the mark could not be written.
    """
    mark = {"layout": layout, "written_by": app.__version__}
    disk_port.replace(files, FILE, plain.encode(mark) + b"\n", sync=True)


def _mark_in(content: bytes) -> tuple[int | None, str]:
    try:
        mark = json.loads(content)
        layout, version = mark["layout"], str(mark.get("written_by"))[:40]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, ""
    # JSON's true would pass as a number.
    return (layout, version) if type(layout) is int and layout > 0 else (None, "")
