"""Inspection: checks and measures stored runs without changing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from app import errors
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.storage_context import StorageContext

if TYPE_CHECKING:
    from app.engine import maintenance_port

_PAGE_SECONDS = 2.0
_DEEPEST = 32


class Inspection:
    """Checks the folders of runs and all other stored files."""

    def __init__(self, context: StorageContext) -> None:
        self._context = context

    async def repair(self, run_id: str, *, dry_run: bool = False) -> maintenance_port.Repaired:
        """Report what a repair of a run would keep; this reader repairs nothing."""
        from app.storage.runs import repair

        assert dry_run
        return await self._context.workers.run(lambda: repair.repair(self._context, run_id, dry_run=True))

    async def verify(self, run_id: str) -> maintenance_port.Verification:
        """Report on each file of a run's authority."""
        from app.storage.runs import repair

        return await self._context.workers.run(lambda: repair.verify(self._context.disk, run_id))

    async def sizes(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Return the sizes of the folders of runs in bytes; missing or unreadable ones are left out."""
        return await self._context.workers.run(lambda: _sizes(self._context.disk, run_ids))

    async def verify_page(self, after: str | None, most: int) -> maintenance_port.Verified:
        """Report on the next page of stored things that can be checked."""
        from app.storage.runs import verification

        time = self._context.clock
        until = time.monotonic() + _PAGE_SECONDS
        return await self._context.workers.run(
            lambda: verification.page(self._context.disk, after, most, lambda: time.monotonic() > until)
        )


def _sizes(files: Disk, run_ids: Iterable[str]) -> dict[str, int]:
    found = {}
    for run_id in run_ids:
        try:
            found[run_id] = _size(files, layout.run_folder(run_id), _DEEPEST)
        except (OSError, errors.Unreadable, errors.NotFound):
            continue
    return found


def _size(files: Disk, path: str, depth: int) -> int:
    if depth and files.has_folder(path):
        return sum(_size(files, f"{path}/{name}", depth - 1) for name in files.names(path))
    # A file may be replaced meanwhile, and links may lead outside.
    return files.size(path) if files.has_file(path) else 0
