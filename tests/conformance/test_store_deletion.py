"""Deletion: only finished runs can be deleted, in one move, and their receipts stay."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain.decisions import DecisionKind
from app.engine.stores import RunQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

pytestmark = pytest.mark.blobs


async def test_a_finished_run_goes_and_its_receipts_stay(harness: StoreHarness) -> None:
    """A deleted run stays deleted after a crash, and its receipt stays."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await log.flush()
    await store_harness.end(log)
    await log.close()
    await harness.store.delete(RUN)
    store = await harness.crash()

    assert await store.list_runs(RunQuery()) == []
    with pytest.raises(errors.NotFound):
        await store.read(RUN)
    assert (await store.find_receipt("rcpt_a"))["payload"] == {"found": "a"}


async def test_an_unfinished_run_stays(harness: StoreHarness) -> None:
    """A run that has not ended cannot be deleted."""
    log = await store_harness.begun(harness)
    await log.close()
    with pytest.raises(errors.WrongState) as caught:
        await harness.store.delete(RUN)

    assert caught.value.detail == {"run_id": RUN, "status": "running"}
    assert (await harness.store.read(RUN)).decisions.taken == 1


async def test_a_resumed_run_stays(harness: StoreHarness) -> None:
    """A resumed run is unfinished again, and cannot be deleted."""
    log = await store_harness.begun(harness)
    await store_harness.end(log, "failed")
    await log.decide(DecisionKind.RESUMED, {"dead": []})
    await log.close()
    with pytest.raises(errors.WrongState):
        await harness.store.delete(RUN)


async def test_a_damaged_run_can_be_deleted(harness: StoreHarness) -> None:
    """A damaged run can be deleted."""
    await store_harness.ended(harness, "a", "b")
    harness.change("steps.jsonl", lambda content: b"x" + content[1:])
    await harness.store.delete(RUN)

    assert await harness.store.list_runs(RunQuery()) == []


async def test_a_deletion_that_was_cut_off_is_finished_at_start(harness: StoreHarness) -> None:
    """After a crash between the move to the trash and the row, the next start removes the row and empties the trash."""

    await store_harness.ended(harness, "a")
    harness.passed.at["storage.delete.before_row"] = store_harness.die
    with pytest.raises(store_harness.Died):
        await harness.store.delete(RUN)
    harness.passed.at.clear()
    store = await harness.crash()
    left = await store.list_runs(RunQuery())
    # The sweep at the start, which a close would interrupt.
    assert store._sweeping is not None
    await asyncio.wait([store._sweeping])
    await store.close()

    assert left == []
    assert harness.files().names("runs/.trash") == []


async def test_a_store_that_dies_before_it_has_swept_leaves_no_fault_behind(harness: StoreHarness) -> None:
    """Abandoning a store cancels its sweep, so that no exception of it appears later."""
    await store_harness.ended(harness, "a")
    await harness.store.sweep()
    await harness.store.delete(RUN)
    sweeping = harness.store._sweeping
    harness.store.abandon()

    assert sweeping is not None
    await asyncio.wait([sweeping])
    assert sweeping.cancelled()


async def test_the_trash_can_be_swept_at_once(harness: StoreHarness) -> None:
    """The trash can be swept at once, without a running service."""
    await store_harness.ended(harness, "a")
    await harness.store.delete(RUN)
    await harness.store.sweep()

    assert harness.files().names("runs/.trash") == []


async def test_a_deleted_id_can_be_used_and_deleted_again(harness: StoreHarness) -> None:
    """Runs with the same id can be deleted one after the other before the trash is swept."""
    for _ in range(3):
        await store_harness.ended(harness, "a")
        await harness.store.delete(RUN)
    await harness.store.close()

    assert harness.files().names("runs") == [".trash"]


async def test_a_deleted_run_frees_its_key(harness: StoreHarness) -> None:
    """After a run is deleted, its idempotency key makes a new run."""
    keyed = {"idempotency_key": "k", "request_sha256": "h"}
    await store_harness.ended(harness, **keyed)
    await harness.store.delete(RUN)

    assert not (await harness.store.create(store_harness.start("second", **keyed))).existed
