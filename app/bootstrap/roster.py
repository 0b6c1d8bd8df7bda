"""The roster: loads a project's agents, and finds the secrets of the environment."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app import errors, resources, settings
from app.agents import agent_files, backends, configuration, roster
from app.domain import plain, secret_spellings
from app.processes import concealment
from app.storage.disk import disk_health


def roster_of(config: settings.Settings) -> configuration.Roster:
    """Return the agents and backends of a project, including the files that cannot be used."""
    found = roster.load(_files_of(config))
    idle = config.processes.idle_seconds
    return dataclasses.replace(found, backends=backends.with_idle_seconds(found.backends, idle)) if idle else found


def configured_backends(config: settings.Settings) -> frozenset[str]:
    """Return the names of the backends that a project configures or chooses as its default."""
    bundled, *own = _files_of(config)
    usual, found = roster.load([bundled]).backends, roster.load([bundled, *own])
    configured = {name for name, backend in found.backends.items() if usual.get(name) != backend}
    return frozenset(configured | ({found.default_backend} if found.default_backend else set()))


def _files_of(config: settings.Settings) -> list[Path]:
    own = config.project.data_directory / "agents.json"
    return [resources.bundled("recipes", "agents.json"), config.project.project / agent_files.FOLDER, own]


def sound_roster(config: settings.Settings) -> configuration.Roster:
    """Return the agents and backends of a project.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = roster_of(config)
    refuse_broken(people)
    return people


def refuse_broken(people: configuration.Roster) -> None:
    """Refuse a roster with a file that cannot be used.

    Raises:
        errors.ConfigurationError: `agents_invalid`, with every flaw, and with `errno` if a file may be readable later.
    """
    # A file that cannot be read now may be readable in a moment; then the start is postponed and not refused.
    unread = [broken for broken in people.broken if broken.errno in disk_health.PASSING]
    own = unread or [broken for broken in people.broken if not broken.foreign]
    if own:
        files = ", ".join(str(broken.path) for broken in own)
        flaws = [flaw.to_json() for broken in own for flaw in broken.flaws]
        detail: dict[str, Any] = {"flaws": flaws}
        why = ""
        if unread:
            detail |= {"path": str(unread[0].path), "errno": unread[0].errno}
            why = f": {unread[0].errno}"
        raise errors.ConfigurationError(f"{files} cannot be used{why}", code="agents_invalid", detail=detail)


def keys_of(people: configuration.Roster) -> frozenset[str]:
    """Return the names of the environment variables that contain keys of backends."""
    return people.secret_variables | backends.key_variables()


def secret_patterns(config: settings.Settings, people: configuration.Roster) -> list[str]:
    """Return the names of the environment variables that contain secrets, as patterns."""
    return [*config.telemetry.secret_names, *sorted(keys_of(people) | people.secret_patterns)]


def conceal(config: settings.Settings) -> None:
    """Hide the secrets of this process's environment from processes of the same user."""
    people = roster_of(config)
    if people.broken:
        # Until the broken files can be read, any variable could be a secret of theirs.
        concealment.conceal(os.environ, frozenset(os.environ))
        return
    own = [settings.PREFIX + name for name in ("API_TOKEN", "DATABASE_URL", "STORE_URL")]
    secret = secret_spellings.named(os.environ, [*secret_patterns(config, people), *own])
    concealment.conceal(os.environ, secret | secret_spellings.with_passwords(os.environ))


def masker_of(config: settings.Settings, people: configuration.Roster, environ: Mapping[str, str]) -> plain.Masker:
    """Return a masker of the secrets in the environment and in the settings."""
    named = secret_spellings.named(environ, keys_of(people) | people.secret_patterns)
    found = {environ[name] for name in named} | secret_spellings.of_environment(environ, config.telemetry.secret_names)
    found.add(config.server.token or "")
    found |= {urlsplit(url or "").password or "" for url in (config.project.database_url, config.project.store_url)}
    return plain.Masker(found - {""})
