"""The engine on Temporal: connects to the server before an application is built, if the settings require it."""

# Why: docs/decisions/0320.

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Mapping

from app import errors, extras, settings
from app.agents import json_files
from app.bootstrap import roster
from app.bootstrap.engines import Engine, EngineParts, Store
from app.bootstrap.platform import OpenMode, Platform, directory_of
from app.domain import capabilities
from app.storage import folder_store, layout

INSTALL = extras.install("temporal")  # Command that installs the extra.
CLOCK_WARN_SECONDS = 2.0  # Difference from the database's clock that is logged.
CLOCK_REFUSE_SECONDS = 30.0  # Difference from the database's clock at which a process refuses to start.

_log = logging.getLogger(__name__)


async def check_clock(store: Store) -> None:
    """Compare the clock of this machine with that of a shared store.

    Raises:
        errors.ConfigurationError: `clock_off`.
    """
    if store.clock_offset is None:
        return
    offset = await store.clock_offset()
    ahead = "ahead of" if offset > 0 else "behind"
    message = f"the clock of this machine is {abs(offset):.1f} s {ahead} the database's"
    if abs(offset) > CLOCK_REFUSE_SECONDS:
        # Otherwise the journals of two machines would be in the wrong order of time.
        raise errors.ConfigurationError(f"{message}: set it right, e.g. with NTP, and start again", code="clock_off")
    if abs(offset) > CLOCK_WARN_SECONDS:
        _log.warning("%s; timers and expiries of runs are off by that", message)


async def connected(platform: Platform, config: settings.Settings, mode: OpenMode) -> Platform:
    """Return the platform with the engine on Temporal, if the settings require it and the process executes runs.

    Raises:
        errors.ConfigurationError: `temporal_missing`, the extra is not installed; `temporal_address`, `temporal_away`,
            `temporal_namespace`; `index_not_shared`, services and workers could not share the index.

    The engine's creation raises `unknown_capability` or `capability_missing` if the worker cannot serve a required
    capability; the check of the store raises `workspaces_differ` if other workers place workspaces in another way.
    """
    if config.engine.engine != "temporal" or not (mode.works or mode.address is not None):
        return platform
    project = config.project
    if project.store_url and project.database_url and project.database_url.startswith("sqlite"):
        # Otherwise each machine would only count its own runs.
        message = (
            "services and workers share the index of a store on Postgres: unset CONTROL_ROOM_DATABASE_URL, so that it "
            "is in that database, or name another one on Postgres"
        )
        raise errors.ConfigurationError(message, code="index_not_shared")
    try:
        from app.temporal import engine, live_reports, messages, server, worker, worker_roster
    except ModuleNotFoundError as error:
        # The package is installed, but something else that it needs is missing.
        if (error.name or "").partition(".")[0] != "temporalio":
            raise
        message = f"the engine on Temporal is not installed: {INSTALL}"
        raise errors.ConfigurationError(message, code="temporal_missing") from error
    target = server.Target(address=config.engine.temporal, namespace=config.engine.temporal_namespace)
    client = await server.connect(target)
    placement, folder = None, ""
    if project.store_url:
        # Capabilities of a machine belong to all workers of its data directory.
        identity = directory_of(project, platform).prepare()
        if config.engine.workspaces == "sticky":
            placement = messages.Placement(
                worker=identity, host=socket.gethostname(), gone_seconds=config.engine.worker_gone_seconds
            )
        elif project.data is None:
            # Machines that share a folder may have separate data directories next to one another in it.
            folder = identity

    async def check(store: Store) -> None:
        worker_of = "" if placement is None else placement.worker
        here = worker_roster.Entry(worker=worker_of, serves=frozenset(), folder=folder)
        await here.check(client, messages.queue(store.identity), platform.clock.now())

    def make(parts: EngineParts) -> Engine:
        limits = worker.WorkerLimits(
            queue=messages.queue(parts.store.identity),
            placement=placement,
            folder=folder,
            serves=_served(config, parts.equipment.capabilities()) if mode.works else frozenset(),
            services=parts.equipment.services,
            steps=config.pool.max_running,
            grace_seconds=config.pool.stop_grace_seconds,
        )
        if isinstance(parts.store, folder_store.FolderStore):
            parts.store.keep_lines(engine.KEPT_LINES)
        made = engine.TemporalEngine(
            client=client,
            store=parts.store,
            drivers=parts.drivers,
            equipment=parts.equipment,
            start_child=parts.start_child,
            bounds=limits,
            works=mode.works,
        )
        # Lines of other machines are announced by this listener only.
        made.follower.commit_listener = parts.store.commit_listener
        if parts.store.turns is not None:
            made.obstacles.lines.turns = parts.store.turns(layout.CONCURRENCY)
        made.live.documents = parts.store.documents(live_reports.FOLDER)
        return made

    return dataclasses.replace(platform, make_engine=make, elsewhere=True, check_store=check)


def _served(config: settings.Settings, lacks: Mapping[str, str | None]) -> frozenset[str]:
    if not (wanted := config.engine.serve):
        configured = {capabilities.of_backend(name) for name in roster.configured_backends(config)}
        for name, lack in lacks.items():
            if lack is not None:
                # Of the bundled backends, most are not installed on a machine.
                level = logging.WARNING if name in configured else logging.INFO
                _log.log(level, "does not serve %s: %s", name, lack)
        return frozenset(name for name, lack in lacks.items() if lack is None)
    for name in wanted:
        if name not in lacks:
            message = f"no worker can serve {name!r:.80}; {json_files.nearest(name, sorted(lacks))}"
            raise errors.ConfigurationError(message, code="unknown_capability", detail={"known": sorted(lacks)})
        if (lack := lacks[name]) is not None:
            message = f"this machine cannot serve {name}: {lack}"
            raise errors.ConfigurationError(message, code="capability_missing", detail={"capability": name})
    return frozenset(wanted)
