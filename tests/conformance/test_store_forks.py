"""Forks: a run that begins with steps of another run has all of them, or does not exist."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from app import errors
from app.domain import records
from app.engine import fork_replay, stores
from app.engine.stores import RunQuery
from tests import smoke
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

pytestmark = pytest.mark.blobs

FORK = "20260210T143000Z-forked"
LARGE = "The lantern was dark. " * 4000

POINTS = (
    "storage.create.before_folder",
    "storage.inherit.before_blob",
    "storage.inherit.before_steps",
    "storage.inherit.after_steps",
    "storage.create.before_start",
    "storage.create.before_folder_sync",
    "storage.create.before_rename",
    "storage.create.before_runs_sync",
    "storage.create.before_row",
    "storage.create.after_row",
)


async def taken_over(harness: StoreHarness) -> stores.TakenOver:
    """Create a source with a small and a large output, and return its steps."""
    log = await store_harness.begun(harness)
    blob = await log.put_blob(LARGE.encode(), text=True)
    digest = f"sha256:{blob.sha256}"
    await log.append_step(store_harness.step("a", output="small"))
    await log.append_step(store_harness.step("b") | {"output": None, "blob": blob.to_json(), "output_hash": digest})
    await store_harness.end(log)
    await log.close()
    found = (await harness.store.read(RUN)).records
    return stores.TakenOver(
        source=RUN,
        lines=[fork_replay.line(record) for record in found],
        blobs=[blob for record in found for blob in record.blobs()],
    )


def start(**facts: Any) -> Any:
    """Return the start of the fork."""
    return store_harness.start(FORK, forked_from=RUN, up_to=2, id_root=RUN, source_hash="0" * 64, **facts)


async def whole(store: stores.RunStore) -> bool:
    """Return whether the fork exists, after verifying that it is whole."""
    try:
        found = await store.read(FORK)
    except errors.NotFound:
        return False
    blobs = [blob for record in found.records for blob in record.blobs()]

    assert [record.key for record in found.records] == ["a", "b"]
    assert all(record.line["taken_over"] and record.usage is None for record in found.records)
    assert [await store.read_blob(FORK, blob) for blob in blobs] == [LARGE]
    assert (found.start.forked_from, found.start.root_id) == (RUN, RUN)
    assert (await store.maintenance.verify(FORK))["ok"]
    return True


async def test_a_fork_is_there_with_its_steps(harness: StoreHarness) -> None:
    """A fork keeps its steps after its source is deleted, and its row has no usage."""
    steps = await taken_over(harness)
    await harness.store.create(start(), taken_over=steps)
    row = await harness.store.summary(FORK)
    log = await harness.store.open(FORK)
    await log.append_step(store_harness.step("c"))
    await log.close()
    await harness.store.delete(RUN)
    found = await harness.store.read(FORK)

    assert [record.key for record in found.records] == ["a", "b", "c"]
    assert (row.status, row.usage) == ("pending", records.Usage())
    assert [event.type for event in await harness.store.read_events(FORK)].count("run.created") == 1


@pytest.mark.parametrize("point", smoke.only("storage.create.before_rename", POINTS))
async def test_no_crash_leaves_half_a_fork(harness: StoreHarness, point: str) -> None:
    """After a death at any point of its creation, the fork is whole or missing, and can then be created."""
    steps = await taken_over(harness)
    harness.passed.at[point] = store_harness.die
    with contextlib.suppress(store_harness.Died):
        async with asyncio.timeout(60):
            await harness.store.create(start(), taken_over=steps)
    harness.passed.at.clear()
    store = await harness.crash()
    there = await whole(store)
    if not there:
        await store.create(start(), taken_over=steps)

    assert await whole(store)
    assert there == (point in POINTS[-3:]) or point == "storage.create.before_runs_sync"
    assert sorted(run.run_id for run in await store.list_runs(RunQuery())) == sorted([RUN, FORK])


async def test_a_source_without_its_blob_is_refused(harness: StoreHarness) -> None:
    """A source with a damaged blob is refused, and no part of the fork remains."""
    steps = await taken_over(harness)
    harness.put(f"blobs/{steps.blobs[0].sha256}", b"changed")
    with pytest.raises(errors.JournalCorrupt):
        await harness.store.create(start(), taken_over=steps)

    assert [run.run_id for run in await harness.store.list_runs(RunQuery())] == [RUN]
    assert not harness.files().has_folder(f"runs/.new-{FORK}")
