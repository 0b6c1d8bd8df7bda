"""Places of programs: which file on this machine is the program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from app import errors
from app.agents.configuration import BackendConfig
from app.agents.programs.program import Program
from app.processes import commands, folders


def find(program: Program, config: BackendConfig, environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the program's file and leading arguments, by `agents.json`, its variable, its own installer, PATH.

    Raises:
        errors.AgentFailed: `agent_missing`, with what to install.
    """
    if config.command:
        return _configured(program, config, environ)
    variable = program.path_variable
    if variable is not None and (named := environ.get(variable)):
        if not _executable(Path(named)):
            raise _missing(program, f"{variable} names {named}, which is no program that can be executed")
        return (str(Path(named).absolute()),)
    for known in program.known_paths:
        if _executable(home / known):
            return (str(home / known),)
    for name in program.commands:
        if (found := _on_path(name, environ)) is not None:
            return (found,)
    raise _missing(program, "it is not installed here")


def entered(folder: Path) -> int:
    """Return the descriptor of the folder that a program works in.

    Raises:
        commands.NotStarted: `cwd_missing`; it is missing, or somebody has put a link in its place.
    """
    try:
        return folders.opened(folder)
    except OSError as error:
        message = f"The command's folder cannot be entered: {error.strerror}."
        raise commands.NotStarted(message, code="cwd_missing") from error


def _configured(program: Program, config: BackendConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    # What follows the program of a template is filled for each turn.
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
