"""Rooms: everything that the faces of a project are served from, put together and taken apart again."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from app import errors, settings, telemetry
from app.agents import backends, configuration
from app.agents import performer as agent_performer
from app.bootstrap.catalogue import surroundings_of
from app.bootstrap.definitions import (
    Definitions,
    reference_of,
)
from app.bootstrap.plans import PlanPerformers, planning_of
from app.bootstrap.platform import OpenMode, Platform, Store, directory_of, real_platform
from app.bootstrap.roster import keys_of, masker_of, refuse_broken, roster_of, secret_patterns
from app.dialects import registry as dialects
from app.domain import file_operations, operations, plain
from app.engine import conversation_claims, ports, refusals, runner
from app.processes import environments, supervisor
from app.services import (
    adoption,
    conferences,
    conversation_binding,
    health,
    inventory,
    recipes,
    routing,
    runs,
    starting,
)
from app.services import conversations as control_talks
from app.services import gates as control_gates
from app.services import issues as control_issues
from app.services import maintenance as control_upkeep
from app.services.plans import planner as control_planner
from app.services.plans import plans as control_plans
from app.storage import agent_sessions, conversation_retention, memory_store, workspace_locks
from app.storage.disk import disk_health
from app.tools import checks, commands, evidence, find_files, issue_performer, moves, read_files, wait_for_files
from app.tools import performer as tool_performer
from app.tools import workspace as tool_workspaces
from app.worker import pool, workspace_reservations

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Everything that the faces of a project are served from."""

    runs: runs.Runs
    """Use cases of runs."""
    gates: control_gates.Gates
    """Use cases of those who answer questions of runs."""
    issues: control_issues.Issues
    """Use cases of what was found and written down."""
    talks: control_talks.ConversationService
    """Use cases of those who speak with agents from message to message."""
    plans: control_plans.Plans
    """Use cases of session plans."""
    planner: control_planner.Planner
    """Works on them."""
    conferences: conferences.Conferences
    """Use cases of those who ask several agents at once."""
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
    upkeep: control_upkeep.Maintenance
    """Verification and repair."""
    store: Store
    """Run folders; a memory where a reader found no data directory."""
    conversations: conversation_claims.ConversationClaims
    """Who may speak in which conversation with an agent."""
    engine: pool.Pool
    """Worker pool."""


_USUAL = OpenMode()


@asynccontextmanager
async def build(
    chosen: settings.Settings, use: OpenMode = _USUAL, platform: Platform | None = None
) -> AsyncIterator[Application]:
    """Put a project's room together, and take it apart in the reverse order.

    Raises:
        errors.ConfigurationError: `agents.json` or the data directory cannot be used.
    """
    platform = platform or real_platform(os.environ)
    people = roster_of(chosen)
    if not use.look_only:
        refuse_broken(people)
    reference = reference_of(chosen, people, platform)
    async with AsyncExitStack() as closing:
        kept = await _store(closing, chosen, use, platform, reference)
        running = await _supervisor(closing, chosen, people, use, platform)
        sessions = _agent_sessions(closing, chosen, use, kept)
        speaking = backends.Backends(people.backends, surroundings_of(chosen, platform.clock, running, sessions))
        closing.push_async_callback(speaking.close)
        talks = conversation_claims.ConversationClaims(sessions, kept, platform.drivers)
        roots = [chosen.project.project, *chosen.project.allowed_roots]
        places = tool_workspaces.Workspaces(roots, reference.workspaces.reserved)
        asking = agent_performer.AgentPerformer(speaking, talks, places.check)
        equipment = _equipment(chosen, people, platform, places, reference, asking, running, kept)
        application = _application(chosen, platform, reference, equipment, kept, talks, sessions)
        closing.push_async_callback(application.engine.stop)
        serves = use.address is not None
        application.engine.start(
            recover=serves, lock=_workspace_lock(chosen.project.data_directory) if serves else None
        )
        if serves or use.alone:
            closing.push_async_callback(application.planner.stop)
            application.planner.start(recover=serves)
        if serves and chosen.project.keep_conversations_days:
            age = timedelta(days=chosen.project.keep_conversations_days)
            sweeping = asyncio.create_task(conversation_retention.sweep(sessions, kept, platform.clock.now() - age))
            closing.push_async_callback(_end, sweeping)
        yield application


def prepare_project(project: settings.ProjectSettings) -> Path:
    """Make the data directory of a project, with a folder for its recipes in each language and one for prompts; return
    it.

    Raises:
        errors.ConfigurationError: it cannot be made.
    """
    kept = directory_of(project, real_platform(os.environ))
    kept.prepare()
    names = [f"recipes/{name}" for name in dialects.DIALECTS if name != recipes.PROJECT_DIALECT]
    for folder in ("recipes", *names, "prompts/templates"):
        (project.data_directory / folder).mkdir(parents=True, exist_ok=True)
    return project.data_directory.resolve()


async def rebuild_index(chosen: settings.Settings) -> dict[str, Any]:
    """Make the index anew from the run folders.

    Raises:
        errors.ConfigurationError: a service holds the data directory, or it cannot be used.
    """
    async with build(chosen, OpenMode(alone=True)) as application:
        return await application.store.rebuild_index()


async def _store(
    closing: AsyncExitStack, chosen: settings.Settings, use: OpenMode, platform: Platform, reference: Definitions
) -> Store:
    adopter = adoption.Adopter(
        catalogue=reference.catalogue,
        workspaces=reference.workspaces,
        clock=platform.clock,
    )
    kept = directory_of(chosen.project, platform)
    if use.look_only and not kept.is_used:
        nothing = memory_store.MemoryStore(clock=platform.clock)
        await closing.enter_async_context(nothing)
        return nothing
    if not use.look_only:
        kept.prepare()
    if use.address is not None or use.alone:
        lock = kept.lock_service()
        closing.callback(lock.release)
        if use.address is not None:
            lock.announce(use.address)
    opened = platform.make_store(kept, chosen.project.database_url or kept.index_url(), platform, adopter.adopt)
    closing.push_async_callback(opened.close)
    try:
        await opened.start(serve=use.address is not None)
    except OSError as error:
        raise disk_health.unusable(chosen.project.data_directory, error) from error
    return opened


async def _supervisor(
    closing: AsyncExitStack, chosen: settings.Settings, people: configuration.Roster, use: OpenMode, platform: Platform
) -> supervisor.Supervisor:
    usual_files = closing.enter_context(environments.raised_descriptor_limit()) if use.address is not None else None
    folder = chosen.project.data_directory / "processes"
    patterns = secret_patterns(chosen, people)
    running = supervisor.Supervisor(
        folder, platform.ids, os.environ, usual_files, chosen.processes.containment, patterns
    )
    closing.push_async_callback(running.close)
    if not use.look_only:
        await running.sweep()
    return running


def _agent_sessions(
    closing: AsyncExitStack, chosen: settings.Settings, use: OpenMode, kept: Store
) -> agent_sessions.StoredAgentSessions:
    if use.look_only:
        return agent_sessions.MemoryAgentSessions()
    sessions = agent_sessions.in_folder(chosen.project.data_directory, kept.read_faults)
    closing.callback(sessions.close)
    return sessions


async def _end(task: asyncio.Task[int]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _equipment(
    chosen: settings.Settings,
    people: configuration.Roster,
    platform: Platform,
    places: tool_workspaces.Workspaces,
    reference: Definitions,
    asking: agent_performer.AgentPerformer,
    running: supervisor.Supervisor,
    kept: Store,
) -> runner.Equipment:
    project = chosen.project
    performers: dict[str, ports.Performer] = {
        operations.ToolCall.kind: tool_performer.ToolPerformer(reference.registry, places),
        operations.AgentCall.kind: asking,
        operations.Command.kind: commands.CommandPerformer(
            running, places, os.environ, lambda program: backends.withheld_from(program, keys_of(people))
        ),
        operations.Check.kind: checks.CheckPerformer(places),
        operations.CheckEvidence.kind: evidence.EvidencePerformer(places, kept.prove_receipt),
        operations.CommitFile.kind: checks.CommitFilePerformer(places),
        **dict.fromkeys(
            issue_performer.KINDS, issue_performer.IssuePerformer(kept.issues, platform.clock, project.project)
        ),
        operations.Refusal.kind: refusals.RefusalPerformer(),
        operations.Skip.kind: refusals.SkipPerformer(),
        file_operations.FindFiles.kind: find_files.FindFilesPerformer(places),
        file_operations.ReadFiles.kind: read_files.ReadFilesPerformer(places),
        file_operations.WaitForFiles.kind: wait_for_files.WaitForFilesPerformer(places, platform.clock),
        file_operations.MoveFile.kind: moves.MoveFilePerformer(places),
        **platform.performers,
    }
    return runner.Equipment(
        performers=performers,
        clock=platform.clock,
        masker=masker_of(chosen, people, os.environ),
        probes=platform.probes,
        environ=os.environ,
    )


def _workspace_lock(data_directory: Path) -> workspace_reservations.LockWorkspace:
    locks = workspace_locks.WorkspaceLocks(data_directory)

    def lock(workspace: str) -> workspace_reservations.Lock | None:
        try:
            return locks.lock(workspace)
        except errors.ConfigurationError as failure:
            # Whoever asks looks again a moment later.
            _log.error("not locked: %s", failure.message, extra={"code": failure.code})
            return None

    return lock


def _application(
    chosen: settings.Settings,
    platform: Platform,
    reference: Definitions,
    equipment: runner.Equipment,
    kept: Store,
    talks: conversation_claims.ConversationClaims,
    sessions: agent_sessions.StoredAgentSessions,
) -> Application:
    metrics, begun = telemetry.Metrics(), runs.RunStartedListeners()

    async def start_child(call: ports.Call) -> str:
        return await use_cases.start_child(call)

    performing = PlanPerformers()
    engine = _pool(chosen, platform, equipment, kept, metrics, start_child, performing)
    use_cases = runs.Runs(
        store=kept,
        engine=engine,
        starter=reference.starter,
        joining=conversation_binding.ConversationBinding(kept, engine, talks),
        dialects=platform.drivers,
        clock=platform.clock,
        started_listeners=begun,
    )

    def working() -> None:
        planner.check()
        kept.read_faults.refuse()

    plans, planner = planning_of(use_cases, kept, engine, reference, begun, platform, equipment.masker, performing)
    return Application(
        runs=use_cases,
        gates=_gates(use_cases, kept, engine, platform, equipment.masker),
        issues=_issues(kept, platform, equipment.masker),
        talks=_conversation_service(use_cases, kept, sessions, reference, begun, platform),
        plans=plans,
        planner=planner,
        conferences=conferences.Conferences(runs=use_cases, store=kept, library=reference.definition_cache.library),
        starter=reference.starter,
        catalogue=reference.catalogue,
        route=reference.starter.route,
        inventory=inventory.Inventory(library=reference.definition_cache.library, store=kept, engine=engine),
        health=health.Health(store=kept, engine=engine, working=working),
        metrics=metrics,
        masker=equipment.masker,
        upkeep=control_upkeep.Maintenance(store=kept, engine=engine, forget=use_cases.forget),
        store=kept,
        conversations=talks,
        engine=engine,
    )


def _pool(
    chosen: settings.Settings,
    platform: Platform,
    equipment: runner.Equipment,
    kept: Store,
    metrics: telemetry.Metrics,
    start_child: Callable[[ports.Call], Awaitable[str]],
    plans: PlanPerformers,
) -> pool.Pool:
    performers: dict[str, ports.Performer] = {name: platform.watch(each) for name, each in equipment.performers.items()}
    return pool.Pool(
        store=kept,
        dialects=platform.drivers,
        equipment=plans.equipped(dataclasses.replace(equipment, performers=performers, observe=metrics.step)),
        start_child=start_child,
        limit=chosen.pool.max_running,
        stop_grace_seconds=chosen.pool.stop_grace_seconds,
    )


def _gates(
    use_cases: runs.Runs, kept: Store, engine: pool.Pool, platform: Platform, masker: plain.Masker
) -> control_gates.Gates:
    return control_gates.Gates(store=kept, engine=engine, dialects=platform.drivers, view=use_cases.view, masker=masker)


def _issues(kept: Store, platform: Platform, masker: plain.Masker) -> control_issues.Issues:
    return control_issues.Issues(
        issue_store=kept.issues, store=kept, clock=platform.clock, ids=platform.ids, masker=masker
    )


def _conversation_service(
    use_cases: runs.Runs,
    kept: Store,
    sessions: agent_sessions.StoredAgentSessions,
    reference: Definitions,
    begun: runs.RunStartedListeners,
    platform: Platform,
) -> control_talks.ConversationService:
    return control_talks.ConversationService(
        runs=use_cases,
        store=kept,
        sessions=sessions,
        catalogue=reference.catalogue,
        started_listeners=begun,
        ids=platform.ids,
    )
