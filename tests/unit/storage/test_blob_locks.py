"""Blobs of branches that are written at the same time: none disturbs another."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest

from app import errors
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN

A_WHILE_SECONDS = 0.2
BLOB = b"x" * 70_000


class Held:
    """A thread that is held once, at some point."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._released = threading.Event()

    def stop(self) -> None:
        """Wait at this point, for the first thread only."""
        if not self._there.is_set():
            self._there.set()
            self._released.wait()

    async def is_there(self) -> None:
        """Wait until a thread is held."""
        await asyncio.to_thread(self._there.wait)

    def release(self) -> None:
        """Release the held thread."""
        self._released.set()


@pytest.mark.parametrize("others", [0, 1])
async def test_branches_may_have_the_same_output(harness: store_harness.FolderStoreHarness, others: int) -> None:
    """Two branches that write the same large output at once both have the blob, without a fault."""
    log, held = await store_harness.begun(harness), Held()
    for number in range(others):
        await log.put_blob(b"%d" % number + BLOB, text=True)
    harness.passed.at["storage.blob.before_rename"] = held.stop
    first = asyncio.create_task(log.put_blob(BLOB, text=True))
    await held.is_there()
    second = asyncio.create_task(log.put_blob(BLOB, text=True))
    await asyncio.wait([second], timeout=A_WHILE_SECONDS)
    held.release()
    found = await asyncio.gather(first, second)

    assert found[0] == found[1]
    assert await log.get_blob(found[0]) == BLOB.decode()


async def test_a_blob_is_not_lost_with_the_folder_of_another(
    harness: store_harness.FolderStoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first blob's folder cannot be made durable and is removed, a blob confirmed meanwhile is kept."""
    log, held = await store_harness.begun(harness), Held()
    disk = harness.store._parts.context.disk
    sync_folder, refused = disk.sync_folder, list[str]()

    def refuse_once(path: str) -> None:
        if path == f"runs/{RUN}" and not refused:
            refused.append(path)
            held.stop()
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        sync_folder(path)

    monkeypatch.setattr(disk, "sync_folder", refuse_once)
    first = asyncio.create_task(log.put_blob(BLOB, text=True))
    await held.is_there()
    second = asyncio.create_task(log.put_blob(b"other" + BLOB, text=True))
    await asyncio.wait([second], timeout=A_WHILE_SECONDS)
    held.release()
    kept = await second
    with pytest.raises(errors.StorageFault):
        await first

    assert await log.get_blob(kept) == "other" + BLOB.decode()
