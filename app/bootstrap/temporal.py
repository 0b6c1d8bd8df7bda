"""The engine on Temporal: connected before an application is built, where the settings ask for it."""

# Why: docs/decisions/0320.

from __future__ import annotations

import dataclasses

from app import errors, settings
from app.bootstrap.engines import Engine, EngineParts
from app.bootstrap.platform import OpenMode, Platform, directory_of
from app.storage import folder_store

INSTALL = 'pip install "control-room[temporal]"'
"""Command that installs the extra."""


async def connected(platform: Platform, chosen: settings.Settings, mode: OpenMode) -> Platform:
    """Return a platform whose engine is the one on Temporal, if the settings ask for it and the process executes runs.

    Raises:
        errors.ConfigurationError: `temporal_missing`, the extra is not installed; `temporal_address`, `temporal_away`,
            `temporal_namespace`; `index_not_shared`, services and workers could not share the index.
    """
    if chosen.engine.engine != "temporal" or not (mode.works or mode.address is not None):
        return platform
    project = chosen.project
    if project.store_url and project.database_url and project.database_url.startswith("sqlite"):
        message = (
            "services and workers share the index of a store on Postgres: unset CONTROL_ROOM_DATABASE_URL, so that it "
            "is in that database, or name another one on Postgres"
        )
        raise errors.ConfigurationError(message, code="index_not_shared")
    try:
        from app.temporal import engine, messages, server, worker
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "temporalio":
            raise
        message = f"the engine on Temporal is not installed: {INSTALL}"
        raise errors.ConfigurationError(message, code="temporal_missing") from error
    target = server.Target(address=chosen.engine.temporal, namespace=chosen.engine.temporal_namespace)
    client = await server.connect(target)
    placement = None
    if project.store_url and chosen.engine.workspaces == "sticky":
        # What the machine has, it has for all workers of its data directory.
        identity = directory_of(project, platform).prepare()
        placement = messages.Placement(worker=identity, gone_seconds=chosen.engine.worker_gone_seconds)

    def make(parts: EngineParts) -> Engine:
        limits = worker.WorkerLimits(
            queue=messages.queue(parts.store.identity),
            placement=placement,
            steps=chosen.pool.max_running,
            grace_seconds=chosen.pool.stop_grace_seconds,
        )
        if isinstance(parts.store, folder_store.FolderStore):
            parts.store.keep_lines(engine.KEPT_LINES)
        return engine.TemporalEngine(
            client=client,
            store=parts.store,
            drivers=parts.drivers,
            equipment=parts.equipment,
            start_child=parts.start_child,
            bounds=limits,
            works=mode.works,
        )

    return dataclasses.replace(platform, make_engine=make)
