"""Listeners: which process listens on a port of this machine, read from /proc on Linux."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from app.processes import connections, process_tree

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _STATE, _INODE = 1, 3, 9
_LISTENS = "0A"


class Listener(NamedTuple):
    """A process that listens."""

    pid: int  # Its id.
    folders: tuple[str, ...]  # Folders that it holds open.


def of_port(port: int) -> Listener | None:
    """Return a process that listens on a port; None if none of this user's does, or it cannot be seen here."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)} if process_tree.LINUX else set()
    for name in filter(str.isdigit, os.listdir("/proc")) if wanted else ():
        files = connections.files_of(name)
        if wanted & files:
            return Listener(int(name), tuple(sorted(file for file in files if os.path.isdir(file))))
    return None


def announced_in(listener: Listener, name: str) -> str | None:
    """Return the folder that a listener holds open and has announced itself in; None: it has not.

    Args:
        name: The file of an announcement, which contains the process id as `pid`.
    """
    for folder in listener.folders:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if json.loads((Path(folder) / name).read_bytes())["pid"] == listener.pid:
                return folder
    return None


def _inodes(port: int) -> set[str]:
    found = set()
    for path in _TABLES:
        # Without IPv6 its table is missing.
        with contextlib.suppress(OSError), open(path, encoding="ascii") as table:
            for row in (line.split() for line in table):
                if row[_STATE] == _LISTENS and row[_LOCAL].endswith(f":{port:04X}"):
                    found.add(row[_INODE])
    return found
