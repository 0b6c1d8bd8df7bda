"""Extras: how to install dependencies that only some features need."""

from __future__ import annotations

import shlex
import sys


def install(extra: str) -> str:
    """Return the command that installs an extra for this program.

    Where Control Room was installed from a clone, only this interpreter's own `pip` finds it.
    """
    return f'{shlex.quote(sys.executable)} -m pip install "control-room[{extra}]"'
