"""Spawning: starts a command that inherits only what its request names."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
from collections.abc import Sequence

from app.processes import environments, jobs, launcher_protocol, namespace_init, output_files, process_markers

_DEFAULT_PATH = os.fsencode(os.defpath)
_MARKER_VARIABLE = process_markers.VARIABLE.encode()
_NOT_INHERITED = tuple(name.encode() for name in environments.NOT_INHERITED)
_RESET = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGCHLD", "SIGUSR1", "SIGUSR2")
)
# Errors of a missing file; a folder on PATH that may not be searched counts as missing, too.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES})


class Refusal(Exception):
    """The command cannot be started."""

    def __init__(self, what: str, number: int | None) -> None:
        super().__init__(what)
        self.what = what
        """Subject of the refusal: `program`, `cwd`, `output`, `register` or `containment`."""
        self.errno = number or 0
        """Error number of the system."""


class Spawner:
    """Starts commands."""

    def __init__(self, temporary: str, files: int, containment: namespace_init.Containment) -> None:
        self._temporary = temporary
        self._files = files
        self._containment = containment
        self._environment = {name: value for name, value in os.environb.items() if name not in _NOT_INHERITED}
        self._devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_limit = process_markers.own_limit()
        # This process needs two files for each command; commands get the usual limit.
        _, self._most_files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def start(self, request: launcher_protocol.Start, marker: int, files: Sequence[int], now: float) -> jobs.Job:
        """Start a command in a session of its own.

        Args:
            files: Open files that came with the request; the caller still owns them.

        Raises:
            Refusal: the command cannot be started.
        """
        opened: list[int] = []
        try:
            outputs = self._open_outputs(request, files, opened)
            stdin = self._open_stdin(request, files, opened)
            child = self._spawn(request, marker, files, (stdin, outputs[0].file, outputs[1].file))
        except BaseException:
            for file in opened:
                os.close(file)
            raise
        # The child has its own copies.
        if stdin != self._devnull:
            os.close(stdin)
        outputs[0].close_passed()
        return jobs.Job(request, marker, child, outputs, now)

    def _open_outputs(
        self, request: launcher_protocol.Start, files: Sequence[int], opened: list[int]
    ) -> list[output_files.OutputFile]:
        try:
            if request.writes_to_file:
                outputs = [output_files.from_descriptor(os.dup(files[-1]))]
            else:
                outputs = [output_files.create(self._temporary)]
            opened.append(outputs[0].file)
            outputs.append(output_files.create(self._temporary))
            opened.append(outputs[1].file)
        except OSError as error:
            raise Refusal("output", error.errno) from error
        return outputs

    def _open_stdin(self, request: launcher_protocol.Start, files: Sequence[int], opened: list[int]) -> int:
        if request.stdin is None and not request.reads_from_file:
            return self._devnull
        try:
            if request.stdin is None:
                file = os.dup(files[request.cwd is None])
            else:
                file = output_files.create_filled(self._temporary, request.stdin)
        except OSError as error:
            raise Refusal("output", error.errno) from error
        opened.append(file)
        return file

    def _spawn(
        self, request: launcher_protocol.Start, marker: int, files: Sequence[int], streams: tuple[int, int, int]
    ) -> jobs.Child:
        # Folder, marker and limit are set on this process: a child inherits them at its birth, and `posix_spawn`
        # accepts none of them. That is safe because the launcher has one thread; `finally` restores them.
        flags = self._flags_of(request)
        environment = self._environment_of(request, marker)
        try:
            if request.cwd is None:
                # A folder by descriptor is the one that was checked, even if its path leads elsewhere by now.
                os.fchdir(files[0])
            else:
                os.chdir(request.cwd)
        except (OSError, ValueError) as error:
            raise Refusal("cwd", getattr(error, "errno", errno.EINVAL)) from error
        try:
            program = _program(request.argv[0], environment.get(b"PATH", _DEFAULT_PATH))
            process_markers.set_marker(marker)
            self._limit_files(self._files)
            return _child(flags, program, request.argv, environment, streams)
        except (OSError, ValueError) as error:
            raise Refusal("program", getattr(error, "errno", errno.EINVAL)) from error
        finally:
            self._limit_files(self._most_files)
            process_markers.set_marker(self._own_limit)
            os.chdir("/")

    def _flags_of(self, request: launcher_protocol.Start) -> int | None:
        try:
            return self._containment.flags() if request.contained else None
        except OSError as error:
            raise Refusal("containment", error.errno) from error

    def _environment_of(self, request: launcher_protocol.Start, marker: int) -> dict[bytes, bytes]:
        environment = dict(self._environment) if request.inherits else {}
        for name, value in request.env.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        # Set last, so that no recipe can replace the marker and hide its processes.
        environment[_MARKER_VARIABLE] = process_markers.to_text(marker).encode()
        return environment

    def _limit_files(self, soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._most_files))


def _child(
    flags: int | None, program: bytes, argv: list[bytes], environment: dict[bytes, bytes], streams: tuple[int, int, int]
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

    if flags is None:
        return jobs.Child(spawn(), None, None)
    try:
        pid, reports = namespace_init.start(flags, spawn, streams)
    except OSError as error:
        raise Refusal("containment", error.errno) from error
    return jobs.Child(pid, flags, reports)


def _program(name: bytes, path: bytes) -> bytes:
    """Return the path of a program as a shell finds it; a name with a slash is a path."""
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
        # As a shell reports it: found, but not executable.
        refused = errno.EACCES
    raise OSError(refused or errno.ENOENT, "not found")
