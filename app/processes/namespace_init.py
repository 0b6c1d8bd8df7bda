"""Wardens: the first processes of worlds in which commands are contained.

A warden starts one command, buries whoever dies in its world, and tells its launcher through a pipe how the command
ended. It ends when nobody else is left; whatever ends it earlier, with its launcher for one, ends them all.
"""

# `unshare … tini` would cost 9 ms and three processes, need two programs, and turn a death by signal into an exit
# code. Process ids inside begin at this process's id outside: with equal small ids, agents that share lock files in
# one home folder would take each other for themselves. The launcher's environment is wiped from memory first, since
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
"""What may be wanted: a namespace where there can be one, nothing else, one with users of its own, or never one."""

_REPORT_BYTES = 4096
_OWN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_STANDARD = 3


class Report(NamedTuple):
    """What a warden tells, once."""

    fault: Literal["", "program", "containment"]
    """What kept the command from being started; empty if it was."""
    errno: int
    """The system's reason."""
    status: int
    """Wait status of the command's first process."""
    cpu_seconds: float
    """Processor time of that process and its children."""
    peak_bytes: int
    """Most memory that one of them held."""
    lingers: bool
    """Whether others are left."""


class Containment:
    """How commands are contained here."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._found: tuple[int | None, int] | None = None

    def way(self) -> int | None:
        """Return the way into a namespace; None: the launcher's guard has to do.

        Raises:
            OSError: a namespace is wanted in any case, and there is none.
        """
        if self._wanted == GUARD:
            return None
        way, number = self.found()
        if way is None and self._wanted != AUTO:
            raise OSError(number, os.strerror(number))
        return way

    def found(self) -> tuple[int | None, int]:
        """Return the way that has been seen to work here, or None and the system's reason; it is tried out once."""
        if self._found is None:
            self._found = _first_that_works(_ways(self._wanted))
        return self._found


def start(way: int, spawn: Callable[[], int], kept: Sequence[int]) -> tuple[int, int]:
    """Start a warden; return its process and the descriptor of the pipe that its report comes from.

    Args:
        spawn: Starts the command.
        kept: Open files that this needs.

    Raises:
        OSError: there can be no namespace.
    """
    hears, tells = os.pipe()
    os.set_blocking(hears, False)
    origin = namespaces.origin()
    try:
        pid = namespaces.separate(way)
        if pid == 0:
            _live(way, origin, spawn, kept, tells)
    except BaseException:
        os.close(hears)
        raise
    finally:
        os.close(tells)
    return pid, hears


def main(wanted: str) -> None:
    """Say what is to be had here: the name of a way, or the guard and why."""
    way, number = Containment(wanted).found()
    sys.stdout.write(f"{GUARD} {os.strerror(number)}" if way is None else namespaces.NAMES[way])


def heard(hears: int) -> Report | None:
    """Return the report, if there is one to read."""
    try:
        content = os.read(hears, _REPORT_BYTES)
    except BlockingIOError:
        return None
    return Report(*marshal.loads(content)) if content else None  # noqa: S302 - the other end is this very program


def _ways(wanted: str) -> list[int]:
    """Return the ways that are worth trying. In a user namespace root would lose its rights over
    the files of others.
    """
    if wanted == USER_NAMESPACE:
        return [namespaces.OWN_USERS]
    return [namespaces.PLAIN] if os.geteuid() == 0 else [*namespaces.NAMES]


def _first_that_works(ways: Iterable[int]) -> tuple[int | None, int]:
    number = errno.ENOSYS
    for way in ways:
        try:
            pid, hears = start(way, _nobody, ())
        except OSError as error:
            number = error.errno or number
            continue
        os.waitpid(pid, 0)
        report = heard(hears)
        os.close(hears)
        if report is not None and not report.fault:
            return way, 0
        number = report.errno if report is not None else number
    return None, number


def _nobody() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid


def _live(way: int, origin: namespaces.Origin, spawn: Callable[[], int], kept: Sequence[int], tells: int) -> NoReturn:
    """Be a warden. Signals from outside do not reach the first process of a world, but for SIGKILL."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _OWN:
            signal.signal(number, signal.SIG_DFL)
        _close_all_but({*kept, tells})
        main = _started(way, origin, spawn, tells)
        for file in kept:
            os.close(file)
        _bury(main, tells)
        os._exit(0)
    finally:
        os._exit(1)


def _started(way: int, origin: namespaces.Origin, spawn: Callable[[], int], tells: int) -> int:
    fault: Literal["program", "containment"] = "containment"
    try:
        namespaces.settle(way, origin)
        fault = "program"
        return spawn()
    except (OSError, ValueError) as error:
        _tell(tells, Report(fault, getattr(error, "errno", None) or errno.EINVAL, 0, 0.0, 0, False))
        os._exit(0)


def _bury(main: int, tells: int) -> None:
    pid = 0
    while pid != main:
        pid, status, usage = os.wait4(-1, 0)
    lingers = not _is_alone(os.WNOHANG)
    _tell(tells, Report("", 0, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, lingers))
    _is_alone(0)


def _is_alone(options: int) -> bool:
    """Bury the dead, and tell whether nobody is left; without options, once that is so."""
    try:
        while os.wait4(-1, options)[0] != 0:
            pass
    except ChildProcessError:
        return True
    return False


def _tell(tells: int, report: Report) -> None:
    os.write(tells, marshal.dumps(tuple(report)))


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= _STANDARD and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
