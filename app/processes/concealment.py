"""Concealment: what the processes that this one starts, and others of the same user, cannot read of it.

Linux shows the environment that a process was started with in `/proc/PID/environ`, whatever the process changes later.
So secrets are moved to another place of its memory and overwritten where they were. That memory is open to the same
user as well, unless the process says that it must not be looked into; root can always look.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection, Iterator, MutableMapping

_SET_DUMPABLE = 4
_MOST_BYTES = 16 * 1024 * 1024
# Fields of /proc/self/stat behind the name of the program: where the first environment begins and ends.
_BEGIN, _END = 47, 48


def conceal(environ: MutableMapping[str, str], names: Collection[str]) -> None:
    """Take variables out of what is shown of this process, which keeps them, and let no other look into its memory.

    Args:
        environ: Its environment.
        names: Variables that hold secrets.
    """
    for name in names:
        if name in environ:
            # Setting a variable anew gives its text another place; the old one is no longer looked at.
            environ[name] = environ[name]
    if sys.platform == "linux":
        for address, size in _values(names):
            ctypes.memset(address, 0, size)
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _values(names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield where in the first environment the values of variables are, and how long they are."""
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
