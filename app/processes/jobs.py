"""
Jobs: commands as their launcher sees them, from their start until nothing of them is left.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import signal
import stat
from collections.abc import Sequence

from app.processes import kin, marks, outlets, wire

GRACE_SECONDS = 0.2
"""Time between SIGTERM and SIGKILL."""

_AGAIN_SECONDS = 0.02
_PATIENCE_SECONDS = 5.0
_DEFAULT_PATH = os.fsencode(os.defpath)
_MARK_VARIABLE = marks.VARIABLE.encode()
_NOT_INHERITED = (b"PWD", b"OLDPWD")
_RESET = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGCHLD", "SIGUSR1", "SIGUSR2")
)
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


class Refusal(Exception):
    """
    The command cannot be started.
    """

    def __init__(self, what: str, number: int | None) -> None:
        super().__init__(what)
        self.what = what
        """`program`, `cwd` or `output`."""
        self.errno = number or 0
        """The system's reason."""


class Job:
    """
    A command that has been started.
    """

    __slots__ = (
        "cause", "due", "first_kill", "leftovers", "limit_at", "mark", "number", "pid", "place", "request",
        "started_by", "status", "stderr", "stdout", "struck", "survivors", "usage", "vital_sign",
    )  # fmt: skip

    def __init__(self, request: wire.Start, mark: int, pid: int, outputs: Sequence[outlets.Outlet], now: float) -> None:
        self.request, self.number, self.mark, self.pid = request, request.number, mark, pid
        self.stdout, self.stderr = outputs
        # Not asked of the system: to be told of a process that is being born takes as long as the birth.
        self.started_by = kin.ticks()
        """When it had started, in ticks."""
        self.place = 0
        """Its line in the register."""
        self.status: int | None = None
        """Wait status of its first process; None while that lives."""
        self.usage: resource.struct_rusage | None = None
        """What it has used."""
        self.cause: wire.Cause = ""
        """Why it is being ended; empty if it ends by itself."""
        self.due: float | None = None
        """When its processes are struck next; None while nobody wants its end."""
        self.struck = self.leftovers = self.survivors = 0
        self.vital_sign = now
        self.limit_at = math.inf if request.timeout_seconds is None else now + request.timeout_seconds
        """When it is ended for taking too long."""
        self.first_kill = 0.0

    def end(self, cause: wire.Cause, now: float) -> None:
        """
        Begin to end it; nothing if that has begun.
        """
        if self.due is None:
            self.cause, self.due = cause, now

    def look(self, now: float) -> wire.Cause:
        """
        Look at its outputs, and return why it must not go on: `idle`, `output`; empty if it may.
        """
        sizes = self.stdout.size_bytes(), self.stderr.size_bytes()
        if sizes != (self.stdout.seen_bytes, self.stderr.seen_bytes):
            (self.stdout.seen_bytes, self.stderr.seen_bytes), self.vital_sign = sizes, now
        idle = self.request.idle_seconds if self.stdout.is_held else None
        if idle is not None and now >= self.vital_sign + idle:
            return "idle"
        return "output" if max(sizes) > self.request.cap_bytes else ""

    def strike(self, members: set[int], table: kin.Table, now: float) -> None:
        """
        Send its processes the next signal: SIGTERM first, SIGKILL after the grace, and again until nobody is left.
        """
        number = signal.SIGTERM if self.struck == 0 else signal.SIGKILL
        for pid in members:
            kin.strike(pid, table[pid].started, number)
        if not kin.LINUX:
            kin.strike_group(self.pid, number)
        if not self.cause:
            self.leftovers = max(self.leftovers, len(members))
        self.survivors = len(members)
        self.struck += 1
        self.first_kill = now if self.struck == 2 else self.first_kill
        self.due = now + (GRACE_SECONDS if self.struck == 1 else _AGAIN_SECONDS)

    def is_hopeless(self, now: float) -> bool:
        """
        Tell whether SIGKILL has been of no use for so long that it never will be.
        """
        return self.struck > 1 and now > self.first_kill + _PATIENCE_SECONDS

    def told(self) -> tuple[wire.Ended, list[int]]:
        """
        Return what came of it, with the descriptors of outputs that are too long to be said.
        """
        contents = [outlet.content() for outlet in (self.stdout, self.stderr)]
        usage = self.usage
        ended = wire.Ended(
            number=self.number,
            pid=self.pid,
            status=self.status or 0,
            cause=self.cause,
            stdout=contents[0],
            stderr=contents[1],
            leftovers=self.leftovers,
            survivors=0 if self.due is None else self.survivors,
            cpu_seconds=0.0 if usage is None else usage.ru_utime + usage.ru_stime,
            peak_bytes=0 if usage is None else usage.ru_maxrss * (1024 if kin.LINUX else 1),
        )
        outputs = zip(contents, (self.stdout, self.stderr), strict=True)
        return ended, [outlet.file for content, outlet in outputs if content is None]

    def close(self) -> None:
        """
        Forget its outputs.
        """
        self.stdout.close()
        self.stderr.close()


class Spawner:
    """
    Starts commands.
    """

    def __init__(self, temporary: str, files: int) -> None:
        self._temporary, self._files = temporary, files
        self._environment = {name: value for name, value in os.environb.items() if name not in _NOT_INHERITED}
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_mark = marks.borne()
        # This process needs two files for each command, and a command must not notice.
        _, self._most_files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def start(self, request: wire.Start, mark: int, files: Sequence[int], now: float) -> Job:
        """
        Start a command in a session of its own.

        Args:
            files: Open files that came with the request; they stay the caller's.

        Raises:
            Refusal: it cannot be started.
        """
        opened: list[int] = []
        try:
            outputs = self._outputs(request, files, opened)
            stdin = self._stdin(request, files, opened)
            pid = self._spawned(request, mark, files, (stdin, outputs[0].file, outputs[1].file))
        except BaseException:
            for file in opened:
                os.close(file)
            raise
        if stdin != self._nothing:
            os.close(stdin)
        outputs[0].hand_over()
        return Job(request, mark, pid, outputs, now)

    def _outputs(self, request: wire.Start, files: Sequence[int], opened: list[int]) -> list[outlets.Outlet]:
        try:
            if request.writes_to_file:
                outputs = [outlets.passed(os.dup(files[-1]))]
            else:
                outputs = [outlets.fresh(self._temporary)]
            opened.append(outputs[0].file)
            outputs.append(outlets.fresh(self._temporary))
            opened.append(outputs[1].file)
        except OSError as error:
            raise Refusal("output", error.errno) from error
        return outputs

    def _stdin(self, request: wire.Start, files: Sequence[int], opened: list[int]) -> int:
        if request.stdin is None and not request.reads_from_file:
            return self._nothing
        try:
            if request.stdin is None:
                file = os.dup(files[request.cwd is None])
            else:
                file = outlets.filled(self._temporary, request.stdin)
        except OSError as error:
            raise Refusal("output", error.errno) from error
        opened.append(file)
        return file

    def _spawned(self, request: wire.Start, mark: int, files: Sequence[int], streams: tuple[int, int, int]) -> int:
        environment = self._environment_of(request, mark)
        try:
            if request.cwd is None:
                os.fchdir(files[0])
            else:
                os.chdir(request.cwd)
        except (OSError, ValueError) as error:
            raise Refusal("cwd", getattr(error, "errno", errno.EINVAL)) from error
        try:
            program = _program(request.argv[0], environment.get(b"PATH", _DEFAULT_PATH))
            marks.bear(mark)
            self._limit_files(self._files)
            return os.posix_spawn(
                program,
                request.argv,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET,
            )
        except (OSError, ValueError) as error:
            raise Refusal("program", getattr(error, "errno", errno.EINVAL)) from error
        finally:
            self._limit_files(self._most_files)
            marks.bear(self._own_mark)
            os.chdir("/")

    def _environment_of(self, request: wire.Start, mark: int) -> dict[bytes, bytes]:
        environment = dict(self._environment) if request.inherits else {}
        for name, value in request.env.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        environment[_MARK_VARIABLE] = marks.written(mark).encode()
        return environment

    def _limit_files(self, soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._most_files))


def _program(name: bytes, path: bytes) -> bytes:
    """
    Find a program as a shell would; a name with a slash stands for itself.
    """
    if b"/" in name:
        return name
    refused: int | None = None
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", name)
        try:
            found = os.stat(candidate)
        except OSError as error:
            refused = refused if error.errno in _MISSING else error.errno
            continue
        if stat.S_ISREG(found.st_mode) and os.access(candidate, os.X_OK):
            return candidate
        refused = errno.EACCES
    raise OSError(refused or errno.ENOENT, "not found")
