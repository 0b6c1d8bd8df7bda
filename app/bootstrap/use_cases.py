"""Use cases that are put together in one step each."""

from __future__ import annotations

from app import settings
from app.bootstrap import spending
from app.bootstrap.definitions import Definitions
from app.bootstrap.engines import Engine, Store
from app.bootstrap.platform import Platform
from app.domain import plain
from app.services import conversations as conversation_services
from app.services import gates as control_gates
from app.services import inventory, runs
from app.services import issues as control_issues
from app.services import keys as key_services
from app.storage import agent_sessions
from app.storage import keys as key_files


def inventory_of(definitions: Definitions, store: Store, engine: Engine) -> inventory.Inventory:
    """Return what shows tools, agents and files."""
    return inventory.Inventory(
        library=definitions.definition_cache.library,
        backend_fault=definitions.catalogue.readiness.backend_fault,
        files=definitions.workspaces.files,
        store=store,
        engine=engine,
    )


def gates_of(
    use_cases: runs.Runs, store: Store, engine: Engine, platform: Platform, masker: plain.Masker
) -> control_gates.Gates:
    """Return the use cases of gates."""
    return control_gates.Gates(
        store=store, engine=engine, dialects=platform.drivers, view=use_cases.view, masker=masker, clock=platform.clock
    )


def api_keys_of(chosen: settings.Settings, store: Store, platform: Platform) -> key_services.Keys:
    """Return the use cases of keys."""
    folder, disk = spending.shared_disk(chosen.project, store)
    ring = key_files.KeyRing(folder, platform.clock, disk)
    ring.reach, ring.common = platform.probes.reach, store.common
    has_token = chosen.server.token is not None
    return key_services.Keys(ring, store.audit, platform.clock, platform.ids, has_token=has_token)


def issues_of(store: Store, platform: Platform, masker: plain.Masker) -> control_issues.Issues:
    """Return the use cases of issues."""
    return control_issues.Issues(
        issue_store=store.issues, store=store, clock=platform.clock, ids=platform.ids, masker=masker
    )


def conversation_service_of(
    use_cases: runs.Runs,
    store: Store,
    sessions: agent_sessions.StoredAgentSessions,
    definitions: Definitions,
    run_listeners: runs.RunStartedListeners,
    platform: Platform,
) -> conversation_services.ConversationService:
    """Return the use cases of conversations."""
    if store.news is not None:
        store.news.on_begun = use_cases.note_begun_elsewhere
    return conversation_services.ConversationService(
        runs=use_cases,
        store=store,
        sessions=sessions,
        catalogue=definitions.catalogue,
        started_listeners=run_listeners,
        ids=platform.ids,
    )
