"""Following a run: changes, endings and events without unnecessary waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app import clock
from app.domain import decisions, events, states
from app.services import event_streams
from tests.unit.worker import pools, toys


@pytest.fixture
async def bench() -> AsyncIterator[pools.Bench]:
    """Return a pool over a store in memory, with a clock that the test advances."""
    bench = await pools.Bench().open()
    yield bench
    await bench.close()


def follower(bench: pools.Bench) -> event_streams.EventFollower:
    """Return a follower of the bench's runs."""
    return event_streams.EventFollower(store=bench.store, engine=bench.pool, clock=bench.clock)


def events_of(bench: pools.Bench, run_id: str, after: int = 0) -> AsyncIterator[events.Event]:
    """Return the events of a run, past and future."""

    async def finished() -> bool:
        return states.RunState(await bench.status(run_id)).finished

    return follower(bench).events(run_id, after, finished)


async def everything(stream: AsyncIterator[events.Event]) -> list[str]:
    """Return the types of all events of a stream."""
    return [event.type async for event in stream]


async def test_a_change_ends_the_wait(bench: pools.Bench) -> None:
    """A wait for a run ends at its next change, without time passing."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    waiting = asyncio.create_task(follower(bench).change(run_id, bench.pool.change_number(run_id), 60))
    await pools.idle()
    woken_before = waiting.done()
    held.set()
    await pools.soon(waiting)

    assert not woken_before


async def test_a_change_that_has_happened_is_not_waited_for(bench: pools.Bench) -> None:
    """A change between reading the number and waiting is not missed."""
    run_id = await bench.submit(*toys.tools("one"))
    number = bench.pool.change_number(run_id)
    await bench.ended(run_id)

    await pools.soon(follower(bench).change(run_id, number, 60))


async def test_the_time_ends_the_wait(bench: pools.Bench) -> None:
    """A wait ends with its time, and checks the run every second for changes by other processes."""
    waiter = follower(bench)
    run_id = await bench.create(*toys.tools("one"))
    number = bench.pool.change_number(run_id)
    short = asyncio.create_task(waiter.change(run_id, number, 0.5))
    long = asyncio.create_task(waiter.change(run_id, number, 60))
    await pools.idle()
    bench.advance(0.5)
    await pools.soon(short)
    between = long.done()
    bench.advance(event_streams.TICK_SECONDS)
    await pools.soon(long)

    assert not between


async def test_a_released_service_ends_every_wait(bench: pools.Bench) -> None:
    """A stopping service ends all waits, and later waits return at once."""
    waiter = follower(bench)
    run_id = await bench.create(*toys.tools("one"))
    number = bench.pool.change_number(run_id)
    waiting = asyncio.create_task(waiter.change(run_id, number, 60))
    await pools.idle()
    waiter.stopping.set()
    await pools.soon(waiting)

    await pools.soon(waiter.change(run_id, number, 60))
    assert waiter.stopping.is_set()


async def test_events_end_with_the_run(bench: pools.Bench) -> None:
    """A stream has all events from the first one to the run's end, and then ends."""
    run_id = await bench.submit(*toys.tools("one"))
    types = await pools.soon(everything(events_of(bench, run_id)))

    assert types[0] == "run.created"
    assert types[-1] == "run.ended"
    assert types.count("run.ended") == 1


async def test_events_of_an_ended_run_end_at_once(bench: pools.Bench) -> None:
    """A stream of an ended run ends at once; after its last event, at the second check."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    await bench.at_rest(run_id)
    last = (await bench.store.read_events(run_id))[-1].seq
    types = await pools.soon(everything(events_of(bench, run_id)))
    rest = asyncio.create_task(everything(events_of(bench, run_id, after=last)))
    await pools.idle()
    ended_before = rest.done()
    bench.advance(event_streams.TICK_SECONDS)

    assert await pools.soon(rest) == []
    assert not ended_before
    assert types[-1] == "run.ended"


async def test_events_of_another_process_are_seen_within_a_second(bench: pools.Bench) -> None:
    """An event written by another process is sent at the next check."""
    run_id = await bench.create(*toys.tools("one"), owner="process")
    stream = events_of(bench, run_id)
    first = await anext(stream)
    following_one: asyncio.Future[events.Event] = asyncio.ensure_future(anext(stream))
    log = await bench.store.open(run_id)
    await log.decide(decisions.DecisionKind.PAUSED, {"reason": "paused_by_person"})
    log.add_event(events.EventType.RUN_PAUSED, None, {"reason": "paused_by_person"})
    await log.close()
    await pools.idle()
    assert isinstance(bench.clock, clock.FakeClock)
    bench.advance(event_streams.TICK_SECONDS)
    second = await pools.soon(following_one)

    assert (first.type, second.type) == ("run.created", "run.paused")


async def test_a_released_stream_is_over(bench: pools.Bench) -> None:
    """A stream of a running run ends when the service stops, with the events written by then."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.executed("one/1")
    waiter = follower(bench)

    async def unfinished() -> bool:
        return False

    stream = asyncio.create_task(everything(waiter.events(run_id, 0, unfinished)))
    await pools.idle()
    waiter.stopping.set()
    types = await pools.soon(stream)
    held.set()

    assert "run.ended" not in types
    assert types[0] == "run.created"
