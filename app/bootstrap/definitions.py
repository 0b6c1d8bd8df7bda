"""Definitions: the recipes, tools, agents and rules from which runs are made, before a store is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app import settings
from app.agents import configuration
from app.bootstrap import spending
from app.bootstrap.catalogue import catalogue_of
from app.bootstrap.platform import Platform
from app.domain import keys
from app.services import definition_cache, faults, recipes, routing, starting, workspaces
from app.storage import keys as key_files
from app.storage import layout
from app.tools import registry as tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """The parts from which runs are made."""

    registry: tools.ToolRegistry  # Registry of tools.
    definition_cache: definition_cache.DefinitionCache  # Definitions to which recipes may refer.
    catalogue: recipes.Catalogue  # The recipes.
    route: Callable[[str], routing.RoutingResult]  # Chooses the recipe for a description.
    workspaces: workspaces.Workspaces  # Folders in which runs may work.
    starter: starting.Starter  # Completes start requests.
    terms: spending.Terms  # Prices and policies of calls and runs.


def definitions_of(config: settings.Settings, people: configuration.Roster, platform: Platform) -> Definitions:
    """Return the parts from which runs of a project are made."""
    project = config.project
    found = catalogue_of(config, people, platform.clock, platform.dialects, elsewhere=platform.elsewhere)
    allowed = workspaces.Workspaces(
        project=project.project, allowed_roots=project.allowed_roots, data_directory=project.data_directory
    )
    terms = spending.terms_of(project, people.backends, platform)
    starter = starting.Starter(
        catalogue=found.catalogue,
        route=found.route,
        workspaces=allowed,
        clock=platform.clock,
        ids=platform.ids,
        rules=starting.StartRules(
            max_depth=config.pool.max_depth,
            inline_recipes=project.inline_recipes,
            backends=tuple(sorted(people.backends)),
            runs_folder=project.data_directory.absolute() / "runs",
            worst_call=terms.pricing.worst,
            policies=terms.policies,
            approvers=lambda: _approvers(project, platform),
        ),
    )
    return Definitions(
        registry=found.registry,
        definition_cache=found.definition_cache,
        catalogue=found.catalogue,
        route=found.route,
        workspaces=allowed,
        starter=starter,
        terms=terms,
    )


def _approvers(project: settings.ProjectSettings, platform: Platform) -> list[keys.Key]:
    folder = layout.common_folder(project.data_directory, project.store_url)
    with faults.of_file(key_files.FILE):
        return key_files.KeyRing(folder, platform.clock).approvers()
