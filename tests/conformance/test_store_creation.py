"""Creation: an accepted run is never lost, and a repeated request makes no second one."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from app import errors
from app.engine.stores import RunQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

KEYED = {"idempotency_key": "k1", "request_sha256": "a" * 64}


async def test_a_created_run_is_there_with_all_its_facts(harness: StoreHarness) -> None:
    """A created run has all the facts of its request, and is listed as pending."""
    store = await harness.open()
    asked = store_harness.start(args={"x": 1}, labels={"team": "a"}, priority=7, description="Draft it", depth=1)
    created = await store.create(asked)
    loaded = await store.read(RUN)

    assert created.run_id == RUN
    assert not created.existed
    assert dataclasses.replace(loaded.start, data_directory_id=None) == asked
    assert loaded.start.data_directory_id is not None
    assert list(loaded.records) == []
    assert [run.status for run in await store.list_runs(RunQuery())] == ["pending"]


async def test_a_created_run_survives_a_crash(harness: StoreHarness) -> None:
    """A run survives a crash right after its creation, and is listed as unfinished."""
    await (await harness.open()).create(store_harness.start())
    store = await harness.crash()

    assert [run.run_id for run in await store.list_unfinished()] == [RUN]
    assert (await store.read(RUN)).start.recipe_id == "draft"


async def test_a_new_folder_has_its_manifest_and_first_event(harness: StoreHarness) -> None:
    """A new run has its run.json and the event `run.created` from the beginning."""
    store = await harness.open()
    await store.create(store_harness.start())
    manifest = (await store.read_snapshots(RUN))["run.json"]

    assert (manifest["run_id"], manifest["status"]) == (RUN, "pending")
    assert [(event.seq, event.type) for event in await store.read_events(RUN)] == [(1, "run.created")]


async def test_the_same_request_finds_its_run(harness: StoreHarness) -> None:
    """A second request with the same key and hash returns the first run."""
    store = await harness.open()
    await store.create(store_harness.start(**KEYED))
    again = await store.create(store_harness.start("another", **KEYED))

    assert again.run_id == RUN
    assert again.existed
    assert len(await store.list_runs(RunQuery())) == 1


async def test_another_request_with_the_key_is_refused(harness: StoreHarness) -> None:
    """The same key with another request is a conflict that names the first run."""
    store = await harness.open()
    await store.create(store_harness.start(**KEYED))
    with pytest.raises(errors.Conflict) as caught:
        await store.create(store_harness.start("another", **KEYED | {"request_sha256": "b" * 64}))

    assert caught.value.code == "idempotency_conflict"
    assert caught.value.detail["run_id"] == RUN


async def test_requests_at_the_same_time_make_one_run(harness: StoreHarness) -> None:
    """Of many equal requests at once, exactly one makes a run."""
    store = await harness.open()
    created = await asyncio.gather(*(store.create(store_harness.start(f"run{n}", **KEYED)) for n in range(8)))

    assert sum(not made.existed for made in created) == 1
    assert len({made.run_id for made in created}) == 1


async def test_a_key_is_found_though_its_row_was_never_written(harness: StoreHarness) -> None:
    """After a crash between the creation of a run's folder and its row, its key still finds the run."""

    store = await harness.open()
    harness.passed.at["storage.create.before_row"] = store_harness.die
    with pytest.raises(store_harness.Died):
        await store.create(store_harness.start(**KEYED))
    harness.passed.at.clear()
    store = await harness.crash()
    again = await store.create(store_harness.start("another", **KEYED))

    assert again.run_id == RUN
    assert again.existed


async def test_unfinished_runs_are_found_by_the_beginning_of_their_key(harness: StoreHarness) -> None:
    """A search by the beginning of a key finds only unfinished runs, case-sensitively, and also a run without a row."""
    store = await harness.open()
    keys = {RUN: "t:a:1", "ended": "t:a:2", "other": "t:A:3", "wild": "t_a:4", "last": "t:a:5", "without": None}
    for run_id, key in keys.items():
        if run_id == "last":
            harness.passed.at["storage.create.before_row"] = store_harness.die
            with pytest.raises(store_harness.Died):
                await store.create(store_harness.start(run_id, idempotency_key=key, request_sha256="a" * 64))
            harness.passed.at.clear()
            store = await harness.crash()
        else:
            await store.create(store_harness.start(run_id, idempotency_key=key, request_sha256="a" * 64))
    log = await store.open("ended")
    await store_harness.end(log)
    await log.close()

    assert await store.unfinished_under("t:a:") == [RUN, "last"]
    assert await store.unfinished_under("t:b:") == []


async def test_a_run_that_must_be_alone_waits_for_no_other(harness: StoreHarness) -> None:
    """`exclusive` refuses a second unfinished run of a recipe and names the first; a finished run does not block it."""
    store = await harness.open()
    await store.create(store_harness.start())
    with pytest.raises(errors.Conflict) as caught:
        await store.create(store_harness.start("second"), exclusive=True)
    await store.create(store_harness.start("other", recipe_id="other"), exclusive=True)
    log = await store.open(RUN)
    await store_harness.end(log)
    await log.close()
    created = await store.create(store_harness.start("third"), exclusive=True)

    assert caught.value.code == "recipe_busy"
    assert caught.value.detail["run_id"] == RUN
    assert created.run_id == "third"


async def test_an_id_is_given_once(harness: StoreHarness) -> None:
    """A second run with the same id is refused, and the first one does not change."""
    store = await harness.open()
    await store.create(store_harness.start())
    with pytest.raises(errors.Conflict) as caught:
        await store.create(store_harness.start(recipe_id="other"))

    assert caught.value.code == "run_exists"
    assert (await store.read(RUN)).start.recipe_id == "draft"


@pytest.mark.parametrize("place", [f".new-{RUN}", RUN])
async def test_a_folder_that_cannot_be_read_while_it_is_built_is_built_again(harness: StoreHarness, place: str) -> None:
    """A creation that fails because a folder is unreadable can be repeated with the same id."""
    store = await harness.open()
    harness.faults.refuse("look", place)
    with pytest.raises(errors.Unreadable):
        await store.create(store_harness.start())
    harness.faults.lift()
    await store.create(store_harness.start())

    assert [run.run_id for run in await store.list_runs(RunQuery())] == [RUN]
    assert (await store.read(RUN)).start.recipe_id == "draft"


@pytest.mark.parametrize("run_id", ["..", "", "a/b", "a" * 65, ".new-x", "run\n"])
async def test_an_id_stays_in_its_folder(harness: StoreHarness, run_id: str) -> None:
    """An invalid id is not found by any call."""
    store = await harness.open()
    for asked in (
        store.create(store_harness.start(run_id)),
        store.open(run_id),
        store.read(run_id),
        store.summary(run_id),
    ):
        with pytest.raises(errors.NotFound):
            await asked


async def test_a_half_built_run_is_removed_at_the_start(harness: StoreHarness) -> None:
    """A folder that a crash left half built is removed at the next start, and is never listed as a run."""
    await harness.open()
    harness.files().add_folder("runs/.new-half")
    harness.files().write("runs/.new-half/start.json", b"{}", sync=True)
    harness.files().sync_folder("runs")
    harness.files().sync_folder("runs/.new-half")
    store = await harness.crash()

    assert harness.files().names("runs") == [".trash"]
    assert await store.list_runs(RunQuery()) == []


async def test_start_json_has_the_facts_of_its_run(harness: StoreHarness) -> None:
    """start.json is one JSON object with the facts of the run."""
    store = await harness.open()
    await store.create(store_harness.start(args={"ö": [1, None]}))
    written = json.loads(harness.content("start.json"))

    assert written["args"] == {"ö": [1, None]}
    assert written["run_id"] == RUN


async def test_a_full_disk_takes_no_run(harness: StoreHarness) -> None:
    """On a full disk the store refuses a creation and leaves no folder, and accepts it once there is space."""
    store = await harness.open()
    harness.faults.refuse("write", "start.json")
    with pytest.raises(errors.WriteFailed):
        await store.create(store_harness.start())
    left = harness.files().names("runs")
    harness.faults.refuse("write")
    refused = await store.write_fault() is None
    harness.faults.lift()
    created = await store.create(store_harness.start())

    assert left == [".trash"]
    assert not refused
    assert await store.write_fault() is None
    assert not created.existed
