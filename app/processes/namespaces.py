"""Namespaces: a world of processes of its own, whose first process takes all the others with it, whatever ends it.

The kernel does the work: nobody gets out, and the end of the first process is the end of everybody. Whoever has no
rights over the machine makes such a world inside a user namespace in which he is who he was.
"""

# Why: docs/decisions/0102.

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from typing import NamedTuple

_NEW_MOUNTS, _NEW_USERS, _NEW_PIDS = 0x0002_0000, 0x1000_0000, 0x2000_0000

PLAIN = _NEW_PIDS | _NEW_MOUNTS
"""With rights over the machine."""

OWN_USERS = PLAIN | _NEW_USERS
"""Without, where the system lets anybody make a user namespace."""

NAMES = {PLAIN: "namespace", OWN_USERS: "user_namespace"}
"""The ways by name, the cheaper one first."""

_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("8Q")
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
_MS_REC, _MS_SLAVE = 0x4000, 0x8_0000
_PARENT, _ENVIRONMENT_FROM, _ENVIRONMENT_TO = 1, 47, 48


class Origin(NamedTuple):
    """Who makes a world."""

    pid: int
    """Its process."""
    user: int
    """Whom it works for."""
    group: int
    """Group of that user."""


def origin() -> Origin:
    """Return this process as the maker of worlds."""
    return Origin(os.getpid(), os.geteuid(), os.getegid())


def separate(way: int) -> int:
    """Fork; the child, to which 0 is returned, is the first process of a new world. Not for programs with threads.

    Raises:
        OSError: the system does not let it.
    """
    if sys.platform != "linux":
        raise OSError(0, "only Linux has namespaces")
    wanted = _CLONE_ARGS.pack(way, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    libc, interpreter = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    interpreter.PyOS_BeforeFork()
    pid: int = libc.syscall(_SYS_CLONE3, wanted, len(wanted))
    number = ctypes.get_errno()
    if pid == 0:
        interpreter.PyOS_AfterFork_Child()
        return 0
    interpreter.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def settle(way: int, origin: Origin) -> None:
    """Make a new world livable, as its first process: it ends with its maker, and /proc tells of it alone.

    Raises:
        OSError: the system does not let it.
    """
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    outer_pid, facts = os.readlink("/proc/self"), _facts()
    if int(facts[_PARENT]) != origin.pid:
        os._exit(1)
    if way & _NEW_USERS:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{origin.user} {origin.user} 1")
        _write("/proc/self/gid_map", f"{origin.group} {origin.group} 1")
    # What is mounted outside later is seen here too, but not the other way round.
    _mount(libc, b"none", b"/", None, _MS_REC | _MS_SLAVE)
    _mount(libc, b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    # Files in which programs leave their ids must not all tell the same few small numbers.
    with contextlib.suppress(OSError):
        _write("/proc/sys/kernel/ns_last_pid", outer_pid)
    # Its maker's environment is none of its inhabitants' business.
    begin, end = int(facts[_ENVIRONMENT_FROM]), int(facts[_ENVIRONMENT_TO])
    if begin:
        ctypes.memset(begin, 0, end - begin)
    libc.prctl(_PR_SET_DUMPABLE, 0)


def _facts() -> list[bytes]:
    with open("/proc/self/stat", "rb", buffering=0) as file:
        told = file.read()
    return told[told.rindex(b")") + 2 :].split()


def _mount(libc: ctypes.PyDLL, source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
