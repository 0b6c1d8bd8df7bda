"""The container: builds the application of a project, and closes it again."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from app import settings, telemetry
from app.agents import backends, configuration
from app.agents import performer as agent_performer
from app.bootstrap import leading, spending, temporal
from app.bootstrap.catalogue import backend_context_of
from app.bootstrap.definitions import Definitions, definitions_of
from app.bootstrap.engines import Engine, EngineParts, Store, workspace_lock
from app.bootstrap.plans import PlanPerformers, planning_of
from app.bootstrap.platform import OpenMode, Platform, directory_of, engine_of, real_platform, sessions_of, store_of
from app.bootstrap.roster import keys_of, masker_of, refuse_broken, roster_of, secret_patterns
from app.bootstrap.unattended import Unattended, unattended_of
from app.bootstrap.use_cases import (
    api_keys_of,
    conversation_service_of,
    explanations_of,
    gates_of,
    inventory_of,
    issues_of,
    statistics_of,
)
from app.dialects import registry as dialects
from app.domain import capabilities, file_operations, operations, plain
from app.engine import aio, conversation_claims, ports, refusal_performers, run_equipment
from app.processes import environments, supervisor
from app.services import (
    adoption,
    budgets,
    conferences,
    conversation_binding,
    explanations,
    gates,
    health,
    inventory,
    issues,
    keys,
    maintenance,
    recipes,
    routing,
    runs,
    starting,
    statistics,
)
from app.services import conversations as conversation_services
from app.services.plans import planner, plans
from app.storage import agent_sessions, conversation_retention, memory_store
from app.storage.disk import disk_health
from app.tools import checks, commands, file_performers, issue_performer, moves, tool_performer
from app.tools import workspace as tool_workspaces

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The application, as the HTTP interface and the command line use it."""

    runs: runs.Runs  # Use cases of runs.
    gates: gates.Gates  # Use cases of gates.
    commands: supervisor.Supervisor  # Runs the programs that runs of this process start.
    explanations: explanations.Explanations  # Explains why runs do not move.
    statistics: statistics.Statistics  # Counts and sums over all runs.
    budgets: budgets.Budgets  # Use cases of budgets.
    issues: issues.Issues  # Use cases of issues.
    conversation_service: conversation_services.ConversationService  # Use cases of conversations with agents.
    plans: plans.Plans  # Use cases of session plans.
    planner: planner.Planner  # Loads the runs of session plans when they have something to do.
    conferences: conferences.Conferences  # Use cases of conferences.
    unattended: Unattended  # Triggers, notifications and retention.
    starter: starting.Starter  # Completes start requests; also for dry runs.
    catalogue: recipes.Catalogue  # The recipes.
    route: Callable[[str], routing.RoutingResult]  # Chooses the recipe for a description.
    inventory: inventory.Inventory  # Shows tools and agents.
    health: health.Health  # Readiness of the service.
    metrics: telemetry.Metrics  # Counters and histograms.
    masker: plain.Masker  # Masks secrets.
    maintenance: maintenance.Maintenance  # Use cases of verification and repair.
    keys: keys.Keys  # API keys.
    store: Store  # Run folders; an empty store in memory if a reader found no data directory.
    conversations: conversation_claims.ConversationClaims  # Claims on conversations with agents.
    engine: Engine  # Executes runs.


_READ_WRITE = OpenMode()


@asynccontextmanager
async def build(
    config: settings.Settings, mode: OpenMode = _READ_WRITE, platform: Platform | None = None
) -> AsyncIterator[Application]:
    """Build the application of a project, and close its parts in reverse order.

    Raises:
        errors.ConfigurationError: `agents.json` or the data directory cannot be used.
    """
    config = engine_of(config, mode)
    platform = await temporal.connected(platform or real_platform(os.environ), config, mode)
    agents = roster_of(config)
    if not mode.look_only:
        refuse_broken(agents)
    definitions = definitions_of(config, agents, platform)
    async with AsyncExitStack() as closing:
        # Closed in reverse order: planner, engine, backends, processes, and the store last. Its lock keeps other
        # services out until no part of this one works any more.
        store = await _store(closing, config, mode, platform, definitions)
        spending.share(definitions.terms, config.project, store)
        processes = await _supervisor(closing, config, agents, mode, platform)
        sessions = _agent_sessions(closing, config, mode, store)
        context = backend_context_of(config, platform.clock, processes, sessions)
        pauses = spending.pauses_of(config.project, store, platform)
        context = dataclasses.replace(context, pauses=pauses, rates=store.shared_rates)
        agent_backends = backends.Backends(agents.backends, context)
        closing.push_async_callback(agent_backends.close)
        claims = conversation_claims.ConversationClaims(sessions, store, platform.drivers)
        roots = [config.project.project, *config.project.allowed_roots]
        workspaces = tool_workspaces.Workspaces(roots, definitions.workspaces.reserved)
        performer = agent_performer.AgentPerformer(agent_backends, claims, workspaces.check, definitions.terms.pricing)
        equipment = _equipment(config, agents, platform, workspaces, definitions, performer, processes, store)
        equipment = dataclasses.replace(
            equipment,
            spending=spending.ledger_of(store, definitions.terms.pricing, platform.clock),
            services=agent_backends.services,
            capabilities=functools.partial(_capabilities, agent_backends),
        )
        application = _application(config, platform, definitions, equipment, store, claims, sessions, processes)
        closing.push_async_callback(application.engine.stop)
        serves = mode.address is not None
        # Before the engine starts: a recovered run must not spend amounts that its budget does not have any more.
        await spending.put_in_force(application.budgets, definitions.terms)
        application.engine.start(recover=serves, lock=workspace_lock(config.project.data_directory) if serves else None)
        if mode.alone or serves or mode.works:
            closing.push_async_callback(application.planner.stop)
            application.planner.start(recover=serves)
        if serves or mode.works:
            spending.follow(application.budgets, closing, sends_on=serves)
        if serves:
            leading.lead(store, application.unattended, closing)
        if serves and config.project.keep_conversations_days:
            age = timedelta(days=config.project.keep_conversations_days)
            sweeping = asyncio.create_task(conversation_retention.sweep(sessions, store, platform.clock.now() - age))
            closing.push_async_callback(aio.end, sweeping)
        yield application


def prepare_project(project: settings.ProjectSettings) -> Path:
    """Create the data directory of a project, with folders for recipes and prompts, and return its path.

    Raises:
        errors.ConfigurationError: it cannot be created.
    """
    directory_of(project, real_platform(os.environ)).prepare()
    names = [f"recipes/{name}" for name in dialects.DIALECTS if name != recipes.PROJECT_DIALECT]
    for folder in ("recipes", *names, "prompts/templates"):
        (project.data_directory / folder).mkdir(parents=True, exist_ok=True)
    return project.data_directory.resolve()


async def rebuild_index(config: settings.Settings) -> dict[str, Any]:
    """Rebuild the index from the run folders.

    Raises:
        errors.ConfigurationError: a service holds the data directory, or it cannot be used.
    """
    async with build(config, OpenMode(alone=True)) as application:
        return await application.store.rebuild_index()


async def _store(
    closing: AsyncExitStack, config: settings.Settings, mode: OpenMode, platform: Platform, definitions: Definitions
) -> Store:
    adopter = adoption.Adopter(
        catalogue=definitions.catalogue,
        workspaces=definitions.workspaces,
        clock=platform.clock,
    )
    directory = directory_of(config.project, platform)
    # A process that only looks must not create anything.
    if mode.is_storeless or (mode.look_only and not (directory.is_used or config.project.store_url)):
        empty = memory_store.MemoryStore(clock=platform.clock)
        await closing.enter_async_context(empty)
        return empty
    if not mode.look_only:
        directory.prepare()
    if mode.address is not None or mode.alone:
        lock = directory.lock_service()
        closing.callback(lock.release)
        if mode.address is not None:
            lock.announce(mode.address)
    embedded = mode.alone or (mode.address is not None and config.engine.engine == "embedded")
    # Two engines over one folder would execute its runs twice.
    if embedded or mode.works or mode.address is not None:
        closing.callback(directory.lock_engine(shared=not embedded).release)
    shared = config.engine.engine == "temporal" and (mode.look_only or mode.works or mode.address is not None)
    store = store_of(config.project, directory, platform, adopter.adopt, looks_only=mode.look_only, shared=shared)
    closing.push_async_callback(store.close)
    try:
        await store.start(serve=mode.address is not None and config.engine.engine == "embedded")
    except OSError as error:
        raise disk_health.unusable(config.project.data_directory, error) from error
    await temporal.check_clock(store)
    if platform.check_store is not None:
        await platform.check_store(store)
    return store


async def _supervisor(
    closing: AsyncExitStack, config: settings.Settings, agents: configuration.Roster, mode: OpenMode, platform: Platform
) -> supervisor.Supervisor:
    usual_files = closing.enter_context(environments.raised_descriptor_limit()) if mode.address is not None else None
    folder = config.project.data_directory / "processes"
    patterns = secret_patterns(config, agents)
    processes = supervisor.Supervisor(
        folder, platform.ids, os.environ, usual_files, config.processes.containment, patterns
    )
    closing.push_async_callback(processes.close)
    if not mode.look_only:
        # Before any run continues: a step that is performed again must not meet processes of its earlier attempt.
        await processes.sweep()
    return processes


def _agent_sessions(
    closing: AsyncExitStack, config: settings.Settings, mode: OpenMode, store: Store
) -> agent_sessions.StoredAgentSessions:
    if mode.look_only:
        return agent_sessions.MemoryAgentSessions()
    sessions = sessions_of(config.project, store)
    closing.callback(sessions.close)
    return sessions


def _equipment(
    config: settings.Settings,
    agents: configuration.Roster,
    platform: Platform,
    workspaces: tool_workspaces.Workspaces,
    definitions: Definitions,
    performer: agent_performer.AgentPerformer,
    processes: supervisor.Supervisor,
    store: Store,
) -> run_equipment.Equipment:
    project = config.project
    performers: dict[str, ports.Performer] = {
        operations.ToolCall.kind: tool_performer.ToolPerformer(definitions.registry, workspaces),
        operations.AgentCall.kind: performer,
        operations.Command.kind: commands.CommandPerformer(
            processes,
            workspaces,
            os.environ,
            lambda program: backends.withheld_from(program, keys_of(agents)),
            config.processes.idle_seconds or None,
        ),
        operations.Check.kind: checks.CheckPerformer(workspaces),
        operations.CheckEvidence.kind: checks.EvidencePerformer(workspaces, store.prove_receipt),
        operations.CommitFile.kind: checks.CommitFilePerformer(workspaces),
        **dict.fromkeys(
            issue_performer.KINDS, issue_performer.IssuePerformer(store.issues, platform.clock, project.project)
        ),
        operations.Refusal.kind: refusal_performers.RefusalPerformer(),
        operations.Skip.kind: refusal_performers.SkipPerformer(),
        file_operations.FindFiles.kind: file_performers.FindFilesPerformer(workspaces),
        file_operations.ReadFiles.kind: file_performers.ReadFilesPerformer(workspaces),
        file_operations.WaitForFiles.kind: file_performers.WaitForFilesPerformer(workspaces, platform.clock),
        file_operations.MoveFile.kind: moves.MoveFilePerformer(workspaces),
        **platform.performers,
    }
    return run_equipment.Equipment(
        performers=performers,
        clock=platform.clock,
        masker=masker_of(config, agents, os.environ),
        probes=platform.probes,
        environ=os.environ,
        folder_fault=workspaces.fault,
    )


def _application(
    config: settings.Settings,
    platform: Platform,
    definitions: Definitions,
    equipment: run_equipment.Equipment,
    store: Store,
    claims: conversation_claims.ConversationClaims,
    sessions: agent_sessions.StoredAgentSessions,
    processes: supervisor.Supervisor,
) -> Application:
    metrics, run_listeners, planning = telemetry.Metrics(), runs.RunStartedListeners(), PlanPerformers()
    engine = _engine(config, platform, equipment, store, metrics, lambda call: use_cases.start_child(call), planning)
    use_cases = runs.Runs(
        store=store,
        engine=engine,
        starter=definitions.starter,
        binding=conversation_binding.ConversationBinding(store, engine, claims),
        drivers=platform.drivers,
        clock=platform.clock,
        started_listeners=run_listeners,
    )

    unattended = unattended_of(config, use_cases, store, engine, definitions, platform, processes, planning, equipment)
    plans, planner = planning_of(use_cases, store, engine, definitions, platform, equipment.masker, planning)
    return Application(
        runs=use_cases,
        gates=gates_of(use_cases, store, engine, platform, equipment.masker),
        commands=processes,
        explanations=explanations_of(config, platform, use_cases, store, engine, processes, equipment.masker),
        budgets=spending.budgets_of(config.project, store, engine, platform, definitions.terms),
        statistics=statistics_of(store, engine, platform.clock, config),
        issues=issues_of(store, platform, equipment.masker),
        conversation_service=conversation_service_of(use_cases, store, sessions, definitions, run_listeners, platform),
        plans=plans,
        planner=planner,
        conferences=conferences.Conferences(runs=use_cases, store=store, library=definitions.definition_cache.library),
        unattended=unattended,
        starter=definitions.starter,
        catalogue=definitions.catalogue,
        route=definitions.starter.route,
        inventory=inventory_of(definitions, store, engine),
        health=_health(store, engine, planner, unattended),
        metrics=metrics,
        masker=equipment.masker,
        maintenance=maintenance.Maintenance(store=store, engine=engine, forget=use_cases.forget),
        keys=api_keys_of(config, store, platform),
        store=store,
        conversations=claims,
        engine=engine,
    )


def _capabilities(speaking: backends.Backends) -> dict[str, str | None]:
    lacks = dict(speaking.check())
    prompts = {capabilities.of_backend(name): lacks.get(name) for name in speaking.names()}
    return {capabilities.TOOLS: None, capabilities.COMMANDS: None, **prompts}


def _health(store: Store, engine: Engine, planner: planner.Planner, unattended: Unattended) -> health.Health:
    def working() -> None:
        planner.check()
        unattended.check()
        store.read_faults.refuse()

    return health.Health(store=store, engine=engine, working=working)


def _engine(
    config: settings.Settings,
    platform: Platform,
    equipment: run_equipment.Equipment,
    store: Store,
    metrics: telemetry.Metrics,
    start_child: Callable[[ports.Call], Awaitable[str]],
    planning: PlanPerformers,
) -> Engine:
    performers: dict[str, ports.Performer] = {name: platform.watch(each) for name, each in equipment.performers.items()}
    return platform.make_engine(
        EngineParts(
            store=store,
            drivers=platform.drivers,
            equipment=planning.equipped(
                dataclasses.replace(
                    equipment,
                    performers=performers,
                    observe=metrics.step,
                    stalled_after_seconds=config.pool.stalled_after_seconds,
                    fair_label=config.pool.fair_label,
                )
            ),
            start_child=start_child,
            pool=config.pool,
        )
    )
