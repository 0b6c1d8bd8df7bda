"""Deletion: only finished runs go, in one move, and their receipts stay."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain.decisions import DecisionKind
from app.engine.stores import RunQuery
from tests.conformance import houses
from tests.conformance.houses import RUN, House


async def test_a_finished_run_goes_and_its_receipts_stay(house: House) -> None:
    """A deleted run is nowhere any more, after a crash too; what proves its tool executions is."""
    log = await houses.begun(house)
    await log.add_receipt(await log.append_step(houses.proven("a")))
    await log.rest()
    await houses.end(log)
    await log.close()
    await house.store.delete(RUN)
    store = await house.crash()

    assert await store.list_runs(RunQuery()) == []
    with pytest.raises(errors.NotFound):
        await store.read(RUN)
    assert (await store.find_receipt("rcpt_a"))["payload"] == {"found": "a"}


async def test_an_unfinished_run_stays(house: House) -> None:
    """A run that has not ended cannot be deleted, whatever its row says."""
    log = await houses.begun(house)
    await log.close()
    with pytest.raises(errors.WrongState) as caught:
        await house.store.delete(RUN)

    assert caught.value.detail == {"run_id": RUN, "status": "running"}
    assert (await house.store.read(RUN)).decisions.taken == 1


async def test_a_resumed_run_stays(house: House) -> None:
    """A run that was sent on after its ending is unfinished again."""
    log = await houses.begun(house)
    await houses.end(log, "failed")
    await log.decide(DecisionKind.RESUMED, {"dead": []})
    await log.close()
    with pytest.raises(errors.WrongState):
        await house.store.delete(RUN)


async def test_a_damaged_run_can_be_deleted(house: House) -> None:
    """What can neither be read nor continued can go."""
    await houses.ended(house, "a", "b")
    house.change("steps.jsonl", lambda content: b"x" + content[1:])
    await house.store.delete(RUN)

    assert await house.store.list_runs(RunQuery()) == []


async def test_a_deletion_that_was_cut_off_is_finished_at_start(house: House) -> None:
    """A crash between the move to the trash and the row leaves no row, and an empty trash."""

    await houses.ended(house, "a")
    house.passed.at["storage.delete.before_row"] = houses.die
    with pytest.raises(houses.Died):
        await house.store.delete(RUN)
    house.passed.at.clear()
    store = await house.crash()
    left = await store.list_runs(RunQuery())
    await store.close()

    assert left == []
    assert house.files().names("runs/.trash") == []


async def test_a_store_that_dies_before_it_has_swept_leaves_no_fault_behind(house: House) -> None:
    """Its sweep is cancelled: an exception in it would be reported while something else is at work."""
    store = await house.crash()
    sweeping = store._sweeping
    store.abandon()

    assert sweeping is not None
    await asyncio.wait([sweeping])
    assert sweeping.cancelled()


async def test_the_trash_can_be_swept_at_once(house: House) -> None:
    """Whoever has the directory alone need not wait for a service to free the room."""
    await houses.ended(house, "a")
    await house.store.delete(RUN)
    await house.store.sweep()

    assert house.files().names("runs/.trash") == []


async def test_a_deleted_id_can_be_used_and_deleted_again(house: House) -> None:
    """Runs of one id can go to the trash one after the other, before it is swept."""
    for _ in range(3):
        await houses.ended(house, "a")
        await house.store.delete(RUN)
    await house.store.close()

    assert house.files().names("runs") == [".trash"]


async def test_a_deleted_run_frees_its_key(house: House) -> None:
    """After a run is deleted its idempotency key makes a new one."""
    keyed = {"idempotency_key": "k", "request_sha256": "h"}
    await houses.ended(house, **keyed)
    await house.store.delete(RUN)

    assert not (await house.store.create(houses.start("second", **keyed))).existed
