"""Namespace init: the init processes of the pid namespaces in which commands are contained.

An init starts one command, reaps every process of its namespace, and reports through a pipe how the command ended. It
exits when no other process is left; if it or its launcher dies earlier, the kernel kills all of them.
"""

# `unshare … tini` would take 9 ms and three processes, need two programs, and turn a death by signal into an exit
# code. Process ids inside begin at this process's id outside: with equal small ids, agents that share lock files in
# one home folder would mistake each other for themselves. The launcher's environment is wiped from memory first, since
# an agent can read `/proc/1/environ`.

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, NoReturn

from app.processes import namespaces

AUTO, GUARD = "auto", "guard"
NAMESPACE, USER_NAMESPACE = namespaces.NAMES.values()
WANTED = (AUTO, NAMESPACE, USER_NAMESPACE, GUARD)
"""Values of the setting: a namespace if possible, always a namespace, one with its own users, or none."""

_REPORT_BYTES = 4096
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_FIRST_FREE = 3
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class Report(NamedTuple):
    """The report that an init sends once."""

    fault: Literal["", "program", "containment"]  # What kept the command from starting; empty if it started.
    errno: int  # Error number of the system.
    status: int  # Wait status of the command's first process.
    cpu_seconds: float  # Processor time of that process and its children.
    peak_bytes: int  # Most memory used by one of them.
    has_leftovers: bool  # Whether other processes are left.


class Containment:
    """Chooses how commands are contained on this machine."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._probed: tuple[int | None, int] | None = None

    def flags(self) -> int | None:
        """Return the flags of a new namespace; None: only the launcher contains the command.

        Raises:
            OSError: a namespace is required, but not possible; or the machine lacks resources to find out now.
        """
        if self._wanted == GUARD:
            return None
        flags, number = self.probe()
        if flags is None and self._wanted != AUTO:
            raise OSError(number, os.strerror(number))
        return flags

    def probe(self) -> tuple[int | None, int]:
        """Return the flags that work here, or None and the error number; they are only tried once.

        Raises:
            OSError: the machine lacks processes, memory or descriptors now.
        """
        if self._probed is None:
            self._probed = _first_that_works(_candidates(self._wanted))
        return self._probed


def start(flags: int, spawn: Callable[[], int], kept: Sequence[int]) -> tuple[int, int]:
    """Start an init; return its process id and the descriptor of its report.

    Args:
        spawn: Starts the command.
        kept: Open files that `spawn` needs.

    Raises:
        OSError: a namespace is not possible.
    """
    # The launcher's loop reads it, and must never block.
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    origin = namespaces.origin()
    try:
        pid = namespaces.fork_into(flags)
        if pid == 0:
            _run(flags, origin, spawn, kept, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return pid, reader


def main(wanted: str) -> None:
    """Print the containment that works here: the name of a namespace, or the guard and the reason."""
    try:
        flags, number = Containment(wanted).probe()
    except OSError as error:
        flags, number = None, error.errno or errno.ENOSYS
    sys.stdout.write(f"{GUARD} {os.strerror(number)}" if flags is None else namespaces.NAMES[flags])


def read_report(reader: int) -> Report | None:
    """Return the report, if there is one to read."""
    try:
        content = os.read(reader, _REPORT_BYTES)
    except BlockingIOError:
        return None
    return Report(*marshal.loads(content)) if content else None  # noqa: S302 - the other end is this very program


def _candidates(wanted: str) -> list[int]:
    """Return the flags to try; in a user namespace, root would lose its rights over files of other users."""
    if wanted == USER_NAMESPACE:
        return [namespaces.WITH_USERS]
    return [namespaces.PRIVILEGED] if os.geteuid() == 0 else [*namespaces.NAMES]


def _first_that_works(candidates: Iterable[int]) -> tuple[int | None, int]:
    number = errno.ENOSYS
    for flags in candidates:
        try:
            pid, reader = start(flags, _spawn_nothing, ())
        except OSError as error:
            # A kernel may allow one kind of namespace and refuse another; the next one is tried.
            number = _lasting(error.errno or number)
            continue
        os.waitpid(pid, 0)
        report = read_report(reader)
        os.close(reader)
        if report is not None and not report.fault:
            return flags, 0
        number = _lasting(report.errno) if report is not None else number
    return None, number


def _lasting(number: int) -> int:
    # Remembered, a moment without processes or memory would leave agents without a namespace until the next start.
    if number in _PASSING:
        raise OSError(number, os.strerror(number))
    return number


def _spawn_nothing() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid


def _run(flags: int, origin: namespaces.Origin, spawn: Callable[[], int], kept: Sequence[int], writer: int) -> NoReturn:
    """Run as an init; from outside its namespace only SIGKILL reaches it."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        # A fork has copies of all files of the launcher. While it held the connection, the service would never see that
        # the launcher has ended; nor would a reader see the end of another command's pipe.
        _close_all_but({*kept, writer})
        main = _spawn_inside(flags, origin, spawn, writer)
        for file in kept:
            os.close(file)
        _wait_for_all(main, writer)
        os._exit(0)
    finally:
        os._exit(1)


def _spawn_inside(flags: int, origin: namespaces.Origin, spawn: Callable[[], int], writer: int) -> int:
    fault: Literal["program", "containment"] = "containment"
    try:
        namespaces.set_up(flags, origin)
        fault = "program"
        return spawn()
    except (OSError, ValueError) as error:
        _send_report(writer, Report(fault, getattr(error, "errno", None) or errno.EINVAL, 0, 0.0, 0, False))
        os._exit(0)


def _wait_for_all(main: int, writer: int) -> None:
    pid = 0
    # Orphans inside become its children, and are reaped as well.
    while pid != main:
        pid, status, usage = os.wait4(-1, 0)
    # The report is sent as soon as the command itself has ended. The launcher then ends the remaining processes, and
    # this init waits for them.
    has_leftovers = not _is_alone(os.WNOHANG)
    _send_report(writer, Report("", 0, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, has_leftovers))
    _is_alone(0)


def _is_alone(options: int) -> bool:
    """Reap processes and return whether none is left; without WNOHANG, wait until none is left."""
    try:
        while os.wait4(-1, options)[0] != 0:
            pass
    except ChildProcessError:
        return True
    return False


def _send_report(writer: int, report: Report) -> None:
    os.write(writer, marshal.dumps(tuple(report)))


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= _FIRST_FREE and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
