"""The index queue: rows are written together, a moment later, and a reader sees every row given before."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import runs
from app.domain.runs import Transition
from app.domain.states import RunState
from app.engine import stores
from app.storage.disk.disk_health import DiskHealth
from app.storage.index import index_port, index_queue
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.index_queue import IndexQueue
from app.storage.index.memory_index import MemoryIndex
from app.storage.index.sql.index import SqlIndex
from tests.conformance import store_harness

AT = "2026-02-10T14:31:00.000Z"
LATER = "2026-02-10T14:32:00.000Z"


class Database(MemoryIndex):
    """An index that is slow, records its rows, and can refuse them."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[int, int, int]] = []
        self.refuses = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.begun = asyncio.Event()
        self.refused = asyncio.Event()
        self.written = asyncio.Event()

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        given = list(rows), list(moves), list(places)
        self.given.append((len(given[0]), len(given[1]), len(given[2])))
        self.begun.set()
        await self.goes_on.wait()
        if self.refuses:
            self.refused.set()
            raise errors.StorageFault("the index is full", detail={"file": "index"})
        await super().apply(*given)
        self.written.set()

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        if self.refuses:
            raise errors.StorageFault("the index is full", detail={"file": "index"})
        await super().add_missing(found)


class Queue:
    """A queue before a database."""

    def __init__(self) -> None:
        self.database = Database()
        self.disk_health = DiskHealth()
        self.index = IndexQueue(self.database, self.disk_health)


@pytest.fixture
async def queue() -> Any:
    """Return a queue, and close it in the end."""
    made = Queue()
    await made.index.start()
    yield made
    made.database.refuses = False
    made.database.goes_on.set()
    await made.index.close()


def row(run_id: str = "a", **facts: Any) -> IndexedRun:
    """Return the row of a new run."""
    return index_port.row_of(store_harness.start(run_id, **facts), RunState.PENDING, AT, name=run_id, owner="service")


def place(receipt_id: str, offset: int = 0) -> ReceiptPlace:
    """Return the place of a receipt."""
    return ReceiptPlace(receipt_id=receipt_id, session_id="work", run_id="a", offset_bytes=offset)


def ids(found: list[stores.RunSummary]) -> list[str]:
    """Return the runs and their states."""
    return [f"{run.run_id} {run.status}" for run in found]


async def listed(queue: Queue) -> list[str]:
    """Return all runs."""
    return ids(await queue.index.list_runs(stores.RunQuery()))


# -- together, and in order


async def test_rows_of_the_same_moment_share_a_transaction(queue: Queue) -> None:
    """A hundred runs that come, move and leave a receipt need one transaction."""
    for number in range(100):
        await queue.index.put_run(row(f"r{number}"))
        await queue.index.move_soon(Transition.begin(f"r{number}", AT))
        await queue.index.add_receipts([place(f"rcpt_{number}")])
    before = list(queue.database.given)
    await queue.index.flush()

    assert before == []
    assert queue.database.given == [(100, 0, 100)]
    assert (await queue.database.count_by_status()) == {"running": 100}


async def test_a_waiting_row_is_written_without_a_request(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes see a row a moment after it came, without a request for it."""
    monkeypatch.setattr(index_queue, "PAUSE_SECONDS", 0)
    await queue.index.put_run(row())
    await asyncio.wait_for(queue.database.written.wait(), 60)

    assert queue.database.given == [(1, 0, 0)]


async def test_every_query_includes_the_waiting_rows(queue: Queue) -> None:
    """Lists, counts, keys and receipts include the waiting rows."""
    await queue.index.put_run(row(idempotency_key="k", request_sha256="h"))
    found = [await listed(queue), ids(await queue.index.list_unfinished()), sorted(await queue.index.run_ids())]
    await queue.index.move_soon(Transition.begin("a", AT))
    counted = await queue.index.count_by_status()
    await queue.index.add_receipts([place("rcpt_1")])
    keyed, receipt = await queue.index.find_key("k"), await queue.index.find_receipt("rcpt_1")

    assert found == [["a pending"], ["a pending"], ["a"]]
    assert counted == {"running": 1}
    assert await queue.index.find_busy("draft") == "a"
    assert keyed is not None
    assert keyed.summary.status == "running"
    assert receipt == place("rcpt_1")


async def test_a_move_that_must_be_exact_comes_after_those_that_wait(queue: Queue) -> None:
    """A run that ended a moment ago can be resumed, and one that has not ended cannot."""
    await queue.index.put_run(row())
    refused = await queue.index.move(Transition.end("a", RunState.DONE, AT))
    await queue.index.move_soon(Transition.begin("a", AT))
    await queue.index.move_soon(Transition.end("a", RunState.FAILED, AT))
    resumed = await queue.index.move(Transition.queue("a", LATER))

    assert (refused, resumed) == (False, True)
    assert await listed(queue) == ["a pending"]


async def test_a_row_is_known_while_it_is_written(queue: Queue) -> None:
    """A reader that asks for a run in the middle of a transaction waits for it."""
    queue.database.goes_on.clear()
    await queue.index.put_run(row())
    await queue.index.get_run("a")
    flushing = asyncio.create_task(queue.index.flush())
    await asyncio.sleep(0)
    await queue.index.move_soon(Transition.begin("a", AT))
    asking = asyncio.create_task(queue.index.get_run("a"))
    await asyncio.sleep(0)
    early = asking.done()
    queue.database.goes_on.set()
    await flushing
    found = await asking

    assert not early
    assert found is not None
    assert found.summary.status == "running"


async def test_a_new_row_is_read_once_without_the_database(queue: Queue) -> None:
    """A new run is found although its row was written meanwhile, and so are its later changes."""
    await queue.index.put_run(row("a"))
    await queue.index.put_run(row("b"))
    await queue.index.flush()
    await queue.index.set_owner("b", "process")
    found = await queue.index.get_run("a"), await queue.index.get_run("b")

    assert [run.summary.owner for run in found if run] == ["service", "process"]


async def test_a_repeated_receipt_is_found_at_its_later_place(queue: Queue) -> None:
    """Of two places of one receipt the later is found, as when a run is opened again."""
    await queue.index.add_receipts([place("rcpt_1", 0), place("rcpt_2", 10)])
    await queue.index.add_receipts([place("rcpt_1", 20)])
    await queue.index.flush()

    assert queue.database.given == [(0, 0, 2)]
    assert await queue.index.find_receipt("rcpt_1") == place("rcpt_1", 20)


async def test_a_removed_run_does_not_come_back(queue: Queue) -> None:
    """A row that waits, or is being written, is not written after its removal."""
    queue.database.goes_on.clear()
    await queue.index.put_run(row("a"))
    flushing = asyncio.create_task(queue.index.flush())
    await asyncio.sleep(0)
    await queue.index.put_run(row("b"))
    await queue.index.move_soon(Transition.begin("a", AT))
    removing = [asyncio.create_task(queue.index.remove_run(run_id)) for run_id in "ab"]
    await asyncio.sleep(0)
    queue.database.goes_on.set()
    await asyncio.gather(flushing, *removing)

    assert await listed(queue) == []
    assert await queue.index.get_run("a") is None


async def test_a_reader_does_not_wait_for_later_rows(queue: Queue) -> None:
    """A reader is answered after two transactions at most, however many rows come meanwhile."""
    await queue.index.put_run(row("first"))

    async def keep_coming() -> None:
        for number in range(1000):
            await queue.index.put_run(row(f"r{number}"))
            await asyncio.sleep(0)

    coming = asyncio.create_task(keep_coming())
    await asyncio.sleep(0)
    await queue.index.flush()
    early = not coming.done()
    await coming

    assert early


# -- failures


async def test_rows_that_are_refused_wait_and_are_written_in_the_end(queue: Queue) -> None:
    """While the index refuses, reads return as much as they can; afterwards every row is written, in order."""
    await queue.index.put_run(row("old"))
    await queue.index.flush()
    queue.database.refuses = True
    await queue.index.put_run(row("new", idempotency_key="k", request_sha256="h"))
    await queue.index.move_soon(Transition.begin("old", AT))
    await queue.index.add_receipts([place("rcpt_1")])
    with pytest.raises(errors.StorageFault) as caught:
        await queue.index.flush()
    await queue.index.move_soon(Transition.end("old", RunState.DONE, LATER))
    await queue.index.get_run("new")
    seen = await queue.index.get_run("old"), await queue.index.find_key("k"), await queue.index.get_run("new")
    shown = await listed(queue), await queue.index.find_receipt("rcpt_1")
    tried = len(queue.database.given)
    queue.database.refuses = False
    await queue.index.flush()

    assert caught.value.detail == {"file": "index"}
    assert [(run.summary.run_id, run.summary.status) for run in seen if run] == [
        ("old", "done"),
        ("new", "pending"),
        ("new", "pending"),
    ]
    assert shown == (["old done", "new pending"], place("rcpt_1"))
    assert tried == 2
    assert sorted(await listed(queue)) == ["new pending", "old done"]


async def test_rows_of_runs_without_any_are_seen_while_they_are_refused(queue: Queue) -> None:
    """They are listed and found, follow moves, and are written later, except where a row has appeared meanwhile."""
    queue.database.refuses = True
    await queue.index.add_missing([row("a", idempotency_key="k", request_sha256="h"), row("b"), row("c")])
    await queue.index.move_soon(Transition.begin("c", AT))
    found = await queue.index.get_run("b")
    keyed = await queue.index.find_key("k")
    seen = [await listed(queue), ids(await queue.index.list_unfinished()), sorted(await queue.index.run_ids())]
    queue.database.refuses = False
    await queue.database.put_run(index_port.moved(row("b"), Transition.end("b", RunState.DONE, LATER)))
    await queue.index.flush()

    assert found is not None
    assert keyed is not None
    assert [sorted(ids) for ids in seen] == [["a pending", "b pending", "c running"]] * 2 + [["a", "b", "c"]]
    assert sorted(ids(await queue.database.list_runs(stores.RunQuery()))) == ["a pending", "b done", "c running"]


async def test_a_row_that_is_refused_shows_the_moves_after_it(queue: Queue) -> None:
    """A run that moves while its row is being refused has its new state for every reader."""
    queue.database.refuses = True
    queue.database.goes_on.clear()
    await queue.index.put_run(row())
    writing = asyncio.create_task(queue.index.flush())
    await queue.database.begun.wait()
    await queue.index.move_soon(Transition.begin("a", AT))
    queue.database.goes_on.set()
    with pytest.raises(errors.StorageFault):
        await writing
    found = await queue.index.get_run("a")

    assert found is not None
    assert (found.summary.status, await listed(queue)) == ("running", ["a running"])


async def test_a_row_that_the_database_cannot_hold_costs_no_other_its_place(tmp_path: Path) -> None:
    """A text that is not Unicode is left out alone; the other runs of its batch, and later ones, are found."""
    database = SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
    index = IndexQueue(database, DiskHealth())
    await index.start()
    await index.put_run(row("before"))
    await index.put_run(row("broken", description="half a character: \ud800"))
    await index.put_run(row("after"))
    await index.move_soon(Transition.begin("after", AT))
    await index.add_receipts([place("rcpt_1")])
    await index.flush()
    await index.put_run(row("later"))
    found = sorted(ids(await index.list_runs(stores.RunQuery())))
    receipt = await database.find_receipt("rcpt_1")
    await index.close()

    assert found == ["after running", "before pending", "later pending"]
    assert receipt == place("rcpt_1")


async def test_the_room_knows_whether_rows_can_be_written(queue: Queue) -> None:
    """After a refused write, new runs are refused until all waiting rows are written or removed."""
    queue.database.refuses = True
    await queue.index.put_run(row())
    with pytest.raises(errors.StorageFault):
        await queue.index.flush()
    refused = queue.disk_health.rows_free
    await queue.index.remove_run("a")
    await queue.index.flush()

    assert not refused
    assert queue.disk_health.rows_free


async def test_rows_are_tried_again_without_being_asked_for(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is repeated after a while."""
    monkeypatch.setattr(index_queue, "_PAUSE_AFTER_FAILURE_SECONDS", 0)
    queue.database.refuses = True
    await queue.index.put_run(row())
    with pytest.raises(errors.StorageFault):
        await queue.index.flush()
    queue.database.refuses = False
    await asyncio.wait_for(queue.database.written.wait(), 60)

    assert await queue.database.get_run("a") is not None


async def test_a_reader_that_is_cut_off_loses_nothing(queue: Queue) -> None:
    """The rows that a cancelled reader waited for are written, or continue to wait."""
    queue.database.goes_on.clear()
    queue.database.refuses = True
    await queue.index.put_run(row())
    reading = asyncio.create_task(queue.index.list_runs(stores.RunQuery()))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    queue.database.goes_on.set()
    await queue.database.refused.wait()
    queue.database.refuses = False
    await queue.index.flush()

    assert await listed(queue) == ["a pending"]


async def test_an_abandoned_queue_writes_nothing_more(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a killed process had not written are not written after its death."""
    monkeypatch.setattr(index_queue, "PAUSE_SECONDS", 0)
    await queue.index.put_run(row("a"))
    queue.index.abandon()
    await queue.index.put_run(row("b"))
    for _ in range(5):
        await asyncio.sleep(0)

    assert queue.database.given == []


async def test_rows_that_cannot_be_written_at_the_end_are_left_behind(queue: Queue) -> None:
    """A close does not fail for rows that cannot be written: the next start finds the runs in their folders."""
    queue.database.refuses = True
    await queue.index.put_run(row())
    await queue.index.close()

    assert await queue.database.run_ids() == set()


# -- any sequence of events

MOVES = ("begin", "wait", "pause", "queue", "done", "failed")


def move_of(name: str, run_id: str, at: str) -> Transition:
    """Return a move by its name."""
    match name:
        case "begin" | "wait" | "pause" | "queue":
            made: Transition = getattr(Transition, name)(run_id, at)
            return made
    return Transition.end(run_id, RunState(name), at)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from("ab")),
            st.tuples(st.sampled_from(MOVES), st.sampled_from("ab")),
            st.tuples(st.sampled_from(("flush", "refuse", "allow", "remove")), st.sampled_from("ab")),
        ),
        max_size=25,
    )
)
async def test_a_queue_ends_where_single_writes_would(story: list[tuple[str, str]]) -> None:
    """Whatever is joined, waits or is refused for a while, each row ends as if every write were made alone."""
    queue, plain = Queue(), MemoryIndex()
    for number, (what, run_id) in enumerate(story):
        at = f"2026-02-10T15:00:{number:02}.000Z"
        match what:
            case "put":
                await queue.index.put_run(row(run_id))
                await plain.put_run(row(run_id))
            case "flush":
                try:
                    await queue.index.flush()
                except errors.StorageFault:
                    assert queue.database.refuses
            case "refuse" | "allow":
                queue.database.refuses = what == "refuse"
            case "remove":
                await queue.index.remove_run(run_id)
                await plain.remove_run(run_id)
            case _:
                transition = move_of(what, run_id, at)
                unfinished = frozenset(state for state in transition.since if not state.finished)
                transition = dataclasses.replace(transition, since=unfinished)
                await queue.index.move_soon(transition)
                await plain.move(transition)
        seen, expected = await queue.index.get_run(run_id), await plain.get_run(run_id)

        assert seen == expected
    queue.database.refuses = False
    await queue.index.flush()

    assert await queue.database.list_runs(stores.RunQuery()) == await plain.list_runs(stores.RunQuery())
    queue.index.abandon()


async def test_lists_include_rows_that_cannot_be_written_now(queue: Queue) -> None:
    """While rows cannot be written, lists show them as they would be: filtered, in order, and page by page."""
    for name in ("a", "c"):
        await queue.index.put_run(row(name))
    await queue.index.flush()
    queue.database.refuses = True
    await queue.index.put_run(row("b"))
    await queue.index.move_soon(Transition.begin("c", AT))
    await queue.index.move_soon(Transition.end("c", RunState.DONE, LATER))
    with pytest.raises(errors.StorageFault):
        await queue.index.flush()
    await queue.index.move_soon(Transition.begin("b", AT))
    everything = await queue.index.list_runs(stores.RunQuery())
    first = await queue.index.list_runs(stores.RunQuery(limit=2))
    rest = await queue.index.list_runs(stores.RunQuery(limit=2, cursor=index_port.age(first[-1])))
    found = {
        status: ids(await queue.index.list_runs(stores.RunQuery(status=status)))
        for status in ("pending", "running", "done")
    }

    assert ids(everything) == ["c done", "b running", "a pending"]
    assert ids(first) + ids(rest) == ids(everything)
    assert found == {"pending": ["a pending"], "running": ["b running"], "done": ["c done"]}
