"""Backups: the state file before each step, the newest three of a run (workflow-dsl, state backup)."""

# Snapshots are coalesced, so a copy made by following events could have any earlier state. Instead, each performer is
# wrapped: the files are written and copied before the first operation of a step begins.

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from app import bootstrap
from app.cli.orchestrate.places import STATE
from app.domain import operations, records
from app.engine import ports

KEPT = 3  # Number of backups that a run keeps.
Show = Callable[[str], Awaitable[None]]  # Writes the present files of a run.


class Backups:
    """Copy the state file before a step begins."""

    def __init__(self) -> None:
        self.show: Show | None = None
        """Called before each copy; None until the run's files can be written."""
        self._last: dict[str, str] = {}
        self._made: dict[Path, list[Path]] = {}

    async def before(self, call: ports.Call) -> None:
        """Make the backup of a step before its first operation."""
        name = call.place.output_slot or call.place.step_id
        passage = f"{name}#{call.place.visit}"
        known = isinstance(call.operation, operations.Skip) or self._last.get(call.run.run_id) == passage
        if self.show is None or call.run.folder is None or known:
            return
        self._last[call.run.run_id] = passage
        await self.show(call.run.run_id)
        # A run without a backup can still run.
        with contextlib.suppress(OSError):
            self._copy(Path(call.run.folder), name)

    def platform(self, platform: bootstrap.Platform) -> bootstrap.Platform:
        """Return a platform that backs up every step."""
        return dataclasses.replace(platform, watch=lambda performer: _BackedUp(performer, self))

    def _copy(self, folder: Path, step: str) -> None:
        target = folder / f"{STATE}.step_{step}.bak"
        _write(target, (folder / STATE).read_bytes())
        made = self._made.setdefault(folder, _found(folder))
        self._made[folder] = [*(path for path in made if path != target), target]
        while len(self._made[folder]) > KEPT:
            self._made[folder].pop(0).unlink(missing_ok=True)


class _BackedUp:
    def __init__(self, inner: ports.Performer, backups: Backups) -> None:
        self._inner = inner
        self._backups = backups

    async def perform(self, call: ports.Call) -> records.Result:
        await self._backups.before(call)
        return await self._inner.perform(call)


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{STATE}.step_*.bak"), key=lambda path: path.stat().st_mtime_ns)


def _write(target: Path, content: bytes) -> None:
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    with open(fresh, "wb", opener=_private) as file:
        file.write(content)
    fresh.replace(target)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
