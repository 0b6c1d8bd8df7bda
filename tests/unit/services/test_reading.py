"""Reading runs: ready bytes while a run is unchanged, and its current state after a change."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import clock, errors
from app.domain import decisions, records, slots, states, views
from app.engine import driver_scheduler, replay, stores
from app.services import run_reader
from app.storage import memory_store
from tests.unit.worker import pools, toys

DONE = states.RunState.DONE
ADDED = ("batch", "prev", "crc32", "event")  # Fields that the journal adds to a line.


class CountingStore(memory_store.MemoryStore):
    """A store in memory that counts reads of runs."""

    reads = 0
    returned: asyncio.Event | None = None

    async def read(self, run_id: str) -> stores.Loaded:
        """Read a run, and return it once the test allows it."""
        self.reads += 1
        loaded = await super().read(run_id)
        if self.returned is not None:
            await self.returned.wait()
        return loaded


@pytest.fixture
async def bench() -> AsyncIterator[pools.Bench]:
    """Return a pool over a counting store."""
    bench = pools.Bench(limit=2)
    bench.take_store(CountingStore(clock=bench.clock, probes=bench.probes))
    await bench.open()
    yield bench
    await bench.close()


def reader(bench: pools.Bench) -> run_reader.RunReader:
    """Return a reader of the bench's runs."""
    return run_reader.RunReader(store=bench.store, engine=bench.pool, drivers=bench.dialects, clock=bench.clock)


def reads(bench: pools.Bench) -> int:
    """Return how many reads of runs the store had."""
    assert isinstance(bench.store, CountingStore)
    return bench.store.reads


async def shown(reader: run_reader.RunReader, run_id: str) -> dict[str, Any]:
    """Return a run's consolidated answer."""
    answer: dict[str, Any] = json.loads((await reader.ready(run_id)).body)
    return answer


async def test_an_unchanged_run_is_answered_with_the_same_bytes(bench: pools.Bench) -> None:
    """An unchanged run is answered with the same bytes, without reading or encoding."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    reading_room = reader(bench)
    first = await reading_room.ready(run_id)
    again = await reading_room.ready(run_id)
    held.set()
    await bench.ended(run_id)
    after = await reading_room.ready(run_id)

    assert again is first
    assert (first.finished, after.finished) == (False, True)
    assert after.etag != first.etag


async def test_a_run_at_rest_is_read_once(bench: pools.Bench) -> None:
    """Simultaneous polls of an ended run share one read, and later ones need none."""
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    reading_room, before = reader(bench), reads(bench)
    answers = await asyncio.gather(*(reading_room.ready(run_id) for _ in range(20)))
    view = await reading_room.view(run_id)

    assert reads(bench) - before == 1
    assert len({answer.etag for answer in answers}) == 1
    assert [record.key for record in view.records] == ["one", "two"]


class LoadingPool:
    """A pool with a run that it has just loaded, before its driver has replayed any step."""

    def __init__(self, pool: Any, run_id: str, loaded: views.RunView) -> None:
        self._pool = pool
        self._views = {run_id: dataclasses.replace(loaded, board=slots.Board(), replaying=True)}

    def view(self, run_id: str) -> views.RunView | None:
        """Return the view of a loaded run."""
        return self._views.get(run_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


async def test_a_run_being_loaded_is_shown_from_its_journal(bench: pools.Bench) -> None:
    """A run that is being loaded is shown as its journal has it, not as done without steps."""
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    whole = await shown(reader(bench), run_id)
    loaded = await reader(bench).view(run_id)
    loading: Any = LoadingPool(bench.pool, run_id, loaded)
    meanwhile = run_reader.RunReader(store=bench.store, engine=loading, drivers=bench.dialects, clock=bench.clock)

    assert (whole["status"], whole["current_step_index"], list(whole["cache_summary"])) == ("done", 2, ["one", "two"])
    assert await shown(meanwhile, run_id) == whole


async def test_a_run_in_the_hands_of_another_process_is_read_afresh(bench: pools.Bench) -> None:
    """A change by another process is seen at the next poll."""
    run_id = await bench.create(*toys.tools("one"), owner="process")
    reading_room = reader(bench)
    before = await shown(reading_room, run_id)
    log = await bench.store.open(run_id)
    await log.decide(decisions.DecisionKind.PAUSED, {"reason": "paused_by_person"})
    await log.close()
    after = await shown(reading_room, run_id)

    assert (before["status"], after["status"]) == ("pending", "paused")


@pytest.mark.parametrize("limit", [None, 1])
async def test_each_line_of_a_run_in_the_hands_of_another_process_is_replayed_once(
    bench: pools.Bench, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """A poll of another process's run gives its driver only the new lines; after a resume it begins again."""
    keys = [f"s{number}" for number in range(20)]
    # With the limit, one branch has not begun when the run is shown.
    program: list[toys.Step] = [{"gather": {"a": toys.tools(*keys[:12]), "b": toys.tools(*keys[12:])}, "limit": limit}]
    done = await bench.submit(*program)
    await bench.ended(done)
    run_id, reading_room = await bench.create(*program, owner="process"), reader(bench)
    handed, hand_out = list[str](), replay.hand_out

    def counted(scheduler: driver_scheduler.DriverScheduler, record: records.Record, loaded: stores.Loaded) -> None:
        handed.append(record.key)
        hand_out(scheduler, record, loaded)

    monkeypatch.setattr(replay, "hand_out", counted)
    log = await bench.store.open(run_id)
    lines = [record.line for record in (await bench.store.read(done)).records]
    for count, line in enumerate(lines, 1):
        await log.append_step({name: line[name] for name in line if name not in ADDED})
        handed.clear()
        answer = await shown(reading_room, run_id)

        assert handed == [line["key"]]
        assert set(answer["cache_summary"]) == {line["key"] for line in lines[:count]}
    await log.decide(decisions.DecisionKind.RESUMED, {"dead": [[19, 19]]})
    await log.close()
    handed.clear()
    answer = await shown(reading_room, run_id)

    assert handed == [line["key"] for line in lines[:19]]
    assert set(answer["cache_summary"]) == set(handed)


async def test_a_queued_run_shows_its_reason_and_the_holder(bench: pools.Bench) -> None:
    """A run whose workspace is busy is pending, with the reason and the holder."""
    held = bench.toolbox.hold("one")
    holder = await bench.submit(*toys.tools("one"), exclusive_workspace=True)
    await bench.executed("one/1")
    waiting = await bench.submit(*toys.tools("two"), exclusive_workspace=True)
    answers = [await shown(reader(bench), run_id) for run_id in (holder, waiting)]
    held.set()

    assert [(answer["status"], answer["reason"], answer["holder"]) for answer in answers] == [
        ("running", None, None),
        ("pending", "workspace_busy", holder),
    ]


async def test_a_reported_ending_is_in_the_list_and_the_files(bench: pools.Bench) -> None:
    """A run that is reported as ended is also ended in the list and in its files."""
    reading_room = reader(bench)
    for _ in range(20):
        run_id = await bench.submit(*toys.tools("one", "two"))
        number = bench.pool.change_number(run_id)
        while not (await reading_room.ready(run_id)).finished:
            number = await bench.pool.changed(run_id, number)
        summary = await bench.store.summary(run_id)
        files = await bench.store.read_snapshots(run_id)

        assert (summary.status, files["run.json"]["status"]) == ("done", "done")
        assert files["run.json"]["completed_at"] == (await shown(reading_room, run_id))["completed_at"]


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_caller_and_a_later_read_get_the_same_ending(bench: pools.Bench, end: str) -> None:
    """A waiting caller gets the same bytes of an ended run as a later read of its folder, without reading it."""
    held = bench.toolbox.hold("two")
    if end == "failed":
        bench.toolbox.fail("two")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.executed("two/1")
    leaving, before = asyncio.create_task(bench.pool.left(run_id)), reads(bench)
    await pools.idle()
    if end == "cancelled":
        await bench.pool.cancel(run_id)
    held.set()
    seen = await reader(bench).ready(run_id, await pools.soon(leaving))
    reads_for_it = reads(bench) - before
    folder = await reader(bench).ready(run_id)

    assert json.loads(seen.body)["status"] == end
    assert seen == folder
    assert reads_for_it == 0


async def test_the_last_view_counts_only_for_an_ended_run(bench: pools.Bench) -> None:
    """The last view of a run counts only if the run had ended and was not resumed since."""
    bench.toolbox.fail("one")
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    leaving = asyncio.create_task(bench.pool.left(run_id))
    await pools.idle()
    held.set()
    last = await pools.soon(leaving)
    held.clear()
    await bench.resumed(run_id)
    await bench.executed("one/2")

    assert last is not None
    assert last.status is states.RunState.FAILED
    assert not (await reader(bench).ready(run_id, last)).finished

    held.set()


async def test_a_damaged_run_is_shown_as_failed(bench: pools.Bench) -> None:
    """A run with a damaged journal is answered as failed with the place, and its view is refused."""
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    bench.damage(run_id, "steps.jsonl")
    reading_room = reader(bench)
    answer = await shown(reading_room, run_id)

    assert (answer["status"], answer["error"]["code"], answer["steps"]) == ("failed", "journal_corrupt", [])
    with pytest.raises(errors.JournalCorrupt):
        await reading_room.view(run_id)


async def test_a_failed_reading_is_not_remembered(bench: pools.Bench) -> None:
    """A run that could not be read is read again at the next poll."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    whole = bench.store.disk.read(f"runs/{run_id}/steps.jsonl")
    bench.damage(run_id, "steps.jsonl")
    reading_room = reader(bench)
    damaged = await shown(reading_room, run_id)
    bench.store.disk.write(f"runs/{run_id}/steps.jsonl", whole, sync=True)
    mended = await shown(reading_room, run_id)

    assert (damaged["status"], mended["status"]) == ("failed", "done")


async def test_a_forgotten_run_is_not_found(bench: pools.Bench) -> None:
    """A deleted run is not answered from memory."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    reading_room = reader(bench)
    await reading_room.ready(run_id)
    await bench.store.delete(run_id)
    reading_room.forget(run_id)

    with pytest.raises(errors.NotFound):
        await reading_room.ready(run_id)


async def test_a_run_that_is_deleted_while_it_is_read_is_forgotten(bench: pools.Bench) -> None:
    """Reads during a run's deletion return the run, and later reads do not find it."""
    assert isinstance(bench.store, CountingStore)
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    reading_room, bench.store.returned = reader(bench), asyncio.Event()
    polls = [asyncio.create_task(reading_room.ready(run_id)) for _ in range(2)]
    await pools.idle()
    await bench.store.delete(run_id)
    reading_room.forget(run_id)
    bench.store.returned.set()
    answers = [await pools.soon(poll) for poll in polls]

    assert [answer.finished for answer in answers] == [True, True]
    with pytest.raises(errors.NotFound):
        await reading_room.ready(run_id)


async def test_only_so_much_is_kept(bench: pools.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest answers and views beyond the limits are dropped, and made again on request."""
    monkeypatch.setattr(run_reader, "READY_ANSWERS", 2)
    monkeypatch.setattr(run_reader, "STORED_VIEWS", 1)
    reading_room = reader(bench)
    run_ids = [await bench.submit(*toys.tools("one")) for _ in range(4)]
    await bench.ended(*run_ids)
    await asyncio.gather(*(bench.at_rest(run_id) for run_id in run_ids))
    for run_id in run_ids:
        await reading_room.ready(run_id)
    before = reads(bench)
    await reading_room.ready(run_ids[0])
    await reading_room.ready(run_ids[3])

    assert reads(bench) - before == 1


@given(st.text(max_size=80))
def test_a_text_that_cannot_be_an_id_is_not_found(text: str) -> None:
    """A text without the form of a run's id is not found, before any path is built from it."""
    try:
        run_reader.check_run_id(text)
    except errors.NotFound:
        return

    assert 1 <= len(text) <= 64
    assert not set(text) & set("./\\\0\n ")
    assert clock.RUN_ID_PATTERN
