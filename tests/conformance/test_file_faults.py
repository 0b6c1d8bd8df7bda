"""Faults of files and folders, on each kind of disk with files."""

from __future__ import annotations

import errno

import pytest

from app import errors
from app.engine.stores import RunQuery
from app.storage import layout
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, Died, StoreHarness

KEYED = {"idempotency_key": "k1", "request_sha256": "a" * 64}
BIRTH = (
    "storage.create.before_folder",
    "storage.create.before_start",
    "storage.commit.before_segment",
    "storage.commit.before_write",
    "storage.commit.before_sync",
    "storage.commit.after_sync",
    "storage.create.before_rename",
    "storage.create.before_row",
    "storage.create.after_row",
)


@pytest.mark.parametrize("point", BIRTH)
async def test_wherever_a_creation_dies_the_run_is_whole_or_not_there(file_harness: StoreHarness, point: str) -> None:
    """After a death at any point of its creation, a run exists whole or not at all, and only one run exists later."""
    store = await file_harness.open()
    file_harness.passed.at[point] = store_harness.die
    with pytest.raises(Died):
        await store.create(store_harness.start(**KEYED))
    file_harness.passed.at.clear()
    store = await file_harness.crash()
    found = [run.run_id for run in await store.list_unfinished()]
    again = await store.create(store_harness.start("second", **KEYED))

    assert found in ([], [RUN])
    assert again.existed == bool(found)
    assert [run.run_id for run in await store.list_runs(RunQuery())] == [again.run_id]
    assert (await store.maintenance.verify(again.run_id))["ok"]
    assert file_harness.passed.points[point]
    assert layout.run_ids(file_harness.files().names("runs")) == [again.run_id]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_short_write_can_be_repeated(file_harness: StoreHarness, code: int) -> None:
    """A partly written line does not count, and the same line can be appended after healing."""
    log = await store_harness.begun(file_harness)
    first = await log.append_step(store_harness.step("a"))
    file_harness.faults.refuse("short", "steps.jsonl", code)
    with pytest.raises(errors.StorageFault):
        await log.append_step(store_harness.step("b"))
    file_harness.faults.lift()
    await log.heal()
    second = await log.append_step(store_harness.step("b"))
    store = await file_harness.crash()

    assert list((await store.read(RUN)).records) == [first, second]


async def test_a_folder_that_turns_up_is_found(file_harness: StoreHarness) -> None:
    """A run whose folder returns while the store is open is found on request."""
    await store_harness.ended(file_harness, "a")
    file_harness.files().rename(f"runs/{RUN}", "audit/away")
    await file_harness.store.rebuild_index()
    gone = await file_harness.store.list_runs(RunQuery())
    file_harness.files().rename("audit/away", f"runs/{RUN}")

    assert not gone
    assert (await file_harness.store.summary(RUN)).recipe_id == "draft"
