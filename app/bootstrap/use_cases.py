"""Use cases: builds those use cases that need only one step each."""

from __future__ import annotations

from app import clock, settings
from app.bootstrap import checks, spending
from app.bootstrap.definitions import Definitions
from app.bootstrap.engines import Engine, Store
from app.bootstrap.platform import Platform, directory_of
from app.domain import access, plain, plans
from app.engine import run_engine
from app.processes import supervisor
from app.services import conversations as conversation_services
from app.services import explanations, gates, inventory, issues, runs
from app.services import keys as key_services
from app.services import statistics as statistic_services
from app.storage import agent_sessions
from app.storage import keys as key_files
from app.storage.disk import disk_health

_MOST_PLANS = 1000


def inventory_of(definitions: Definitions, store: Store, engine: Engine) -> inventory.Inventory:
    """Return the use cases that show tools, agents and files."""
    return inventory.Inventory(
        library=definitions.definition_cache.library,
        backend_fault=definitions.catalogue.readiness.backend_fault,
        files=definitions.workspaces.files,
        store=store,
        engine=engine,
    )


def gates_of(
    use_cases: runs.Runs, store: Store, engine: Engine, platform: Platform, masker: plain.Masker
) -> gates.Gates:
    """Return the use cases of gates."""
    return gates.Gates(
        store=store,
        engine=engine,
        drivers=platform.drivers,
        view=use_cases.reader.view,
        plan=lambda session_id: store.plans.get(session_id),
        masker=masker,
        clock=platform.clock,
    )


def api_keys_of(config: settings.Settings, store: Store, platform: Platform) -> key_services.Keys:
    """Return the use cases of keys."""
    folder, disk = spending.shared_disk(config.project, store)
    ring = key_files.KeyRing(folder, platform.clock, disk)
    ring.reach, ring.common = platform.probes.reach, store.common
    has_token = config.server.token is not None
    return key_services.Keys(ring, store.audit, platform.clock, platform.ids, has_token=has_token)


def issues_of(store: Store, platform: Platform, masker: plain.Masker) -> issues.Issues:
    """Return the use cases of issues."""
    return issues.Issues(issue_store=store.issues, store=store, clock=platform.clock, ids=platform.ids, masker=masker)


def conversation_service_of(
    use_cases: runs.Runs,
    store: Store,
    sessions: agent_sessions.StoredAgentSessions,
    definitions: Definitions,
    run_listeners: runs.RunStartedListeners,
    platform: Platform,
) -> conversation_services.ConversationService:
    """Return the use cases of conversations."""
    if store.commit_listener is not None:
        store.commit_listener.on_begun = use_cases.note_begun_elsewhere
    return conversation_services.ConversationService(
        runs=use_cases,
        store=store,
        sessions=sessions,
        catalogue=definitions.catalogue,
        started_listeners=run_listeners,
        ids=platform.ids,
    )


def explanations_of(
    config: settings.Settings,
    platform: Platform,
    use_cases: runs.Runs,
    store: Store,
    engine: run_engine.RunEngine,
    processes: supervisor.Supervisor,
    masker: plain.Masker,
) -> explanations.Explanations:
    """Return the use cases that explain the runs of a process that may execute them."""

    def pids(run_id: str) -> list[int]:
        return [command.pid for command in processes.active(run_id=run_id) if command.pid is not None]

    directory = directory_of(config.project, platform)
    return explanations.Explanations(
        store=store,
        engine=engine,
        drivers=platform.drivers,
        view=use_cases.reader.view,
        clock=platform.clock,
        masker=masker,
        surroundings=explanations.Surroundings(
            service=directory.service,
            is_executed=directory.is_executed,
            has_workers=directory.has_workers,
            is_owned=store.is_owned,
            pids=pids,
            stalled_after_seconds=config.pool.stalled_after_seconds,
        ),
    )


def statistics_of(
    store: Store, engine: run_engine.RunEngine, time: clock.Clock, config: settings.Settings
) -> statistic_services.Statistics:
    """Return the use cases of counts and sums over all runs of a project."""

    async def asking_plans(scope: access.Scope | None) -> tuple[int, int]:
        open_questions = plans.TaskState.NEEDS_SCOPING.value
        asking = await store.plans.list(plans.PlanQuery(waits=True, limit=_MOST_PLANS, partial=True))
        # Without a scope every plan counts, so no plan is read.
        if scope is not None:
            whole = {plan.session_id: await store.plans.get(plan.session_id) for plan in asking}
            asking = [plan for plan in asking if (full := whole[plan.session_id]) and full.is_within(scope)]
        return sum(plan.tasks.get(open_questions, 0) for plan in asking), len(asking)

    return statistic_services.Statistics(
        store=store,
        engine=engine,
        asking=asking_plans,
        space=lambda: disk_health.space(config.project.data_directory),
        service=statistic_services.ServiceState(
            engine=config.engine.engine,
            project=str(config.project.project.absolute()),
            local_model=checks.speak_locally(config),
        ),
        clock=time,
    )
