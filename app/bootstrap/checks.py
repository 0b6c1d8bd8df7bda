"""Checks: examine what keeps a project from working here, without starting or changing anything."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any

from app import clock, errors, settings
from app.bootstrap import spending
from app.bootstrap.catalogue import prompt_folders, unused_backends
from app.bootstrap.definitions import Definitions, definitions_of
from app.bootstrap.platform import directory_of, real_platform
from app.bootstrap.roster import refuse_broken, roster_of, sound_roster
from app.domain import library
from app.processes import containment
from app.services import prompts
from app.storage import data_directory, keys, layout, store_mark
from app.storage.disk import disk_health, os_disk
from app.storage.objects import mark


def examine(config: settings.Settings) -> list[settings.Remark]:
    """Return errors and warnings about agents, prompts and recipes, without starting or changing anything."""
    people = roster_of(config)
    definitions = definitions_of(config, people, real_platform({}))
    broken = [(file, flaw) for file in people.broken for flaw in file.flaws]
    remarks = [_remark(file.path, flaw, fatal=not file.foreign) for file, flaw in broken]
    remarks += [_remark(fault.file, fault.flaw) for fault in prompts.load(prompt_folders(config.project)).flaws]
    remarks += [_remark(entry.path, flaw) for entry in definitions.catalogue.all() for flaw in entry.flaws]
    remarks += _lack_of_containment(config) + _lack_of_a_folder(config.project.data_directory)
    remarks += _faults_of_files(config, definitions)
    speaking = {agent.backend for agent in people.agents}
    # Backends that no agent uses may lack anything.
    lacking = [(name, lack) for name, lack in unused_backends(config, people).check() if name in speaking]
    return remarks + [settings.Remark(setting=f"backend {name}", message=lack, fatal=False) for name, lack in lacking]


def examine_agents(config: settings.Settings) -> list[dict[str, Any]]:
    """Return the agents, each with the reason why it does not work here in `problem`; none is started.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = sound_roster(config)
    unused = unused_backends(config, people)
    asked = {agent.id: (agent.backend, agent.model or library.USUAL_MODEL) for agent in people.agents}
    lacking = {each: unused.lack(each[0], model=each[1]) for each in {*asked.values()}}
    return [agent.to_json() | {"problem": lacking[asked[agent.id]]} for agent in people.agents]


def outdated_service(config: settings.Settings) -> str | None:
    """Return the remark that the project's service has not read the last change of `agents.json`; None if it has."""
    with contextlib.suppress(OSError, ValueError, errors.ConfigurationError):
        service = directory_of(config.project, real_platform({})).service() or {}
        changed = (config.project.data_directory / "agents.json").stat().st_mtime
        if service.get("url") and service["since"] and changed > clock.instant(service["since"]).timestamp():
            return f"the service at {service['url']} reads agents.json only when it starts: restart it for the changes"
    return None


def examine_backends(config: settings.Settings) -> list[dict[str, Any]]:
    """Return the backends, each with its type, and the reason why it does not work here in `problem`; none is started.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = sound_roster(config)
    lacking = dict(unused_backends(config, people).check())
    return [
        {"name": name, "type": backend.type, "problem": lacking.get(name)}
        for name, backend in sorted(people.backends.items())
    ]


def agents(config: settings.Settings) -> list[str]:
    """Return the ids of all agents.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    return [agent.id for agent in sound_roster(config).agents]


def backend_names(config: settings.Settings) -> list[str]:
    """Return the names of all backends.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    return sorted(sound_roster(config).backends)


def default_backend(config: settings.Settings) -> str | None:
    """Return the backend that the project uses by default; None if it sets none.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    return sound_roster(config).default_backend


def speak_locally(config: settings.Settings) -> bool:
    """Return whether all agents of the project use the local model."""
    people = roster_of(config)
    kinds = {people.backends[agent.backend].type for agent in people.agents if agent.backend in people.backends}
    return kinds == {"local"}


def examine_backend(config: settings.Settings, name: str) -> str | None:
    """Return the reason why a backend does not work here, None if it works; it is not started.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = roster_of(config)
    refuse_broken(people)
    unused = unused_backends(config, people)
    try:
        unused.get(name)
    except (errors.AgentFailed, errors.ConfigurationError) as error:
        return error.message
    return dict(unused.check()).get(name)


def _faults_of_files(config: settings.Settings, definitions: Definitions) -> list[settings.Remark]:
    """Return the files of the data directory that a start would refuse, or whose content it would not use."""
    project, platform = config.project, real_platform({})
    directory = directory_of(project, platform)
    ring = keys.KeyRing(layout.common_folder(project.data_directory, project.store_url), platform.clock)
    remarks = []
    for check in (directory.read_identity, functools.partial(_refuse_store, project, directory), ring.check):
        try:
            check()
        except errors.ConfigurationError as error:
            # A fault that may pass only puts the start off.
            fatal = error.detail.get("errno") not in disk_health.PASSING
            remarks.append(settings.Remark(setting=str(directory.path), message=error.message, fatal=fatal))
    # In a database these are copies, which a start replaces before it reads them.
    for name, fault in [] if project.store_url else spending.examine(project, definitions.terms):
        fatal = isinstance(fault, errors.Conflict) and name != spending.PRICES
        remarks.append(settings.Remark(setting=str(directory.path / name), message=fault.message, fatal=fatal))
    return remarks


def _refuse_store(project: settings.ProjectSettings, directory: data_directory.DataDirectory) -> None:
    if project.store_url:
        store_mark.refuse_folders(directory)
        return
    store_mark.refuse_database(directory)
    if project.blobs_url is None:
        mark.opened(os_disk.OsDisk(directory.path), mark.Target(url=None), "")


def _lack_of_a_folder(data_directory: Path) -> list[settings.Remark]:
    there = next(path for path in (data_directory, *data_directory.parents) if os.path.exists(path))
    # The permissions of a private folder are the user's own choice.
    if not there.is_dir():
        problem = "is not a folder"
    elif there != data_directory and not os.access(there, os.W_OK | os.X_OK):
        problem = "cannot be written"
    elif disk_health.is_full(there):
        problem = "has no space left on its disk"
    else:
        return []
    return [settings.Remark(setting=f"{settings.PREFIX}DATA_DIRECTORY", message=f"{there} {problem}", fatal=True)]


def _lack_of_containment(config: settings.Settings) -> list[settings.Remark]:
    wanted = config.processes.containment
    found = containment.examine(wanted)
    if found.containment != "guard" or wanted == "guard":
        return []
    message = f"there are no namespaces for agents here ({found.reason}); "
    message += "the guard alone keeps them together" if wanted == "auto" else "no agent that is a program can run"
    return [settings.Remark(setting=f"{settings.PREFIX}CONTAINMENT", message=message, fatal=wanted != "auto")]


def _remark(file: Path | str, flaw: errors.Flaw, *, fatal: bool = False) -> settings.Remark:
    place = flaw.path if flaw.line is None else f"{flaw.path} (line {flaw.line})"
    return settings.Remark(setting=str(file), message=f"{place}: {flaw.message}", fatal=fatal)
