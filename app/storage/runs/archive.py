"""The archive: reads runs without locking them."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from app import errors, printable
from app.domain import events, plain, receipts, records, states
from app.engine import stores
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.index.index_port import ReceiptPlace
from app.storage.runs import authority, blobs, events_file, log_files
from app.storage.runs import receipts as receipt_files
from app.storage.storage_context import StorageContext

if TYPE_CHECKING:
    from app.storage.runs.folder_log import FolderLog

_log = logging.getLogger(__name__)

_Events: TypeAlias = list[events.Event]
_ENDED = events.EventType.RUN_ENDED.value
_CORRUPT = errors.JournalCorrupt.default_code


class Archive:
    """Reads blobs, events, logs, snapshots and receipts."""

    def __init__(self, context: StorageContext, logs: Mapping[str, FolderLog]) -> None:
        self._context = context
        self._logs = logs

    async def blob(self, run_id: str, blob: records.BlobRef) -> plain.Json:
        """Return a blob's text or JSON.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist; the blob is missing or wrong.
        """
        folder = layout.run_folder(run_id)
        return await self._context.workers.run(lambda: blobs.value(self._context.disk, run_id, folder, blob))

    async def events(self, run_id: str, after: int, most: int | None) -> list[events.Event]:
        """Return the next events with numbers above `after`.

        Raises:
            errors.NotFound: the run does not exist.
        """
        if (log := self._logs.get(run_id)) is not None:
            return await log.read_events(after, most)
        files, path = self._context.disk, f"{layout.run_folder(run_id)}/{layout.EVENTS}"

        def read() -> tuple[_Events, _Events]:
            self._make_sure_of(run_id)
            found = events_file.read(files, path, after, most)
            return found, events_file.last(files, path) if len(found) == most else found

        found, last = await self._context.workers.run(read)
        if after == 0:
            await self._log_missing_end(run_id, last)
        return found

    async def log(self, run_id: str, name: str) -> bytes:
        """Return a file under `logs/`.

        Raises:
            errors.NotFound: the run or the file does not exist.
        """
        return await self._context.workers.run(lambda: self._context.disk.read(self._log(run_id, name)))

    async def log_part(self, run_id: str, name: str, offset: int, most: int) -> stores.LogPart:
        """Return a part of a file under `logs/`.

        Raises:
            errors.NotFound: the run or the file does not exist.
        """

        def read() -> stores.LogPart:
            path = self._log(run_id, name)
            return log_files.part(self._context.disk, path, offset, most)

        return await self._context.workers.run(read)

    def _log(self, run_id: str, name: str) -> str:
        path = f"{layout.run_folder(run_id)}/{layout.LOGS}/{layout.file_name(name)}"
        self._make_sure_of(run_id)
        if not self._context.disk.has_file(path):
            names = self._context.disk.names(path.rpartition("/")[0])
            there = printable.listed(names) or "none yet"
            message = f"run {run_id} has no log {name!r:.80}; its logs: {there}"
            raise errors.NotFound(message, code="log_not_found", detail={"run_id": run_id, "logs": names[:100]})
        return path

    async def log_names(self, run_id: str) -> list[str]:
        """Return the names under `logs/`.

        Raises:
            errors.NotFound: the run does not exist.
        """
        folder = f"{layout.run_folder(run_id)}/{layout.LOGS}"

        def read() -> list[str]:
            self._make_sure_of(run_id)
            return [name for name in self._context.disk.names(folder) if not name.startswith(".")]

        return await self._context.workers.run(read)

    async def snapshots(self, run_id: str) -> dict[str, plain.Json]:
        """Return run.json and cache.json, as far as they can be read.

        Raises:
            errors.NotFound: the run does not exist.
        """
        folder = layout.run_folder(run_id)

        def read() -> dict[str, plain.Json]:
            self._make_sure_of(run_id)
            found = ((name, _json(self._context.disk, f"{folder}/{name}")) for name in (layout.MANIFEST, layout.CACHE))
            return {name: value for name, value in found if value is not None}

        return await self._context.workers.run(read)

    async def progress(self, run_ids: Sequence[str]) -> dict[str, stores.RunProgress]:
        """Return the progress of runs from their run.json, as far as it can be read."""

        def read() -> dict[str, stores.RunProgress]:
            paths = ((run_id, f"{layout.run_folder(run_id)}/{layout.MANIFEST}") for run_id in run_ids)
            found = ((run_id, _progress(self._context.disk, path)) for run_id, path in paths)
            return {run_id: progress for run_id, progress in found if progress is not None}

        return await self._context.workers.run(read) if run_ids else {}

    async def receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return a receipt, even one that an open run has queued.

        Raises:
            errors.NotFound: no receipt has that id.
        """
        for log in list(self._logs.values()):
            if log.holds_receipt(receipt_id):
                # On a full disk, written files can still be read.
                with contextlib.suppress(errors.StorageFault):
                    await log.flush()
        place = await self._context.index.find_receipt(receipt_id)
        receipt = await self._context.workers.run(lambda: self._receipt_at(place)) if place else None
        if receipt is None:
            message = f"there is no receipt {receipt_id!r:.80}"
            raise errors.NotFound(message, code="receipt_not_found", detail={"receipt_id": receipt_id[:80]})
        return receipt

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[receipts.ListedReceipt]:
        """Return a page of receipts, including those that open runs have queued."""
        for log in list(self._logs.values()):
            start = log.loaded.start
            if query.run_id in (None, start.run_id) and query.session_id in (None, start.session_id):
                with contextlib.suppress(errors.StorageFault):
                    await log.flush()
        places = await self._context.index.list_receipts(query)

        def read() -> list[receipts.ListedReceipt]:
            found = ((place, self._receipt_at(place)) for place in places)
            return [receipts.listed(receipt or _lost(place), place.position) for place, receipt in found]

        return await self._context.workers.run(read)

    async def prove_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Verify a receipt and return it.

        Raises:
            errors.NotFound: no receipt has that id.
            errors.Conflict: `receipt_altered`.
        """
        receipt = await self.receipt(receipt_id)
        place = await self._context.index.find_receipt(receipt_id)
        filed_under = place.session_id if place else ""
        wrong = await self._context.workers.run(lambda: receipt_files.flaw(self._context.disk, receipt, filed_under))
        if wrong is not None:
            message = f"the receipt {receipt_id} {wrong}"
            raise errors.Conflict(message, code="receipt_altered", detail={"receipt_id": receipt_id})
        return receipt

    async def _log_missing_end(self, run_id: str, last: _Events) -> None:
        # If a disk lost the last events of a finished run, no later opening restores them.
        row = None if any(event.type == _ENDED for event in last) else await self._context.index.get_run(run_id)
        if row is None or not states.RunState(row.summary.status).finished or row.summary.error_code == _CORRUPT:
            return
        if self._context.disk.has_file(f"{layout.run_folder(run_id)}/{layout.EVENTS}"):
            _log.error("the run %s has ended, and its last events are missing", run_id)

    def _receipt_at(self, place: ReceiptPlace) -> dict[str, Any] | None:
        receipt = receipt_files.read_at(self._context.disk, place)
        if receipt is None:
            # The file has lost it, and a finished run is not opened again to restore it: the journal still proves it.
            _log.error("the receipt %s of run %s is rebuilt", place.receipt_id, place.run_id)
            with contextlib.suppress(errors.NotFound, errors.JournalCorrupt):
                receipt = self._proven_again(place)
        return receipt

    def _proven_again(self, place: ReceiptPlace) -> dict[str, Any] | None:
        known = authority.read(self._context.disk, place.run_id)
        folder = layout.run_folder(place.run_id)
        for record in known.records:
            if record.receipt_id == place.receipt_id:
                session_id = known.start.session_id
                return receipt_files.receipt_of(self._context.disk, place.run_id, folder, session_id, record)
        return None

    def _make_sure_of(self, run_id: str) -> None:
        if not self._context.disk.has_folder(layout.run_folder(run_id)):
            raise errors.no_run(run_id)


def _json(files: disk_port.Disk, path: str) -> Any | None:
    try:
        return json.loads(files.read(path))
    except (OSError, ValueError, RecursionError):
        return None


def _lost(place: ReceiptPlace) -> dict[str, Any]:
    # Neither its line nor its journal can be read; only its existence is known.
    return {"receipt_id": place.receipt_id, "session_id": place.session_id, "run_id": place.run_id}


def _progress(files: disk_port.Disk, path: str) -> stores.RunProgress | None:
    try:
        manifest = _json(files, path)
    except errors.Unreadable:
        # The list reports the unreadable file together with the run.
        return None
    if not isinstance(manifest, dict):
        return None
    finished, total = manifest.get("current_step_index"), manifest.get("total_steps")
    if type(finished) is not int or not (total is None or type(total) is int):
        return None
    return stores.RunProgress(finished_steps=finished, total_steps=total)
