"""Engines: what executes runs, and what it is made from."""

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
    from app.worker import workspace_reservations

_log = logging.getLogger(__name__)

Store: TypeAlias = disk_store.DiskStore


class Engine(run_engine.RunEngine, Protocol):
    """An engine in the hands of the process that has built it."""

    def start(self, *, recover: bool = True, lock: workspace_reservations.LockWorkspace | None = None) -> None:
        """Begin to execute runs."""

    async def recovered(self) -> int:
        """Wait until every run that was unfinished at the start is taken care of, and return how many."""

    async def wait_idle(self) -> None:
        """Wait until those of them that only wait do so again, as far as this process executes them."""

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stop, and wait for it."""

    async def watch(self) -> None:
        """Wait until the engine has stopped, and raise what made it stop if it was not asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine is made from."""

    store: Store  # Runs.
    drivers: Mapping[str, ports.Driver]  # Drivers by name.
    equipment: run_equipment.Equipment  # What performs steps.
    start_child: Callable[[ports.Call], Awaitable[str]]  # Starts the run that a `ChildRun` asks for.
    pool: settings.PoolSettings  # How much is executed at a time.


def embedded(parts: EngineParts) -> Engine:
    """Return the engine that executes runs in this process."""
    # Not imported by processes that only look or ask.
    from app.worker import pool

    return pool.Pool(
        store=parts.store,
        drivers=parts.drivers,
        equipment=parts.equipment,
        start_child=parts.start_child,
        limit=parts.pool.max_running,
        stop_grace_seconds=parts.pool.stop_grace_seconds,
    )


def workspace_lock(data_directory: Path) -> workspace_reservations.LockWorkspace:
    """Return what locks workspaces that runs hold alone against other processes."""
    locks = workspace_locks.WorkspaceLocks(data_directory)

    def lock(workspace: str) -> workspace_reservations.Lock | None:
        try:
            return locks.lock(workspace)
        except errors.ConfigurationError as failure:
            # The caller tries again a moment later.
            _log.error("not locked: %s", failure.message, extra={"code": failure.code})
            return None

    return lock
