"""Blobs: outputs too large for a journal line, each in a file named by its hash."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable

from app import errors
from app.domain import plain, records
from app.engine import aio
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.journal import damage

FOLDER = layout.BLOBS

_HASH = re.compile(r"[0-9a-f]{64}")


def put(files: Disk, folder: str, content: bytes, *, text: bool, reach: Callable[[str], None]) -> records.BlobRef:
    """Store an output durably, including its name; an existing blob is only checked."""
    blob = records.BlobRef(sha256=plain.sha256(content), size_bytes=len(content), text=text)
    place = f"{folder}/{FOLDER}"
    if disk_port.make_folder(files, place):
        _make_durable(files, folder, place)
    if _is_kept(files, f"{place}/{blob.sha256}", blob):
        files.sync_folder(place)
    else:
        disk_port.replace(files, f"{place}/{blob.sha256}", content, sync=True, reach=reach, at="storage.blob")
    return blob


def get(files: Disk, run_id: str, folder: str, blob: records.BlobRef) -> bytes:
    """Return a blob's content.

    Raises:
        errors.JournalCorrupt: it is missing or does not match its hash.
    """
    path = f"{FOLDER}/{blob.sha256}"
    if not _HASH.fullmatch(str(blob.sha256)):
        raise damage.corrupt(run_id, FOLDER, f"holds nothing of the name {blob.sha256!r:.80}")
    try:
        content = files.read(f"{folder}/{path}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise damage.corrupt(run_id, path, "is missing") from error
    except OSError as error:
        raise damage.corrupt(run_id, path, f"cannot be loaded as a file ({error.strerror})") from error
    if len(content) != blob.size_bytes or plain.sha256(content) != blob.sha256:
        raise damage.corrupt(run_id, path, "is not what its name says")
    return content


def value(files: Disk, run_id: str, folder: str, blob: records.BlobRef) -> plain.Json:
    """Return a blob's text or JSON.

    Raises:
        errors.JournalCorrupt: it is missing or does not match its hash.
    """
    content = get(files, run_id, folder, blob)
    return content.decode() if blob.text else json.loads(content)


def flaw(files: Disk, run_id: str, folder: str, blob: records.BlobRef) -> str | None:
    """Return the flaw of a blob, if it has one."""
    try:
        get(files, run_id, folder, blob)
    except errors.JournalCorrupt as error:
        return f"refers to {error.detail['file']}, which {error.detail['reason']}"
    return None


def _make_durable(files: Disk, folder: str, place: str) -> None:
    try:
        files.sync_folder(folder)
        # A new run may be durable only in the commit log.
        files.sync_folder(layout.RUNS)
    except OSError:
        # A retry must find it new.
        files.remove_tree(place)
        raise


def _is_kept(files: Disk, path: str, blob: records.BlobRef) -> bool:
    try:
        return files.has_file(path) and plain.sha256(files.read(path)) == blob.sha256
    except errors.Unreadable:
        # It is written again.
        return False


class BlobLocks:
    """Serialises branches that may write the same blob, which has one file; a run's first blob is written alone."""

    def __init__(self) -> None:
        self._first = asyncio.Lock()
        self._there = False
        self._of_length = aio.KeyedLock()

    @contextlib.asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold the lock for blobs of this size; for work that is not cancelled, since its thread continues."""
        if not self._there:
            async with self._first:
                if not self._there:
                    # The folder of blobs is new, and is removed again if it cannot be made durable.
                    yield
                    self._there = True
                    return
        async with self._of_length.of(size_bytes):
            yield
