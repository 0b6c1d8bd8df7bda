"""Feeds: every follower of a run gets each event once and in order, from one read and one encoding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.api import streaming
from app.domain import events, states
from app.services import event_streams
from app.storage import memory_store
from tests.unit.worker import pools, toys

FUTURE = 2**53


class CountingStore(memory_store.MemoryStore):
    """A store in memory that counts reads of events, measures their pages, and can refuse them."""

    readings = 0
    largest = 0
    fault: errors.StorageFault | None = None

    async def read_events(self, run_id: str, after: int = 0, most: int | None = None) -> list[events.Event]:
        """Read events."""
        self.readings += 1
        if self.fault is not None:
            raise self.fault
        found = await super().read_events(run_id, after, most)
        self.largest = max(self.largest, len(found) if most is not None else 0)
        return found


class Following:
    """A run with its followers."""

    def __init__(self, bench: pools.Bench, run_id: str) -> None:
        self.follower = event_streams.EventFollower(store=bench.store, engine=bench.pool, clock=bench.clock)
        self._bench = bench
        self._run_id = run_id

    async def finished(self) -> bool:
        """Return whether the run has ended."""
        return states.RunState(await self._bench.status(self._run_id)).finished

    def batches(self, after: int = 0) -> AsyncGenerator[event_streams.Batch, None]:
        """Follow the run."""
        return self.follower.batches(self._run_id, after, self.finished)

    async def whole(self, after: int = 0) -> list[int]:
        """Return the numbers of all events to the end of the run."""
        return [event.seq async for batch in self.batches(after) for event in batch.events]

    async def bytes(self) -> list[bytes]:
        """Return all bytes that are sent up to the end of the run."""
        return [batch.encoded(streaming.server_sent) async for batch in self.batches() if batch.events]


@pytest.fixture
async def bench() -> AsyncIterator[pools.Bench]:
    """Return a pool over a counting store, with a clock that the test advances."""
    bench = pools.Bench()
    bench.take_store(CountingStore(clock=bench.clock, probes=bench.probes))
    await bench.open()
    yield bench
    await bench.close()


def store(bench: pools.Bench) -> CountingStore:
    """Return the counting store of the bench."""
    assert isinstance(bench.store, CountingStore)
    return bench.store


async def numbers(bench: pools.Bench, run_id: str) -> list[int]:
    """Return the numbers of all events of a run."""
    return [event.seq for event in await bench.store.read_events(run_id)]


async def test_all_followers_get_the_same_bytes(bench: pools.Bench) -> None:
    """A batch is encoded once and its events are read once for any number of followers."""
    counts, sent = [], []
    for followers in (1, 40):
        held = bench.toolbox.hold("one")
        run_id = await bench.submit(*toys.tools("one", "two"))
        streams = [asyncio.create_task(Following(bench, run_id).bytes())]
        together = Following(bench, run_id)
        streams = [asyncio.create_task(together.bytes()) for _ in range(followers)] if followers > 1 else streams
        await pools.idle()
        before = store(bench).readings
        held.set()
        sent = await pools.soon(asyncio.gather(*streams))
        counts.append(store(bench).readings - before)

    assert len({b"".join(parts) for parts in sent}) == 1
    assert len({tuple(map(id, parts)) for parts in sent}) == 1
    assert abs(counts[1] - counts[0]) <= 4


async def test_a_late_follower_misses_no_event(bench: pools.Bench) -> None:
    """Followers who join late, from the first event or from a later one, miss no event."""
    held = [bench.toolbox.hold(key) for key in ("two", "three")]
    run_id = await bench.submit(*toys.tools("one", "two", "three"))
    await bench.executed("two/1")
    shared = Following(bench, run_id)
    last = (await numbers(bench, run_id))[-1]
    early = asyncio.create_task(shared.whole(last))
    await pools.idle()
    late = [asyncio.create_task(shared.whole(after)) for after in (0, last - 1, FUTURE)]
    await pools.idle()
    held[0].set()
    await bench.executed("three/1")
    latest = asyncio.create_task(shared.whole(0))
    held[1].set()
    told = await pools.soon(asyncio.gather(early, *late[:2], latest))
    await bench.advance_until(late[2].done)
    everything = await numbers(bench, run_id)

    assert told == [
        [number for number in everything if number > last],
        everything,
        [number for number in everything if number > last - 1],
        everything,
    ]
    assert late[2].result() == []


async def test_a_slow_follower_gets_each_event_once(bench: pools.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower slower than the kept events gets each event once, in order."""
    monkeypatch.setattr(event_streams, "KEPT_EVENTS", 2)
    monkeypatch.setattr(event_streams, "BATCH_EVENTS", 2)
    run_id = await bench.submit(*toys.tools("one", "two", "three"))
    shared = Following(bench, run_id)
    slow = shared.batches()
    seen = list((await anext(slow)).events)
    fast = await pools.soon(shared.whole())
    seen += [event async for batch in slow for event in batch.events]

    assert fast == await numbers(bench, run_id)
    assert [event.seq for event in seen] == fast


@pytest.mark.parametrize("page", [1, 2, 3])
async def test_events_come_page_by_page(bench: pools.Bench, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """A long run is read page by page, and each follower gets its events in order."""
    monkeypatch.setattr(event_streams, "PAGE_EVENTS", page)
    monkeypatch.setattr(event_streams, "KEPT_EVENTS", 1)
    held = bench.toolbox.hold("three")
    run_id = await bench.submit(*toys.tools("one", "two", "three"))
    await bench.executed("three/1")
    shared = Following(bench, run_id)
    slow = shared.batches()
    seen = list((await pools.soon(anext(slow))).events)
    early = asyncio.create_task(shared.whole())
    await pools.idle()
    held.set()
    told = await pools.soon(early)
    seen += [event async for batch in slow for event in batch.events]
    everything = await numbers(bench, run_id)

    assert told == everything
    assert [event.seq for event in seen] == everything
    assert store(bench).largest == page


async def test_a_follower_from_a_future_number_affects_no_other(bench: pools.Bench) -> None:
    """A first follower from a future number does not affect others, who get all events."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    shared = Following(bench, run_id)
    ahead = asyncio.create_task(shared.whole(FUTURE))
    await pools.idle()
    others = [asyncio.create_task(shared.whole()) for _ in range(3)]
    await pools.idle()
    held.set()
    told = await pools.soon(asyncio.gather(*others))
    await bench.advance_until(ahead.done)

    assert told == [await numbers(bench, run_id)] * 3
    assert ahead.result() == []


async def test_a_long_silence_is_broken_by_a_sign_of_life(bench: pools.Bench) -> None:
    """During silence a follower gets an empty batch now and then as a sign of life."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    stream = Following(bench, run_id).batches()
    first = await pools.soon(anext(stream))
    waiting: asyncio.Future[event_streams.Batch] = asyncio.ensure_future(anext(stream))
    for _ in range(int(event_streams.SILENCE_SECONDS) - 1):
        bench.advance(event_streams.TICK_SECONDS)
        await pools.idle()
    silent = not waiting.done()
    await bench.advance_until(waiting.done)
    await stream.aclose()
    held.set()

    assert first.events
    assert silent
    assert list(waiting.result().events) == []


async def test_a_run_without_followers_is_not_read(bench: pools.Bench) -> None:
    """After its last follower has left, a run is not read any more, and the next follower misses no event."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    shared = Following(bench, run_id)
    stream = shared.batches()
    await pools.soon(anext(stream))
    await stream.aclose()
    again = asyncio.create_task(shared.whole())
    await pools.idle()
    readings = [task for task in asyncio.all_tasks() if task.get_name() == f"feed {run_id}"]
    held.set()

    assert len(readings) == 1
    assert await pools.soon(again) == await numbers(bench, run_id)
    await pools.idle()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("feed ")]


async def test_each_follower_gets_the_read_error(bench: pools.Bench) -> None:
    """If events cannot be read, each follower gets the error, and the next one reads again."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    store(bench).fault = errors.StorageFault("the disk is gone")
    shared = Following(bench, run_id)
    results = await pools.soon(asyncio.gather(*(shared.whole() for _ in range(3)), return_exceptions=True))
    store(bench).fault = None

    assert [type(result) for result in results] == [errors.StorageFault] * 3
    assert await pools.soon(shared.whole()) == await numbers(bench, run_id)


async def test_an_ending_waits_and_nothing_else_does(bench: pools.Bench) -> None:
    """Events before the ending are sent while the ending is still pending."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    settled = asyncio.Event()

    async def finished() -> bool:
        await settled.wait()
        return True

    stream = Following(bench, run_id).follower.batches(run_id, 0, finished)
    first = await pools.soon(anext(stream))
    settled.set()
    second = await pools.soon(anext(stream))

    assert "run.ended" not in [event.type for event in first.events]
    assert [event.type for event in second.events] == ["run.ended"]


@given(st.lists(st.lists(st.integers(1, 3), max_size=6)), st.integers(0, 12), st.integers(1, 8), st.integers(1, 8))
def test_a_reader_at_any_position_gets_each_event_once(
    told: list[list[int]], position: int, kept: int, portion: int
) -> None:
    """A reader at any position gets all later events once, with any batches and any number of kept events."""
    asyncio.run(_read_each_once(told, position, kept, portion))


async def _read_each_once(told: list[list[int]], position: int, kept: int, portion: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_streams, "KEPT_EVENTS", kept)
        patch.setattr(event_streams, "BATCH_EVENTS", portion)
        feed, number = event_streams.Feed(0), 0
        for steps in told:
            written = []
            for step in steps:
                number += step
                written.append(events.Event(seq=number, at="", type="x", run_id="r"))
            await feed.publish(written)
        everything = [number for steps in _numbered(told) for number in steps]
    found, at = [], max(position, feed.start)
    while (batch := feed.next(at)) is not None:
        found += [event.seq for event in batch.events]
        at = batch.last

    assert found == [number for number in everything if number > max(position, feed.start)]
    assert len([number for number in everything if number > feed.start]) <= max(kept, portion)


def _numbered(told: list[list[int]]) -> list[list[int]]:
    number, found = 0, []
    for steps in told:
        found.append([number := number + step for step in steps])
    return found


def test_a_type_with_a_line_break_cannot_pass_for_more() -> None:
    """An event type with line breaks stays one event in the stream."""
    event = events.Event(seq=7, at="", type="x\nid: 8\n\nevent: y", run_id="r", data={"text": "a\nb\r\u2028"})
    sent = streaming.server_sent(event)

    assert sent.startswith(b"event: unknown\ndata: {")
    assert sent.endswith(b"}\nid: 7\n\n")
    assert sent.count(b"\n") == 4
