"""
The composition root: the only place where concrete classes meet. Nothing is built at import.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from app import clock, errors, resources, settings, telemetry
from app.agents import backends, configuration, roster, surroundings
from app.agents import performer as agent_performer
from app.control import (
    adoption,
    beginnings,
    children,
    health,
    inventory,
    joining,
    prompts,
    recipes,
    routing,
    runs,
    shelf,
    starting,
)
from app.control import talks as control_talks
from app.control import workspaces as control_workspaces
from app.dialects import registry as dialects
from app.engine import conversations, operations, plain, ports, probes, refusals, runner
from app.execution import crash_probes, measured
from app.execution.embedded import pool
from app.processes import allowance, containment, supervisor
from app.storage import agent_sessions, directory, disk_store, memory, opener, store
from app.storage.sql import index
from app.tools import checks, commands, issue_performer
from app.tools import performer as tool_performer
from app.tools import registry as tools
from app.tools import workspaces as tool_workspaces

Store: TypeAlias = disk_store.DiskStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """
    What a process wants of a project.
    """

    address: str | None = None
    """Where the process serves the project: it holds the service's lock and continues unfinished runs."""
    alone: bool = False
    """Whether it holds that lock without serving, so that no service meddles."""
    look_only: bool = False
    """Whether it changes nothing; a data directory that does not exist is not made then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """
    Everything that the faces of a project are served from.
    """

    runs: runs.Runs
    """Use cases of runs."""
    talks: control_talks.Talks
    """Use cases of those who speak with agents from message to message."""
    starter: starting.Starter
    """Makes requests complete; for dry runs."""
    catalogue: recipes.Catalogue
    """Recipes."""
    route: Callable[[str], routing.RoutingResult]
    """Router."""
    inventory: inventory.Inventory
    """Tools and agents."""
    health: health.Health
    """Readiness."""
    metrics: telemetry.Metrics
    """Counts and measures."""
    masker: plain.Masker
    """Hides secrets."""
    store: Store
    """Run folders; a memory where a reader found no data directory."""
    conversations: conversations.Conversations
    """Who may speak in which conversation with an agent."""
    engine: pool.Pool
    """Worker pool."""


def _in_folders(kept: directory.DataDirectory, url: str, world: World, adopt: opener.Adopt) -> Store:
    return store.FolderStore(kept, index.SqlIndex(url), clock=world.clock, probes=world.probes, adopt=adopt)


def _unwatched(performer: ports.Performer) -> ports.Performer:
    return performer


def _registered() -> Mapping[str, ports.Dialect]:
    return dialects.DIALECTS


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """
    What the machine gives, and a test may replace.
    """

    ids: clock.Ids
    """Identifiers."""
    clock: clock.Clock
    """Time."""
    probes: probes.Probes
    """Named points."""
    make_store: Callable[[directory.DataDirectory, str, World, opener.Adopt], Store] = _in_folders
    """Makes the run store of a data directory, with the address of its index database."""
    watch: Callable[[ports.Performer], ports.Performer] = _unwatched
    """Puts something around each performer that reaches outside."""
    dialects: Mapping[str, ports.Dialect] = field(default_factory=_registered)
    """Languages of recipes by name."""
    performers: Mapping[str, ports.Performer] = field(default_factory=dict)
    """Further performers by kind of operation."""

    @property
    def drivers(self) -> Mapping[str, ports.Dialect]:
        """
        Return whatever executes runs: the languages, and what no recipe file is written for.
        """
        return {**dialects.DRIVERS, **self.dialects}


@asynccontextmanager
async def build(chosen: settings.Settings, use: Use = Use(), world: World | None = None) -> AsyncIterator[Room]:
    """
    Put a project's room together, and take it apart in the reverse order.

    Raises:
        errors.ConfigurationError: `agents.json` or the data directory cannot be used.
    """
    world = world or real_world(os.environ)
    people = _roster(chosen)
    if not use.look_only:
        _refuse_broken(people)
    reference = _reference(chosen, people, world)
    async with AsyncExitStack() as closing:
        kept = await _store(closing, chosen, use, world, reference)
        running = await _supervisor(closing, chosen, use, world)
        sessions = _agent_sessions(closing, chosen, use)
        speaking = backends.Backends(people.backends, _surroundings(world.clock, running, sessions))
        closing.push_async_callback(speaking.close)
        talks = conversations.Conversations(sessions, kept, world.drivers)
        asking = agent_performer.AgentPerformer(speaking, talks)
        equipment = _equipment(chosen, people, world, reference, asking, running, kept)
        room = _room(chosen, world, reference, equipment, kept, talks, sessions)
        closing.push_async_callback(room.engine.stop)
        room.engine.start(recover=use.address is not None)
        yield room


def real_world(environ: Mapping[str, str]) -> World:
    """
    Return the machine's own clock and chance.

    `CONTROL_ROOM_CRASH_AT=point:N`, for crash tests only, makes the process kill itself with SIGKILL at the Nth passing
    of a probe.

    Raises:
        errors.ConfigurationError: that variable has the wrong form.
    """
    points: probes.Probes = probes.NoProbes()
    if wanted := environ.get(settings.CRASH_AT):
        try:
            points = crash_probes.parse(wanted)
        except ValueError as error:
            raise errors.ConfigurationError(f"{settings.CRASH_AT}: {error}") from error
    return World(clock=clock.SystemClock(), ids=clock.RandomIds(), probes=points)


def prepare_project(project: settings.ProjectSettings) -> Path:
    """
    Make the data directory of a project, with folders for its own recipes and prompts; return it.

    Raises:
        errors.ConfigurationError: it cannot be made.
    """
    kept = _directory(project, real_world(os.environ))
    kept.prepare()
    for folder in ("recipes", "prompts/templates"):
        (project.data_directory / folder).mkdir(parents=True, exist_ok=True)
    return project.data_directory.resolve()


def examine(chosen: settings.Settings) -> list[settings.Remark]:
    """
    Return what is wrong or doubtful about agents, prompts and recipes; nothing is started or changed.
    """
    people = _roster(chosen)
    reference = _reference(chosen, people, real_world({}))
    remarks = [_remark(broken.path, flaw, fatal=True) for broken in people.broken for flaw in broken.flaws]
    remarks += [_remark(fault.file, fault.flaw) for fault in prompts.load(_prompt_folders(chosen.project)).flaws]
    remarks += [_remark(entry.path, flaw) for entry in reference.catalogue.all() for flaw in entry.flaws]
    lacking = _unused_backends(chosen, people).check()
    remarks += _lack_of_containment(chosen)
    return remarks + [settings.Remark(setting=f"backend {name}", message=lack, fatal=False) for name, lack in lacking]


def examine_agents(chosen: settings.Settings) -> list[dict[str, Any]]:
    """
    Return the agents, each with what keeps it from working here in `problem`; nothing is started.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = _sound_roster(chosen)
    lacking = dict(_unused_backends(chosen, people).check())
    return [agent.to_json() | {"problem": lacking.get(agent.backend)} for agent in people.agents]


def agents(chosen: settings.Settings) -> list[str]:
    """
    Return the ids of all agents.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    return [agent.id for agent in _sound_roster(chosen).agents]


def backend_names(chosen: settings.Settings) -> list[str]:
    """
    Return the names of all backends.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    return sorted(_sound_roster(chosen).backends)


def examine_backend(chosen: settings.Settings, name: str) -> str | None:
    """
    Return what keeps a backend from working here, None if nothing does; nothing is started.

    Raises:
        errors.ConfigurationError: `agents.json` cannot be used.
    """
    people = _roster(chosen)
    _refuse_broken(people)
    unused = _unused_backends(chosen, people)
    try:
        unused.get(name)
    except (errors.AgentFailed, errors.ConfigurationError) as error:
        return error.message
    return dict(unused.check()).get(name)


async def rebuild_index(chosen: settings.Settings) -> dict[str, Any]:
    """
    Make the index anew from the run folders.

    Raises:
        errors.ConfigurationError: a service holds the data directory, or it cannot be used.
    """
    async with build(chosen, Use(alone=True)) as room:
        return await room.store.rebuild_index()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    registry: tools.ToolRegistry
    shelf: shelf.Shelf
    catalogue: recipes.Catalogue
    route: Callable[[str], routing.RoutingResult]
    workspaces: control_workspaces.Workspaces
    starter: starting.Starter


def _reference(chosen: settings.Settings, people: configuration.Roster, world: World) -> _Reference:
    project = chosen.project

    def route(text: str) -> routing.RoutingResult:
        return routing.Router(catalogue.recipes()).route(text)

    registry = tools.bundled_tools(route)
    shelved = shelf.Shelf(
        tools=registry.specs(), agents=people.agents, prompt_folders=_prompt_folders(project), clock=world.clock
    )
    catalogue = recipes.Catalogue(
        layers=recipes.layers(resources.bundled("recipes"), project.data_directory, world.dialects),
        dialects=world.dialects,
        library=shelved.library,
        clock=world.clock,
    )
    allowed = control_workspaces.Workspaces(
        project=project.project, allowed_roots=project.allowed_roots, data_directory=project.data_directory
    )
    starter = starting.Starter(
        catalogue=catalogue,
        route=route,
        workspaces=allowed,
        clock=world.clock,
        ids=world.ids,
        rules=starting.StartRules(
            max_depth=chosen.pool.max_depth,
            inline_recipes=project.inline_recipes,
            backends=tuple(sorted(people.backends)),
        ),
    )
    return _Reference(
        registry=registry, shelf=shelved, catalogue=catalogue, route=route, workspaces=allowed, starter=starter
    )


async def _store(
    closing: AsyncExitStack, chosen: settings.Settings, use: Use, world: World, reference: _Reference
) -> Store:
    adopter = adoption.Adopter(
        catalogue=reference.catalogue,
        workspaces=reference.workspaces,
        clock=world.clock,
    )
    if use.look_only and not (chosen.project.data_directory / "runs").is_dir():
        nothing = memory.MemoryStore(clock=world.clock)
        await closing.enter_async_context(nothing)
        return nothing
    kept = _directory(chosen.project, world)
    if not use.look_only:
        kept.prepare()
    if use.address is not None or use.alone:
        lock = kept.lock_service()
        closing.callback(lock.release)
        if use.address is not None:
            lock.announce(use.address)
    opened = world.make_store(kept, chosen.project.database_url or kept.index_url(), world, adopter.adopt)
    closing.push_async_callback(opened.close)
    await opened.start(serve=use.address is not None)
    return opened


async def _supervisor(
    closing: AsyncExitStack, chosen: settings.Settings, use: Use, world: World
) -> supervisor.Supervisor:
    usual_files = closing.enter_context(allowance.many_files()) if use.address is not None else None
    folder = chosen.project.data_directory / "processes"
    running = supervisor.Supervisor(folder, world.ids, os.environ, usual_files, chosen.processes.containment)
    closing.push_async_callback(running.close)
    if not use.look_only:
        await running.sweep()
    return running


def _agent_sessions(closing: AsyncExitStack, chosen: settings.Settings, use: Use) -> agent_sessions.StoredAgentSessions:
    if use.look_only:
        return agent_sessions.MemoryAgentSessions()
    sessions = agent_sessions.in_folder(chosen.project.data_directory)
    closing.callback(sessions.close)
    return sessions


def _surroundings(
    time: clock.Clock, running: supervisor.Supervisor, sessions: agent_sessions.StoredAgentSessions
) -> surroundings.Surroundings:
    return surroundings.Surroundings(
        clock=time, supervisor=running, sessions=sessions, environ=os.environ, home=Path.home()
    )


def _unused_backends(chosen: settings.Settings, people: configuration.Roster) -> backends.Backends:
    """
    Return backends that can be looked at; nothing is started or touched.
    """
    running = supervisor.Supervisor(chosen.project.data_directory / "processes", clock.RandomIds(), os.environ)
    around = _surroundings(clock.SystemClock(), running, agent_sessions.MemoryAgentSessions())
    return backends.Backends(people.backends, around)


def _equipment(
    chosen: settings.Settings,
    people: configuration.Roster,
    world: World,
    reference: _Reference,
    asking: agent_performer.AgentPerformer,
    running: supervisor.Supervisor,
    kept: Store,
) -> runner.Equipment:
    project = chosen.project
    secrets = _secrets(chosen, people, os.environ)
    places = tool_workspaces.Workspaces([project.project, *project.allowed_roots])
    performers: dict[str, ports.Performer] = {
        operations.ToolCall.kind: tool_performer.ToolPerformer(reference.registry, places),
        operations.AgentCall.kind: asking,
        operations.Command.kind: commands.CommandPerformer(running, places, os.environ, secrets),
        operations.Check.kind: checks.CheckPerformer(places),
        operations.CommitFile.kind: checks.CommitFilePerformer(places),
        operations.OpenIssue.kind: issue_performer.IssuePerformer(kept.put_issue, world.clock),
        operations.Refusal.kind: refusals.RefusalPerformer(),
        **world.performers,
    }
    return runner.Equipment(
        performers=performers,
        clock=world.clock,
        masker=plain.Masker(secrets),
        probes=world.probes,
    )


def _room(
    chosen: settings.Settings,
    world: World,
    reference: _Reference,
    equipment: runner.Equipment,
    kept: Store,
    talks: conversations.Conversations,
    sessions: agent_sessions.StoredAgentSessions,
) -> Room:
    metrics, begun = telemetry.Metrics(), beginnings.Beginnings()

    async def start_child(call: ports.Call) -> str:
        return await offspring.start(call)

    measuring: dict[str, ports.Performer] = {
        name: measured.Measured(world.watch(each), metrics, world.clock) for name, each in equipment.performers.items()
    }
    engine = pool.Pool(
        store=kept,
        dialects=world.drivers,
        equipment=dataclasses.replace(equipment, performers=measuring),
        start_child=start_child,
        limit=chosen.pool.max_running,
        stop_grace_seconds=chosen.pool.stop_grace_seconds,
    )
    use_cases = runs.Runs(
        store=kept,
        engine=engine,
        starter=reference.starter,
        joining=joining.Joining(kept, engine, talks),
        dialects=world.drivers,
        clock=world.clock,
        beginnings=begun,
    )
    offspring = children.Children(runs=use_cases, engine=engine)
    return Room(
        runs=use_cases,
        talks=_talks(use_cases, kept, sessions, reference, begun, world),
        starter=reference.starter,
        catalogue=reference.catalogue,
        route=reference.route,
        inventory=inventory.Inventory(library=reference.shelf.library, store=kept, engine=engine),
        health=health.Health(store=kept, engine=engine),
        metrics=metrics,
        masker=equipment.masker,
        store=kept,
        conversations=talks,
        engine=engine,
    )


def _talks(
    use_cases: runs.Runs,
    kept: Store,
    sessions: agent_sessions.StoredAgentSessions,
    reference: _Reference,
    begun: beginnings.Beginnings,
    world: World,
) -> control_talks.Talks:
    return control_talks.Talks(
        runs=use_cases,
        store=kept,
        sessions=sessions,
        catalogue=reference.catalogue,
        beginnings=begun,
        ids=world.ids,
    )


def _roster(chosen: settings.Settings) -> configuration.Roster:
    own = chosen.project.data_directory / "agents.json"
    return roster.load([resources.bundled("recipes", "agents.json"), own])


def _sound_roster(chosen: settings.Settings) -> configuration.Roster:
    people = _roster(chosen)
    _refuse_broken(people)
    return people


def _refuse_broken(people: configuration.Roster) -> None:
    if people.broken:
        files = ", ".join(str(broken.path) for broken in people.broken)
        flaws = [flaw.to_json() for broken in people.broken for flaw in broken.flaws]
        raise errors.ConfigurationError(f"{files} cannot be used", code="agents_invalid", detail={"flaws": flaws})


def _prompt_folders(project: settings.ProjectSettings) -> tuple[Path, ...]:
    return prompts.layers(resources.bundled("recipes"), project.home, project.data_directory)


def _directory(project: settings.ProjectSettings, world: World) -> directory.DataDirectory:
    return directory.DataDirectory(project.data_directory, clock=world.clock, ids=world.ids)


def _secrets(chosen: settings.Settings, people: configuration.Roster, environ: Mapping[str, str]) -> set[str]:
    found = {environ.get(name, "") for name in people.secret_variables}
    found.add(chosen.server.api_token or "")
    found.add(urlsplit(chosen.project.database_url or "").password or "")
    return found - {""}


def _lack_of_containment(chosen: settings.Settings) -> list[settings.Remark]:
    wanted = chosen.processes.containment
    found = containment.examine(wanted)
    if found.containment != "guard" or wanted == "guard":
        return []
    message = f"there are no namespaces for agents here ({found.reason}); "
    message += "the guard alone keeps them together" if wanted == "auto" else "no agent that is a program can run"
    return [settings.Remark(setting=f"{settings.PREFIX}CONTAINMENT", message=message, fatal=wanted != "auto")]


def _remark(file: Path | str, flaw: errors.Flaw, *, fatal: bool = False) -> settings.Remark:
    place = flaw.path if flaw.line is None else f"{flaw.path} (line {flaw.line})"
    return settings.Remark(setting=str(file), message=f"{place}: {flaw.message}", fatal=fatal)
