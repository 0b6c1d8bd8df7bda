"""The rate document, and pauses of backends: the coordination of prompts between processes that share a store."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.storage import layout, project_file
from app.storage.disk.os_disk import OsDisk
from app.storage.rate_document import RateDocument
from app.storage.runs.disk_store import DiskStore
from tests.conformance.store_harness import FolderStoreHarness, Make


def _rates(store: DiskStore) -> RateDocument:
    assert store.shared_rates is not None
    return store.shared_rates


async def _counted(stores: Sequence[DiskStore]) -> list[int]:
    """Return the sorted numbers that two processes draw at once from their document; each should occur only once."""

    def draw(document: Any, _: float) -> tuple[Any, int]:
        number = (document or {"drawn": 0})["drawn"] + 1
        return {"drawn": number}, number

    return sorted(await asyncio.gather(*(_rates(stores[turn % 2]).change(draw) for turn in range(12))))


async def test_processes_change_the_document_of_rates_one_after_the_other(make: Make) -> None:
    """No change of the rate document is lost, and a process that dies while it holds the document blocks no other."""
    processes = [make(), make()]
    stores = [await process.open() for process in processes]
    numbers = await _counted(stores)
    # The server may not have noticed yet that the last change is over.
    held = functools.partial(stores[0].bare_disk().lock, layout.RATES, wait=True)  # type: ignore[attr-defined]
    assert await asyncio.to_thread(held) is not None
    stores[0].abandon()
    [number] = await asyncio.wait_for(
        asyncio.gather(_rates(stores[1]).change(lambda document, _: (None, document))), 30
    )

    assert numbers == list(range(1, 13))
    assert number == {"drawn": 12}


async def test_processes_that_share_folders_change_the_document_of_rates_one_after_the_other(
    tmp_path: Path, migrated: bytes
) -> None:
    """Processes that share folders lose no change of the rate document."""
    harness = FolderStoreHarness(tmp_path, migrated)
    stores = [harness.store, harness.another()]
    async with contextlib.AsyncExitStack() as closing:
        for store in stores:
            store.share()
            await store.start(serve=False)
            closing.push_async_callback(store.close)

        assert await _counted(stores) == list(range(1, 13))


async def test_pauses_of_backends_are_in_the_store(make: Make) -> None:
    """A pause that one process writes is in the copy of the other, even after the first was killed."""
    processes = [make(), make()]
    stores = [await process.open() for process in processes]
    files = [project_file.ProjectFile(OsDisk(each.place / layout.COMMON), "rate_limits.json") for each in processes]
    for file, store in zip(files, stores, strict=True):
        file.common = store.common
    files[0].write({"pauses": []})
    stores[0].abandon()
    files[1].renew()

    assert files[1].read() == {"pauses": []}
