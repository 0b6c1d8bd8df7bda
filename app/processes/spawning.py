"""Spawning: how a launcher starts a command, with nothing of its own but what was asked for."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
from collections.abc import Sequence

from app.processes import environments, jobs, launcher_protocol, namespace_init, output_files, process_markers

_DEFAULT_PATH = os.fsencode(os.defpath)
_MARK_VARIABLE = process_markers.VARIABLE.encode()
_NOT_INHERITED = tuple(name.encode() for name in environments.NOT_INHERITED)
_RESET = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGCHLD", "SIGUSR1", "SIGUSR2")
)
# Of a file that cannot be reached: a folder on PATH that may not be searched is no place of programs.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES})


class Refusal(Exception):
    """The command cannot be started."""

    def __init__(self, what: str, number: int | None) -> None:
        super().__init__(what)
        self.what = what
        """`program`, `cwd`, `output` or `containment`."""
        self.errno = number or 0
        """The system's reason."""


class Spawner:
    """Starts commands."""

    def __init__(self, temporary: str, files: int, containment: namespace_init.Containment) -> None:
        self._temporary = temporary
        self._files = files
        self._containment = containment
        self._environment = {name: value for name, value in os.environb.items() if name not in _NOT_INHERITED}
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_mark = process_markers.borne()
        # This process needs two files for each command, and a command must not notice.
        _, self._most_files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def start(self, request: launcher_protocol.Start, mark: int, files: Sequence[int], now: float) -> jobs.Job:
        """Start a command in a session of its own.

        Args:
            files: Open files that came with the request; they stay the caller's.

        Raises:
            Refusal: it cannot be started.
        """
        opened: list[int] = []
        try:
            outputs = self._outputs(request, files, opened)
            stdin = self._stdin(request, files, opened)
            child = self._spawned(request, mark, files, (stdin, outputs[0].file, outputs[1].file))
        except BaseException:
            for file in opened:
                os.close(file)
            raise
        if stdin != self._nothing:
            os.close(stdin)
        outputs[0].hand_over()
        return jobs.Job(request, mark, child, outputs, now)

    def _outputs(
        self, request: launcher_protocol.Start, files: Sequence[int], opened: list[int]
    ) -> list[output_files.OutputFile]:
        try:
            if request.writes_to_file:
                outputs = [output_files.passed(os.dup(files[-1]))]
            else:
                outputs = [output_files.fresh(self._temporary)]
            opened.append(outputs[0].file)
            outputs.append(output_files.fresh(self._temporary))
            opened.append(outputs[1].file)
        except OSError as error:
            raise Refusal("output", error.errno) from error
        return outputs

    def _stdin(self, request: launcher_protocol.Start, files: Sequence[int], opened: list[int]) -> int:
        if request.stdin is None and not request.reads_from_file:
            return self._nothing
        try:
            if request.stdin is None:
                file = os.dup(files[request.cwd is None])
            else:
                file = output_files.filled(self._temporary, request.stdin)
        except OSError as error:
            raise Refusal("output", error.errno) from error
        opened.append(file)
        return file

    def _spawned(
        self, request: launcher_protocol.Start, mark: int, files: Sequence[int], streams: tuple[int, int, int]
    ) -> jobs.Child:
        way = self._way(request)
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
            process_markers.bear(mark)
            self._limit_files(self._files)
            return _child(way, program, request.argv, environment, streams)
        except (OSError, ValueError) as error:
            raise Refusal("program", getattr(error, "errno", errno.EINVAL)) from error
        finally:
            self._limit_files(self._most_files)
            process_markers.bear(self._own_mark)
            os.chdir("/")

    def _way(self, request: launcher_protocol.Start) -> int | None:
        try:
            return self._containment.way() if request.contained else None
        except OSError as error:
            raise Refusal("containment", error.errno) from error

    def _environment_of(self, request: launcher_protocol.Start, mark: int) -> dict[bytes, bytes]:
        environment = dict(self._environment) if request.inherits else {}
        for name, value in request.env.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        environment[_MARK_VARIABLE] = process_markers.written(mark).encode()
        return environment

    def _limit_files(self, soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._most_files))


def _child(
    way: int | None, program: bytes, argv: list[bytes], environment: dict[bytes, bytes], streams: tuple[int, int, int]
) -> jobs.Child:
    def spawn() -> int:
        return os.posix_spawn(
            program,
            argv,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(streams)],
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET,
        )

    if way is None:
        return jobs.Child(spawn(), None, None)
    try:
        pid, reports = namespace_init.start(way, spawn, streams)
    except OSError as error:
        raise Refusal("containment", error.errno) from error
    return jobs.Child(pid, way, reports)


def _program(name: bytes, path: bytes) -> bytes:
    """Find a program as a shell would; a name with a slash stands for itself."""
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
