"""Pid namespaces: when the first process of a namespace ends, the kernel kills all others.

No process can leave its namespace. A user without root rights creates a pid namespace inside a user namespace that
maps the user's own id.
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

PRIVILEGED = _NEW_PIDS | _NEW_MOUNTS  # Flags for a user with root rights.
WITH_USERS = PRIVILEGED | _NEW_USERS  # Flags for any user, if the system allows user namespaces.
NAMES = {PRIVILEGED: "namespace", WITH_USERS: "user_namespace"}  # Names of the flags, the cheapest first.

_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("8Q")
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
_MS_REC, _MS_SLAVE = 0x4000, 0x8_0000
_PARENT, _ENVIRONMENT_FROM, _ENVIRONMENT_TO = 1, 47, 48


class Origin(NamedTuple):
    """The process that creates a namespace."""

    pid: int  # Its process id.
    user: int  # Its effective user id.
    group: int  # Its effective group id.


def origin() -> Origin:
    """Return this process as the creator of namespaces."""
    return Origin(os.getpid(), os.geteuid(), os.getegid())


def fork_into(flags: int) -> int:
    """Fork; the child, which gets 0, is the first process of new namespaces. Not usable in programs with threads.

    Raises:
        OSError: the system does not allow it.
    """
    if sys.platform != "linux":
        raise OSError(0, "only Linux has namespaces")
    arguments = _CLONE_ARGS.pack(flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    libc, interpreter = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    # As in `os.fork`: the interpreter prepares its locks and state on both sides.
    interpreter.PyOS_BeforeFork()
    pid: int = libc.syscall(_SYS_CLONE3, arguments, len(arguments))
    code = ctypes.get_errno()
    if pid == 0:
        interpreter.PyOS_AfterFork_Child()
        return 0
    interpreter.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, os.strerror(code))
    return pid


def set_up(flags: int, origin: Origin) -> None:
    """Set up new namespaces as their first process: it dies with its creator, and /proc only shows the namespace.

    Raises:
        OSError: the system does not allow it.
    """
    libc = ctypes.PyDLL(None, use_errno=True)
    # First of all: a creator that died before this call would leave this process behind.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    outer_pid, facts = os.readlink("/proc/self"), _facts()
    # The creator died before the call above.
    if int(facts[_PARENT]) != origin.pid:
        os._exit(1)
    if flags & _NEW_USERS:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{origin.user} {origin.user} 1")
        _write("/proc/self/gid_map", f"{origin.group} {origin.group} 1")
    # Later mounts outside are visible inside too, but not the other way round.
    _mount(libc, b"none", b"/", None, _MS_REC | _MS_SLAVE)
    _mount(libc, b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    # Pid files of programs in different namespaces must not all contain the same few small numbers.
    with contextlib.suppress(OSError):
        _write("/proc/sys/kernel/ns_last_pid", outer_pid)
    # Processes inside must not read the creator's environment.
    begin, end = int(facts[_ENVIRONMENT_FROM]), int(facts[_ENVIRONMENT_TO])
    if begin:
        ctypes.memset(begin, 0, end - begin)
    libc.prctl(_PR_SET_DUMPABLE, 0)


def _facts() -> list[bytes]:
    with open("/proc/self/stat", "rb", buffering=0) as file:
        content = file.read()
    return content[content.rindex(b")") + 2 :].split()


def _mount(libc: ctypes.PyDLL, source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
