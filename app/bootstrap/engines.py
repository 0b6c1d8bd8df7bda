"""Engines: build the engine that executes runs, from its parts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from app import errors, settings
from app.engine import ports, run_engine
from app.storage import workspace_locks
from app.storage.runs import disk_store

if TYPE_CHECKING:
    from app.engine import run_equipment
    from app.worker import workspace_holds

_log = logging.getLogger(__name__)

Store: TypeAlias = disk_store.DiskStore


class Engine(run_engine.RunEngine, Protocol):
    """An engine, as the process that has built it uses it."""

    def start(self, *, recover: bool = True, lock: workspace_holds.LockWorkspace | None = None) -> None:
        """Begin to execute runs."""

    async def recovered(self) -> int:
        """Wait until all runs that were unfinished at the start are recovered, and return their number."""

    async def wait_idle(self) -> None:
        """Wait until those of them that only wait are waiting again, as far as this process executes them."""

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stop the engine, and wait until it has stopped."""

    async def watch(self) -> None:
        """Wait until the engine has stopped, and raise the reason if it stopped by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of an engine."""

    store: Store  # Store of the runs.
    drivers: Mapping[str, ports.Driver]  # Drivers by name.
    equipment: run_equipment.Equipment  # Performers of steps, and what they share.
    start_child: Callable[[ports.Call], Awaitable[str]]  # Starts the run that a `ChildRun` requests.
    pool: settings.PoolSettings  # Settings of the capacity.


def embedded(parts: EngineParts) -> Engine:
    """Return the engine that executes runs in this process."""
    # Not imported by processes that only read or send orders.
    from app.worker import pool

    return pool.Pool(
        store=parts.store,
        drivers=parts.drivers,
        equipment=parts.equipment,
        start_child=parts.start_child,
        limit=parts.pool.max_running,
        stop_grace_seconds=parts.pool.stop_grace_seconds,
    )


def workspace_lock(data_directory: Path) -> workspace_holds.LockWorkspace:
    """Return the function that locks exclusively held workspaces against other processes."""
    locks = workspace_locks.WorkspaceLocks(data_directory)

    def lock(workspace: str) -> workspace_holds.Lock | None:
        try:
            return locks.lock(workspace)
        except errors.ConfigurationError as failure:
            # The caller tries again later.
            _log.error("not locked: %s", failure.message, extra={"code": failure.code})
            return None

    return lock
