"""Kin: which processes there are, who descends from whom, and how one of them is hit and no other.

Linux tells all of it in /proc. Elsewhere only process groups are known: what leaves its group is lost there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

LINUX = sys.platform == "linux"
"""Whether descent, marks and handles of processes can be had."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEAD = (b"Z", b"X")
_PARENT, _THREADS, _START = 1, 17, 19


class Process(NamedTuple):
    """A living process."""

    parent: int
    """Id of its parent."""
    started: int
    """When it started, in ticks since the machine did; with the id it names the process for ever."""


Table = dict[int, Process]
"""Living processes by their ids."""


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, and be told by SIGTERM when the own parent ends."""
    if LINUX:
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def children() -> set[int]:
    """Return this process's own children, dead ones too; none where the system cannot tell."""
    told = _read("/proc/thread-self/children")
    if told is not None:
        return {int(pid) for pid in told.split()}
    return {pid for pid, process in table().items() if process.parent == os.getpid()}


def table() -> Table:
    """Return all living processes; none where the system cannot tell."""
    if not LINUX:
        return {}
    found = ((int(name), process(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: living for pid, living in found if living is not None}


def process(pid: int) -> Process | None:
    """Return a process; None if it is dead, not yet buried or gone."""
    told = _read(f"/proc/{pid}/stat")
    if told is None:
        return None
    fields = told[told.rindex(b")") + 2 :].split()
    if fields[0] in _DEAD and int(fields[_THREADS]) <= 1:
        return None
    return Process(parent=int(fields[_PARENT]), started=int(fields[_START]))


def is_alive(pid: int, started: int) -> bool:
    """Tell whether the very process that started then is alive; where only ids are known, whether its id is in use."""
    if LINUX:
        found = process(pid)
        return found is not None and found.started == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def started(pid: int) -> int:
    """Return when a process started, 0 where the system does not tell; a dead one counts until it is buried."""
    told = _read(f"/proc/{pid}/stat")
    return int(told[told.rindex(b")") + 2 :].split()[_START]) if told else 0


def ticks() -> int:
    """Return the present, as starts of processes are told; 0 where they are not."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) if LINUX else 0


def boot_id() -> str:
    """Return what names this run of the machine; `unknown` where the system does not tell."""
    told = _read("/proc/sys/kernel/random/boot_id")
    return told.decode().strip() if told else "unknown"


def pid_namespace() -> int:
    """Return what names the namespace that ids of processes are told in; 0 where the system does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino if LINUX else 0
    except OSError:
        return 0


def descendants(table: Table, roots: Iterable[int]) -> set[int]:
    """Return the roots that are alive, and everybody who descends from them."""
    children: dict[int, list[int]] = {}
    for pid, living in table.items():
        children.setdefault(living.parent, []).append(pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in table]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def strike(pid: int, started: int, number: signal.Signals) -> None:
    """Send a signal to the very process that started then, and to no other that has got its id since."""
    handle = _handle(pid)
    try:
        if is_alive(pid, started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if handle is not None:
                    signal.pidfd_send_signal(handle, number)
                else:
                    os.kill(pid, number)
    finally:
        if handle is not None:
            os.close(handle)


def strike_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def has_group(leader: int) -> bool:
    """Tell whether anybody is in a process group."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _handle(pid: int) -> int | None:
    """Return a descriptor of a process; None if it is gone, or where the system has or allows no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _read(path: str) -> bytes | None:
    if not LINUX:
        return None
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
