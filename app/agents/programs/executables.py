"""Executables: find the file of a program on this machine, and receive its output."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from app import errors
from app.agents.configuration import BackendConfig
from app.agents.programs import results
from app.agents.programs.program import Program
from app.engine import workspace_faults
from app.processes import commands, folders


def find(program: Program, config: BackendConfig, environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the program's file and leading arguments, from `agents.json`, its variable, its own installer, or PATH."""
    if config.command:
        return _configured(program, config, environ)
    variable = program.path_variable
    if variable is not None and (named := environ.get(variable)):
        if not _executable(Path(named)):
            raise _missing(program, f"{variable} names {named}, which is not an executable program")
        return (str(Path(named).absolute()),)
    # Before PATH, because the program installs its updates there.
    for known in program.known_paths:
        if _executable(home / known):
            return (str(home / known),)
    for name in program.commands:
        if (found := _on_path(name, environ)) is not None:
            return (found,)
    raise _missing(program, "it is not installed here")


def entered(folder: Path) -> int:
    """Return a descriptor of the folder that a program works in."""
    try:
        return folders.opened(folder)
    except OSError as error:
        message = f"The command's folder cannot be entered: {error.strerror}."
        raise commands.NotStarted(message, code="cwd_missing") from error


def _configured(program: Program, config: BackendConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    # The arguments after the program of a template are filled in for each turn.
    first, *rest = (part for part in config.command if isinstance(part, str))
    found = _on_path(first, environ)
    if found is None:
        raise _missing(program, f"the backend {config.name} names {first}, which is not found")
    return (found, *(rest if program.commands else ()))


def _on_path(name: str, environ: Mapping[str, str]) -> str | None:
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    return None if found is None else str(Path(found).absolute())


def _executable(path: Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _missing(program: Program, why: str) -> errors.AgentFailed:
    ways = [f"Install it ({program.install})"] if program.install else []
    if program.path_variable is not None:
        ways.append(f"set {program.path_variable} to its file")
    hint = f" {' or '.join(ways)}." if ways else ""
    detail = {"program": program.label, "install": program.install, "variable": program.path_variable}
    return errors.AgentFailed(f"{program.label} cannot be used: {why}.{hint}", code="agent_missing", detail=detail)


_READ_BYTES = 1024 * 1024
_LINE_BYTES = 64 * 1024 * 1024


class Outlet:
    """A nameless file that receives the standard output of a program and can be read meanwhile."""

    def __init__(self) -> None:
        with workspace_faults.waiting(tempfile.gettempdir()):
            file, path = tempfile.mkstemp(prefix="agent-")
            try:
                os.close(file)
                self.writing = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                """Descriptor for the program; the caller that runs it closes it."""
                self._reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            finally:
                # The system removes a nameless file with its last descriptor, even if this process is killed.
                os.unlink(path)
        self._seen_bytes = 0
        self._torn = b""

    def news(self) -> list[bytes]:
        """Return the lines that were completed since the last call."""
        content = os.pread(self._reading, _READ_BYTES, self._seen_bytes)
        self._seen_bytes += len(content)
        *lines, self._torn = (self._torn + content).split(b"\n")
        return lines

    def lines(self) -> Iterator[bytes]:
        """Yield every line in UTF-8, with its newline; a longer line than 64 MiB comes in parts."""
        with open(os.dup(self._reading), "rb") as read:
            read.seek(0)
            if results.encoding(read.peek(2)) != results.UTF_16:
                yield from iter(lambda: read.readline(_LINE_BYTES), b"")
                return
            with io.TextIOWrapper(read, results.UTF_16, errors="replace", newline="\n") as text:
                yield from (line.encode() for line in iter(lambda: text.readline(_LINE_BYTES), ""))

    def close(self) -> None:
        """Discard the output."""
        os.close(self._reading)
