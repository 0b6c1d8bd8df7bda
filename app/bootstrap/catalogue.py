"""The catalogue: the recipes of a project, with the tools, agents and prompts that they may refer to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app import clock, resources, settings
from app.agents import backends, configuration
from app.engine import ports
from app.processes import supervisor
from app.services import definition_cache, prompts, recipe_files, recipe_versions, recipes
from app.storage import agent_sessions
from app.tools import registry as tools

if TYPE_CHECKING:
    from app.services import routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogued:
    """The recipes of a project, with their definitions."""

    registry: tools.ToolRegistry  # Registry of tools.
    definition_cache: definition_cache.DefinitionCache  # Definitions to which recipes may refer.
    catalogue: recipes.Catalogue  # The recipes.
    route: Callable[[str], routing.RoutingResult]  # Chooses the recipe for a description.


def catalogue_of(
    config: settings.Settings,
    people: configuration.Roster,
    time: clock.Clock,
    dialects: Mapping[str, ports.Dialect],
    *,
    elsewhere: bool = False,
) -> Catalogued:
    """Return the recipes of a project, with their definitions.

    Args:
        elsewhere: Whether other machines perform the steps, so that programs that are missing here do not prevent runs.
    """
    project = config.project

    def route(text: str) -> routing.RoutingResult:
        from app.services import routing

        return routing.Router(catalogue.recipes()).route(text)

    registry = tools.bundled_tools(route)
    cache = definition_cache.DefinitionCache(
        tools=registry.specs,
        agents=people.agents,
        backends=backends.models(people.backends),
        prompt_folders=prompt_folders(project),
        clock=time,
    )
    unused = unused_backends(config, people)
    catalogue = recipes.Catalogue(
        layers=recipe_layers(resources.bundled("recipes"), project.data_directory, dialects),
        dialects=dialects,
        library=cache.library,
        # A recipe that needs a program or backend of another machine can still be started here.
        readiness=recipe_versions.Readiness(
            backend_lack=lambda name, continues, model: unused.lack(
                name, continues=continues, elsewhere=elsewhere, model=model
            ),
            program_lack=(lambda program: None) if elsewhere else recipe_versions.program_lack,
            default_backend=people.default_backend,
            clock=time,
        ),
        clock=time,
        is_current=cache.is_current,
        watched=cache.watched,
    )
    return Catalogued(registry=registry, definition_cache=cache, catalogue=catalogue, route=route)


def recipe_layers(
    bundled: Path, data_directory: Path, dialects: Iterable[str]
) -> tuple[recipe_files.Layer, recipe_files.Layer]:
    """Return the two layers of recipes of a project, the bundled one first.

    Args:
        bundled: Folder of the bundled recipes, with one folder per dialect.
        data_directory: `.control-room` of the project.
    """
    names = tuple(dialects)
    own = data_directory / "recipes"
    return (
        recipe_files.Layer(name=recipes.BUNDLED, folders=_by_dialect(bundled, names), fixed=True),
        recipe_files.Layer(
            name="project",
            folders=(recipe_files.Folder(dialect=recipes.PROJECT_DIALECT, path=own), *_by_dialect(own, names)),
        ),
    )


def _by_dialect(root: Path, dialects: Iterable[str]) -> tuple[recipe_files.Folder, ...]:
    return tuple(recipe_files.Folder(dialect=name, path=root / name) for name in dialects)


def prompt_folders(project: settings.ProjectSettings) -> tuple[Path, ...]:
    """Return the folders that contain the prompts of a project."""
    return prompts.layers(resources.bundled("recipes"), project.home, project.data_directory)


def unused_backends(config: settings.Settings, people: configuration.Roster) -> backends.Backends:
    """Return backends that can be examined; none is started or changed."""
    running = supervisor.Supervisor(config.project.data_directory / "processes", clock.RandomIds(), os.environ)
    context = backend_context_of(config, clock.SystemClock(), running, agent_sessions.MemoryAgentSessions())
    return backends.Backends(people.backends, context)


def backend_context_of(
    config: settings.Settings,
    time: clock.Clock,
    running: supervisor.Supervisor,
    sessions: agent_sessions.StoredAgentSessions,
) -> configuration.BackendContext:
    """Return the context of this process's backends."""
    return configuration.BackendContext(
        clock=time,
        supervisor=running,
        sessions=sessions,
        environ=os.environ,
        secrets=config.processes.agent_secrets,
        home=settings.user_home(),
    )
