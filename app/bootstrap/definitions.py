"""References: what runs are made from, recipes, tools and agents, before any store is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app import clock, errors, resources, settings
from app.agents import agent_files, backend_context, backends, configuration, roster
from app.bootstrap.platform import Platform
from app.domain import secret_spellings
from app.processes import concealment, supervisor
from app.services import definition_cache, prompts, recipe_versions, recipes, routing, starting
from app.services import workspaces as control_workspaces
from app.storage import agent_sessions
from app.tools import registry as tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """What runs are made from."""

    registry: tools.ToolRegistry
    """Tools."""
    definition_cache: definition_cache.DefinitionCache
    """Everything that recipes may refer to."""
    catalogue: recipes.Catalogue
    """Recipes."""
    route: Callable[[str], routing.RoutingResult]
    """Router."""
    workspaces: control_workspaces.Workspaces
    """Where runs may work."""
    starter: starting.Starter
    """Makes requests complete."""


def reference_of(chosen: settings.Settings, people: configuration.Roster, platform: Platform) -> Definitions:
    """Return what runs of a project are made from."""
    project = chosen.project

    def route(text: str) -> routing.RoutingResult:
        return routing.Router(catalogue.recipes()).route(text)

    registry = tools.bundled_tools(route)
    shelved = definition_cache.DefinitionCache(
        tools=registry.specs(),
        agents=people.agents,
        backends=backends.models(people.backends),
        prompt_folders=prompt_folders(project),
        clock=platform.clock,
    )
    unused = unused_backends(chosen, people)
    catalogue = recipes.Catalogue(
        layers=recipes.layers(resources.bundled("recipes"), project.data_directory, platform.dialects),
        dialects=platform.dialects,
        library=shelved.library,
        readiness=recipe_versions.Readiness(
            backend_lack=lambda name, continues: unused.lack(name, continues=continues),
            program_lack=recipe_versions.program_lack,
            default_backend=people.default_backend,
            clock=platform.clock,
        ),
        clock=platform.clock,
        is_cache_read=lambda: shelved.is_current,
    )
    allowed = control_workspaces.Workspaces(
        project=project.project, allowed_roots=project.allowed_roots, data_directory=project.data_directory
    )
    starter = starting.Starter(
        catalogue=catalogue,
        route=route,
        workspaces=allowed,
        clock=platform.clock,
        ids=platform.ids,
        rules=starting.StartRules(
            max_depth=chosen.pool.max_depth,
            inline_recipes=project.inline_recipes,
            backends=tuple(sorted(people.backends)),
            runs_folder=project.data_directory.absolute() / "runs",
        ),
    )
    return Definitions(
        registry=registry,
        definition_cache=shelved,
        catalogue=catalogue,
        route=route,
        workspaces=allowed,
        starter=starter,
    )


def roster_of(chosen: settings.Settings) -> configuration.Roster:
    """Return the agents and backends of a project, with the files that cannot be used."""
    own = chosen.project.data_directory / "agents.json"
    described = chosen.project.project / agent_files.FOLDER
    return roster.load([resources.bundled("recipes", "agents.json"), described, own])


def sound_roster(chosen: settings.Settings) -> configuration.Roster:
    """Return the agents and backends of a project.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = roster_of(chosen)
    refuse_broken(people)
    return people


def refuse_broken(people: configuration.Roster) -> None:
    """Refuse a roster of which a file cannot be used.

    Raises:
        errors.ConfigurationError: `agents_invalid`, with every flaw.
    """
    own = [broken for broken in people.broken if not broken.foreign]
    if own:
        files = ", ".join(str(broken.path) for broken in own)
        flaws = [flaw.to_json() for broken in own for flaw in broken.flaws]
        raise errors.ConfigurationError(f"{files} cannot be used", code="agents_invalid", detail={"flaws": flaws})


def prompt_folders(project: settings.ProjectSettings) -> tuple[Path, ...]:
    """Return where the prompts of a project lie."""
    return prompts.layers(resources.bundled("recipes"), project.home, project.data_directory)


def unused_backends(chosen: settings.Settings, people: configuration.Roster) -> backends.Backends:
    """Return backends that can be looked at; nothing is started or touched."""
    running = supervisor.Supervisor(chosen.project.data_directory / "processes", clock.RandomIds(), os.environ)
    around = surroundings_of(chosen, clock.SystemClock(), running, agent_sessions.MemoryAgentSessions())
    return backends.Backends(people.backends, around)


def keys_of(people: configuration.Roster) -> frozenset[str]:
    """Return the environment variables that hold keys of backends."""
    return people.secret_variables | backends.key_variables()


def secret_patterns(chosen: settings.Settings, people: configuration.Roster) -> list[str]:
    """Return the names of the environment variables that hold secrets, as patterns."""
    return [*chosen.telemetry.secret_names, *sorted(keys_of(people) | people.secret_patterns)]


def conceal(chosen: settings.Settings) -> None:
    """Keep the secrets of this process's environment from the processes of the same user."""
    own = (f"{settings.PREFIX}API_TOKEN", f"{settings.PREFIX}DATABASE_URL")
    secret = secret_spellings.named(os.environ, [*secret_patterns(chosen, roster_of(chosen)), *own])
    concealment.conceal(os.environ, secret | secret_spellings.with_passwords(os.environ))


def surroundings_of(
    chosen: settings.Settings,
    time: clock.Clock,
    running: supervisor.Supervisor,
    sessions: agent_sessions.StoredAgentSessions,
) -> backend_context.BackendContext:
    """Return what the backends of this process have around them."""
    return backend_context.BackendContext(
        clock=time,
        supervisor=running,
        sessions=sessions,
        environ=os.environ,
        secrets=chosen.processes.agent_secrets,
        home=Path.home(),
    )
