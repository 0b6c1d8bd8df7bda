"""Extras: how what only some need is installed."""

from __future__ import annotations

import shlex
import sys


def install(extra: str) -> str:
    """Return the command that installs an extra for this program.

    No other `pip` than this interpreter's own finds Control Room, where that was installed from a clone.
    """
    return f'{shlex.quote(sys.executable)} -m pip install "control-room[{extra}]"'
