"""Process markers: a number that identifies every process of a command, even one that tries to hide.

A marker is the soft limit of file locks. Linux stores and inherits that limit but has not enforced it since 2.4: it
survives exec, a new session, a double fork and an emptied environment, and every process may read it. The environment
carries the same number for people, and for systems without that limit.
"""

# After a crash, or among several commands under one launcher, it must be clear whose a process is. A double fork hides
# descent, `setsid` the session, `env -i` a variable, a loop that closes descriptors an open file. A control group would
# show it, but needs rights that a service rarely has.
#
# Half of the number belongs to the launcher, so that one search of `/proc` finds all processes of a dead launcher. A
# process that removes its marker, forks twice and clears its environment belongs to no command, and is killed when it
# is seen. Signals use `pidfd_send_signal` after a check of the start time, so that a reused pid is never hit. Price:
# `ulimit -x` shows an odd number inside commands.

from __future__ import annotations

import resource
import sys

VARIABLE = "CONTROL_ROOM_COMMAND"
"""Environment variable with the marker: its series and number in hexadecimal."""

_LOCKS = 10
_NUMBER_BITS = 32
_SERIES_BITS = 30
_LABEL = b"Max file locks"


def marker(series: int, number: int) -> int:
    """Return the marker of one command.

    Args:
        series: Number of the command's launcher; not 0.
        number: Number of the command at its launcher.
    """
    return series << _NUMBER_BITS | number % (1 << _NUMBER_BITS)


def series_of(marker: int) -> int:
    """Return the series of a marker."""
    return marker >> _NUMBER_BITS


def number_of(marker: int) -> int:
    """Return the number of a marker's command at its launcher."""
    return marker % (1 << _NUMBER_BITS)


def series(chance: bytes) -> int:
    """Return the number of a series, derived from random bytes."""
    return int.from_bytes(chance, "big") % ((1 << _SERIES_BITS) - 1) + 1


def to_text(marker: int) -> str:
    """Return a marker in the form of the environment variable."""
    return f"{series_of(marker):08x}.{number_of(marker):x}"


def set_marker(marker: int) -> bool:
    """Set the marker that children of this process inherit; return whether the system supports that."""
    if sys.platform != "linux":
        return False
    try:
        resource.setrlimit(_LOCKS, (marker, resource.getrlimit(_LOCKS)[1]))
    except (OSError, ValueError):
        return False
    return True


def own_limit() -> int:
    """Return this process's soft limit of file locks."""
    return resource.getrlimit(_LOCKS)[0] if sys.platform == "linux" else resource.RLIM_INFINITY


def read(pid: int) -> int | None:
    """Return the marker of a process; None if it has none or is gone."""
    found = inherited(pid)
    return found if found is not None else _in_environment(pid)


def inherited(pid: int) -> int | None:
    """Return the marker that a process inherited, regardless of its environment; None if it has none."""
    limit = _limit(pid)
    # Since Python 3.15, RLIM_INFINITY is a positive number, too.
    return limit if limit not in (None, resource.RLIM_INFINITY) and limit >> _NUMBER_BITS > 0 else None


def _limit(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return resource.prlimit(pid, _LOCKS)[0]
    except PermissionError:
        # A process of another user: `/proc` shows its limits nevertheless.
        return _limit_in_proc(pid)
    except OSError:
        return None


def _limit_in_proc(pid: int) -> int | None:
    """Return the limit from /proc, for a process of another user."""
    for line in _read_proc(pid, "limits").splitlines():
        if line.startswith(_LABEL):
            soft = line[len(_LABEL) :].split()[0]
            return int(soft) if soft.isdigit() else None
    return None


def _in_environment(pid: int) -> int | None:
    for entry in _read_proc(pid, "environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == VARIABLE.encode():
            return _parsed(value)
    return None


def _parsed(value: bytes) -> int | None:
    series, _, number = value.partition(b".")
    try:
        return marker(int(series, 16), int(number, 16))
    except ValueError:
        return None


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
