"""Maintenance: verify stored data and repair runs."""

from __future__ import annotations

from collections.abc import Callable

from app.domain import authors, plain
from app.engine import maintenance_port, run_engine, stores
from app.services import faults, run_reader


class Maintenance:
    """Verifies all stored data, and repairs runs.

    Args:
        forget: Drops the cached answer of a run that a repair has changed.
    """

    def __init__(self, *, store: stores.RunStore, engine: run_engine.RunEngine, forget: Callable[[str], None]) -> None:
        self._store = store
        self._engine = engine
        self._forget = forget

    async def verify(self, run_id: str) -> dict[str, plain.Json]:
        """Report on each file of a run's authority without changing it.

        Raises:
            errors.NotFound: the run does not exist.
        """
        run_reader.check_form(run_id)
        return dict(await self._store.maintenance.verify(run_id))

    async def verify_page(self, after: str | None, most: int) -> maintenance_port.Verified:
        """Report on the next runs, receipts, plans, issues, conversations and the audit log without changing them.

        Raises:
            errors.RequestInvalid: `bad_cursor`.
        """
        return await self._store.maintenance.verify_page(after, most)

    async def collect(
        self, older_than_seconds: int, author: authors.Author | None = None, *, dry_run: bool = True
    ) -> dict[str, plain.Json]:
        """Remove, or only count, objects that no line of a run names.

        Raises:
            errors.Unavailable: object storage does not answer.
        """
        with faults.as_errors():
            if not dry_run:
                await self._store.audit.append(author, "blobs.collected", "blobs", {"older_than": older_than_seconds})
            return dict(await self._store.maintenance.collect(older_than_seconds, dry_run=dry_run))

    async def repair(
        self, run_id: str, author: authors.Author | None = None, *, dry_run: bool = False
    ) -> dict[str, plain.Json]:
        """Cut a damaged run back to its sound lines and leave it paused, or report which lines that would keep.

        Raises:
            errors.NotFound: the run does not exist.
            errors.Conflict: `run_busy`, the run is loaded here or another process writes it.
            errors.JournalCorrupt: its start.json is damaged, so it cannot be continued.
            errors.WriteFailed: the disk is full or failing.
        """
        run_reader.check_run_id(run_id)
        with faults.as_errors():
            report = await self._store.maintenance.repair(run_id, dry_run=True)
            if dry_run or not report["changed"]:
                return {**report, "dry_run": dry_run}
            # The entry contains the findings, since a crash may interrupt the repair.
            await self._store.audit.append(author, "run.repaired", run_id, {"files": plain.plain(report["files"])})
            # A queued or unloaded run leaves the engine, since it cannot be loaded during the repair.
            await self._engine.reload(run_id)
            report = await self._store.maintenance.repair(run_id)
        self._forget(run_id)
        return dict(report)
