"""Files of projections: appends events and receipts and replaces snapshots, on a worker thread."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app import errors
from app.domain import events, plain, records
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.index.index_port import ReceiptPlace
from app.storage.runs import receipts
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Load:
    """Files that are written together, and the results of the write."""

    make: Callable[[], Mapping[str, plain.Json]] | None = None
    """Makes the snapshots again if they could not be written."""
    files: Mapping[str, plain.Json] = field(default_factory=dict)  # Snapshots by name.
    events: list[events.Event] = field(default_factory=list)  # Queued events.
    event_lines: bytes = b""  # The queued events as lines.
    refused: int = 0  # How many refused numbers the lines begin with.
    sync_events: bool = False  # Whether the events may be shown only once they are durable.
    events_written: bool = False  # Whether the lines are in the file.
    receipts: list[records.Record] = field(default_factory=list)
    """Records of tool executions whose receipts are queued."""
    places: list[ReceiptPlace] | None = None  # Positions of the written receipts; None: not written.


class ProjectionFiles:
    """Writes the projections of one run; one thread at a time calls it.

    Args:
        has_events: Whether the folder may have a file of events.
    """

    def __init__(self, run_id: str, folder: str, session_id: str, context: StorageContext, *, has_events: bool) -> None:
        self._run_id = run_id
        self._session_id = session_id
        self._context = context
        self._folder = folder
        self._has_events = has_events
        self._on_disk: dict[str, str] = {}
        self.bytes = 0
        """Length of the last written snapshots."""

    def store(self, load: Load) -> None:
        """Write a load: events, then receipts, then snapshots."""
        if load.events:
            self._store_events(load)
        if load.receipts:
            self._store_receipts(load)
        # A reader that finds an ending in run.json reads the other files next.
        names = sorted(load.files, key=lambda name: name == layout.MANIFEST)
        contents = {layout.projection(name): plain.encode(load.files[name]) + b"\n" for name in names}
        self.bytes = sum(map(len, contents.values())) if contents else self.bytes
        for name, content in contents.items():
            self._store_file(name, content)

    def sync(self, *, with_receipts: bool) -> None:
        """Sync all written files of the folder."""
        # The journals were synced line by line; another sync costs nothing, and repairs losses of a disk.
        for name in (layout.STEPS, layout.CONTROL, layout.EVENTS, *self._on_disk):
            disk_port.sync_file(self._context.disk, f"{self._folder}/{name}")
        self._context.disk.sync_folder(self._folder)
        self._context.disk.sync_folder(layout.RUNS)
        if with_receipts:
            receipts.make_durable(self._context.disk, self._session_id)

    def _store_events(self, load: Load) -> None:
        self._context.probes.reach("storage.events.before_append")
        path = f"{self._folder}/{layout.EVENTS}"
        new, self._has_events = not self._has_events, True
        begin = disk_port.append_whole(self._context.disk, path, load.event_lines, sync=load.sync_events, new=new)
        if load.sync_events:
            # The name of the file, too: a new run's folder may be durable only in the commit log.
            try:
                self._context.disk.sync_folder(self._folder)
                self._context.disk.sync_folder(layout.RUNS)
            except OSError:
                # All lines of the load are written again.
                with contextlib.suppress(OSError):
                    self._context.disk.cut(path, begin, sync=False)
                raise
        load.events_written = True
        self._context.committer.mention(path)
        self._context.probes.reach("storage.events.after_append")

    def _store_receipts(self, load: Load) -> None:
        files = self._context.disk
        made = []
        for record in load.receipts:
            try:
                made.append(receipts.receipt_of(files, self._run_id, self._folder, self._session_id, record))
            except errors.JournalCorrupt as error:
                _log.error("no receipt can be made: %s", error.message, extra={"run_id": self._run_id})
        self._context.probes.reach("storage.receipt.before_append")
        load.places = receipts.append(files, self._session_id, made) if made else []
        self._context.committer.mention(layout.receipts_file(self._session_id))

    def _store_file(self, name: str, content: bytes) -> None:
        digest = plain.sha256(content)
        if self._on_disk.get(name) == digest:
            return
        reach = self._context.probes.reach
        path = f"{self._folder}/{name}"
        disk_port.replace(self._context.disk, path, content, sync=False, reach=reach, at="storage.snapshot")
        self._on_disk[name] = digest
        self._context.committer.mention(path)
