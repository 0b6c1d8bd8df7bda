"""Parts of a store that fail when a test makes them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence

from app import errors
from app.domain import plain, records, runs
from app.engine import ports, stores
from app.storage import memory_store
from app.storage.disk import memory_disk
from app.storage.disk.disk_port import AppendFile
from app.storage.index import memory_index
from tests.unit.worker import toys


class FullDisk(memory_disk.MemoryDisk):
    """A disk without room while `full`."""

    full = False

    def append_to(self, path: str) -> AppendFile:
        """Open a file for appending."""
        return _Appending(self, super().append_to(path))

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        """Make or overwrite a file."""
        self.refuse()
        super().write(path, content, sync=sync)

    def refuse(self) -> None:
        """Fail if the disk has no room."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class BadBlobs(memory_disk.MemoryDisk):
    """A disk whose outputs cannot be read while `bad`."""

    bad = False

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a file."""
        if self.bad and "/blobs/" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(path, offset, size)


class LostIndex(memory_index.MemoryIndex):
    """An index that cannot be reached while `lost`."""

    lost = False

    async def move(self, transition: runs.Transition) -> bool:
        """Apply a move."""
        self._refuse()
        return await super().move(transition)

    async def set_owner(self, run_id: str, owner: str) -> None:
        """Record which process continues a run."""
        self._refuse()
        await super().set_owner(run_id, owner)

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        """Return unfinished runs."""
        self._refuse()
        return await super().list_unfinished(key_prefix)

    def _refuse(self) -> None:
        if self.lost:
            raise errors.StorageFault("the index cannot be reached")


class OddFolder(memory_store.MemoryStore):
    """A store that fails to open one run."""

    odd: str | None = None

    async def open(self, run_id: str) -> stores.RunLog:  # type: ignore[override]
        """Open a run."""
        if run_id == self.odd:
            raise TypeError("nobody thought of this")
        return await super().open(run_id)


class LateReads(memory_store.MemoryStore):
    """A store that reads waiting runs when the test lets it, and whose files cannot be read while `bad`."""

    bad = False

    def let_read(self) -> asyncio.Event:
        """Hold back the reads of recovery until the returned event is set."""
        self._let = asyncio.Event()
        return self._let

    async def read_sound(self, run_ids: Sequence[str]) -> list[stores.Loaded]:
        """Return the sound runs among the given ones."""
        await self._let.wait()
        return await super().read_sound(run_ids)

    async def read_blob(self, run_id: str, blob: records.BlobRef) -> plain.Json:
        """Return an output."""
        self._refuse()
        return await super().read_blob(run_id, blob)

    async def open(self, run_id: str) -> stores.RunLog:  # type: ignore[override]
        """Open a run."""
        self._refuse()
        return await super().open(run_id)

    def _refuse(self) -> None:
        if self.bad:
            raise errors.Unreadable("it cannot be read now")


class OddRecipes(toys.Toy):
    """A language that fails while `trouble`: where a run is loaded, once its folder is open."""

    trouble: Exception | None = None

    def secrets(self, document: Mapping[str, plain.Json]) -> ports.Secrets:
        """Return no secrets."""
        if self.trouble is not None:
            raise self.trouble
        return ports.Secrets()


class _Appending:
    def __init__(self, disk: FullDisk, file: AppendFile) -> None:
        self._disk = disk
        self._file = file

    def write(self, content: bytes) -> None:
        self._disk.refuse()
        self._file.write(content)

    def sync(self) -> None:
        self._disk.refuse()
        self._file.sync()

    def close(self) -> None:
        self._file.close()
