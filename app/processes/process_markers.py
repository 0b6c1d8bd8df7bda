"""Marks: the number by which every process of a command is known, whatever it does to hide.

A mark is put on a process as the soft limit of file locks, which Linux keeps, hands down and has not enforced since
version 2.4: it outlives exec, a new session, a double fork and an emptied environment, and anybody may read it. The
environment carries the same number for people, and for systems without such a limit.
"""

# Why: docs/decisions/0061.

from __future__ import annotations

import resource
import sys

VARIABLE = "CONTROL_ROOM_COMMAND"
"""Environment variable that carries the mark, as its series and number in hexadecimal."""

_LOCKS = 10
_NUMBER_BITS = 32
_SERIES_BITS = 30
_TOLD = b"Max file locks"


def mark(series: int, number: int) -> int:
    """Return the mark of one command.

    Args:
        series: What the commands of one launcher have in common; not 0.
        number: Which of them.
    """
    return series << _NUMBER_BITS | number % (1 << _NUMBER_BITS)


def series_of(mark: int) -> int:
    """Return the series of a mark."""
    return mark >> _NUMBER_BITS


def series(chance: bytes) -> int:
    """Make the number of a series from some random bytes."""
    return int.from_bytes(chance, "big") % ((1 << _SERIES_BITS) - 1) + 1


def written(mark: int) -> str:
    """Return a mark as the environment carries it."""
    return f"{mark >> _NUMBER_BITS:08x}.{mark % (1 << _NUMBER_BITS):x}"


def bear(mark: int) -> bool:
    """Put a mark on this process, for those that it starts; tell whether the system can do that."""
    if sys.platform != "linux":
        return False
    try:
        resource.setrlimit(_LOCKS, (mark, resource.getrlimit(_LOCKS)[1]))
    except (OSError, ValueError):
        return False
    return True


def borne() -> int:
    """Return the soft limit that marks are put on, as it stands for this process."""
    return resource.getrlimit(_LOCKS)[0] if sys.platform == "linux" else resource.RLIM_INFINITY


def of(pid: int) -> int | None:
    """Return the mark of a process; None if it has none or is gone."""
    limit = _limit(pid)
    if limit is not None and limit >> _NUMBER_BITS > 0:
        return limit
    return _in_environment(pid)


def _limit(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return resource.prlimit(pid, _LOCKS)[0]
    except PermissionError:
        return _limit_told(pid)
    except OSError:
        return None


def _limit_told(pid: int) -> int | None:
    """Read the limit of a process that may be looked at only, such as one that runs with another user's rights."""
    for line in _read(pid, "limits").splitlines():
        if line.startswith(_TOLD):
            soft = line[len(_TOLD) :].split()[0]
            return int(soft) if soft.isdigit() else None
    return None


def _in_environment(pid: int) -> int | None:
    for entry in _read(pid, "environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == VARIABLE.encode():
            return _parsed(value)
    return None


def _parsed(value: bytes) -> int | None:
    series, _, number = value.partition(b".")
    try:
        return mark(int(series, 16), int(number, 16))
    except ValueError:
        return None


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
