"""The run store of commands that only read: it takes no lock and writes no file, whether or not a service runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from app import clock
from app.engine import event_feed, probes
from app.storage.committer import FileCommitter
from app.storage.data_directory import DataDirectory
from app.storage.disk import disk_port
from app.storage.disk.checked_disk import CheckedDisk
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.os_disk import OsDisk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import AdaptiveInlineWorker, WorkerThreads
from app.storage.index import read_only_index
from app.storage.objects import mark
from app.storage.runs import stored_runs
from app.storage.runs.run_folders import Adopt
from app.storage.runs.stored_runs import StoredRuns
from app.storage.storage_context import StorageContext, WriteThrottle

if TYPE_CHECKING:
    from app.storage.runs.inspection import Inspection


class ReadOnlyDisk(OsDisk):
    """`Disk` that refuses every write, and whose locks exclude no one."""

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        return self.read(path, offset)

    def lock(self, folder: str, *, wait: bool = False) -> disk_port.Lock:
        return _NoLock()

    def add_folder(self, path: str) -> bool:
        raise _refused(path)

    def append_to(self, path: str) -> disk_port.AppendFile:
        raise _refused(path)

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        raise _refused(path)

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        raise _refused(path)

    def rename(self, old: str, new: str) -> None:
        raise _refused(old)

    def sync_folder(self, path: str) -> None:
        raise _refused(path)

    def syncer(self, folders: Iterable[str]) -> disk_port.Syncer:
        raise _refused("")

    def remove(self, path: str) -> None:
        raise _refused(path)

    def remove_tree(self, path: str) -> None:
        raise _refused(path)


class ReadOnlyStore(StoredRuns):
    """Runs in folders that are only read; rows are compared with the folders before the first answer.

    Args:
        index: The index's file.
        blobs_url: Object storage of blobs; None: they are in the folders.
    """

    def __init__(
        self,
        directory: DataDirectory,
        index: Path,
        *,
        clock: clock.Clock,
        adopt: Adopt | None = None,
        blobs_url: str | None = None,
    ) -> None:
        super().__init__(adopt)
        self._directory = directory
        self._index = index
        self._clock = clock
        self._blobs = mark.Target(url=blobs_url, looks_only=True)
        self._threads = WorkerThreads(1, "storage")

    async def __aenter__(self) -> ReadOnlyStore:
        context, identity = self._prepare()
        context.read_faults.begin(context.workers)
        is_new = await context.index.start()
        self._open_parts = stored_runs.read_parts(context, identity, self._adopt, index_is_new=is_new, serves=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        context, self._open_parts = self._parts.context, None
        context.read_faults.end()
        context.committer.close()
        await context.index.close()
        self._threads.close()

    @property
    def maintenance(self) -> Inspection:
        """Return the checks of runs."""
        from app.storage.runs.inspection import Inspection

        return Inspection(self._parts.context)

    def _prepare(self) -> tuple[StorageContext, str]:
        faults, identity = ReadFaults(self._clock), self._directory.read_identity()
        disk = mark.opened(ReadOnlyDisk(self._directory.path), self._blobs, identity)
        context = StorageContext(
            disk=CheckedDisk(disk, faults),
            bare_disk=disk,
            read_faults=faults,
            committer=FileCommitter(self._threads, probes.NoProbes()),
            workers=AdaptiveInlineWorker(self._threads),
            quick_workers=AdaptiveInlineWorker(self._threads),
            index=read_only_index.opened(self._index),
            disk_health=DiskHealth(),
            clock=self._clock,
            probes=probes.NoProbes(),
            throttle=WriteThrottle(0.0),
            feed=event_feed.EventFeed(self._clock.monotonic),
        )
        return context, identity


class _NoLock:
    def release(self) -> None:
        pass


def _refused(path: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
