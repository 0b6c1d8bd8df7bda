"""Step lines: reads lines of journals by position, and only the new lines of a journal that was read before."""

from __future__ import annotations

from collections import OrderedDict

from app.domain import plain, records
from app.storage import layout
from app.storage.journal import chain
from app.storage.journal.chain import Reading
from app.storage.runs import authority
from app.storage.storage_context import StorageContext

_MOST_LINES = 50_000  # Most lines of all cached journals.


class StepLines:
    """Reads lines of steps for callers that identify them by their hash."""

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._known: OrderedDict[str, Reading] = OrderedDict()

    async def read(self, run_id: str, first: int, count: int) -> list[records.Record]:
        """Return lines of a run, or fewer if its journal has no more sound ones.

        Raises:
            errors.NotFound, errors.JournalCorrupt: its start.json is gone, or damaged.
        """
        return await self._context.workers.run(lambda: self._read(run_id, first, count))

    def _read(self, run_id: str, first: int, count: int) -> list[records.Record]:
        # Another thread that reads the same run meanwhile reads it as a whole.
        known = self._known.pop(run_id, None)
        found = self._continued(run_id, known)
        if known is not None and len(found.lines) < first + count:
            # The journal may have been cut off and rewritten.
            found = self._continued(run_id, None)
        self._known[run_id] = found
        while len(self._known) > 1 and sum(len(each.lines) for each in self._known.values()) > _MOST_LINES:
            self._known.popitem(last=False)
        wanted = found.lines[first : first + count]
        return [records.read(position, line.fields) for position, line in enumerate(wanted, first)]

    def _continued(self, run_id: str, known: Reading | None) -> Reading:
        disk, path = self._context.disk, f"{layout.run_folder(run_id)}/{layout.STEPS}"
        anchor = known.anchor if known else plain.labelled_sha256(authority.read_start(disk, run_id)[1])
        try:
            content = disk.read(path, known.end if known else 0)
        except (FileNotFoundError, NotADirectoryError):
            content = b""
        return chain.read(content, anchor, known)
