"""Concealment: hides this process's secrets from its children and from other processes of the same user.

Linux shows the environment with which a process was started in `/proc/PID/environ`, even if the process changes it
later. So secrets are moved to another place in memory, and overwritten at the old place. Marking the process as not
dumpable protects that memory from the same user; root can always read it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection, Iterator, MutableMapping

_SET_DUMPABLE = 4
_MOST_BYTES = 16 * 1024 * 1024
# Fields of /proc/self/stat after the name of the program: where the initial environment begins and ends.
_BEGIN, _END = 47, 48


def conceal(environ: MutableMapping[str, str], names: Collection[str]) -> None:
    """Remove variables from this process's `/proc/PID/environ`, keep them in `environ`, and protect its memory.

    Args:
        environ: Environment of this process.
        names: Variables that contain secrets.
    """
    for name in names:
        if name in environ:
            # Setting a variable again copies its text to another place; the old copy is not read any more.
            environ[name] = environ[name]
    if sys.platform == "linux":
        for address, size in _values(names):
            ctypes.memset(address, 0, size)
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _values(names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the addresses and lengths of the variables' values in the initial environment."""
    begin, end = _bounds()
    position = begin
    for entry in ctypes.string_at(begin, end - begin).split(b"\0") if begin else ():
        name, _, value = entry.partition(b"=")
        if value and os.fsdecode(name) in names:
            yield position + len(name) + 1, len(value)
        position += len(entry) + 1


def _bounds() -> tuple[int, int]:
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end = int(fields[_BEGIN]), int(fields[_END])
    except (OSError, ValueError, IndexError):
        return 0, 0
    return (begin, end) if 0 < begin <= end <= begin + _MOST_BYTES else (0, 0)
