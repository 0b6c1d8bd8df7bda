"""The process tree: parents, descendants, and signals to exactly one process.

This uses /proc on Linux. On other systems only process groups are known, and a process that leaves its group is lost.
"""

# Not psutil: the launcher runs without site-packages, reads the table every 20 ms while it kills, and compares starts
# exactly. psutil takes two to five times as long for a table, and reports a start as a float.

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

LINUX = sys.platform == "linux"  # Whether parents, markers and pidfds of processes are available.

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEAD = (b"Z", b"X")
_PARENT, _THREADS, _START = 1, 17, 19


class Process(NamedTuple):
    """A living process."""

    parent: int  # Id of its parent.
    started: int  # When it started, in clock ticks since boot; with the id, this identifies the process uniquely.


Table = dict[int, Process]  # Living processes by their ids.


def become_subreaper() -> None:
    """Become the parent of every orphaned descendant, and get SIGTERM when this process's own parent ends."""
    if LINUX:
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel kill this process when its parent ends, even by SIGKILL; exit at once if it has ended already.

    On systems other than Linux, only the end of standard input ends the process. Signals that end a service are
    ignored: the service may still need its answer.
    """
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the request to the kernel.
    if os.getppid() != parent_pid:
        os._exit(0)


def ended_with_parent(by: signal.Signals) -> Callable[[], object]:
    """Return a function for `preexec_fn` that makes the kernel signal a program when the parent of its process ends."""
    prctl = ctypes.CDLL(None).prctl
    return (lambda: prctl(_PR_SET_PDEATHSIG, by)) if LINUX else (lambda: None)


def children() -> set[int]:
    """Return this process's children, including zombies; empty if the system cannot list them."""
    content = _read("/proc/thread-self/children")
    if content is not None:
        return {int(pid) for pid in content.split()}
    return {pid for pid, process in table().items() if process.parent == os.getpid()}


def table() -> Table:
    """Return all living processes; empty if the system cannot list them."""
    if not LINUX:
        return {}
    found = ((int(name), process(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: living for pid, living in found if living is not None}


def process(pid: int) -> Process | None:
    """Return a process; None if it is a zombie or gone."""
    content = _read(f"/proc/{pid}/stat")
    if content is None:
        return None
    # The name in brackets may contain blanks and brackets; after its last bracket the fields are plain.
    fields = content[content.rindex(b")") + 2 :].split()
    if fields[0] in _DEAD and int(fields[_THREADS]) <= 1:
        return None
    return Process(parent=int(fields[_PARENT]), started=int(fields[_START]))


def is_alive(pid: int, started: int) -> bool:
    """Return whether the process with this id and start is alive; without Linux, whether its id is in use."""
    if LINUX:
        found = process(pid)
        return found is not None and found.started == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # The process exists and belongs to another user.
        return True
    return True


def started(pid: int) -> int:
    """Return when a process started, including zombies; 0 if that is unknown."""
    content = _read(f"/proc/{pid}/stat")
    return int(content[content.rindex(b")") + 2 :].split()[_START]) if content else 0


def ticks() -> int:
    """Return the present time in the clock ticks of process starts; 0 on systems other than Linux."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) if LINUX else 0


def boot_id() -> str:
    """Return the id of this boot; `unknown` on systems other than Linux."""
    content = _read("/proc/sys/kernel/random/boot_id")
    return content.decode().strip() if content else "unknown"


def pid_namespace() -> int:
    """Return the id of this process's pid namespace; 0 if that is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino if LINUX else 0
    except OSError:
        return 0


def descendants(table: Table, roots: Iterable[int]) -> set[int]:
    """Return those of the roots that are alive, with their descendants."""
    children: dict[int, list[int]] = {}
    for pid, living in table.items():
        children.setdefault(living.parent, []).append(pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in table]
    while waiting:
        pid = waiting.pop()
        # A table is not read in a single moment: reused ids can form a circle.
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def send_signal(pid: int, started: int, number: signal.Signals) -> None:
    """Send a signal to the process with this id and start, never to a later one with the same id."""
    # The handle is opened before the start is compared. In the reverse order, the process could end in between and its
    # id pass to another process, which would get the signal.
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


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_groups(children: Iterable[int]) -> None:
    """Kill the whole process groups of children, except this process's own: no fork outruns a kill of its group.

    Args:
        children: Children that have not been reaped. Until then, no other group can have the id of theirs.
    """
    for group in {_group(pid) for pid in children} - {0, os.getpgrp()}:
        signal_group(group, signal.SIGKILL)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def group_exists(leader: int) -> bool:
    """Return whether a process group has a member."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _handle(pid: int) -> int | None:
    """Return a pidfd; None if the process is gone, or if the system has or allows none."""
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
