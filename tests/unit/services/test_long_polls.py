"""Long polls: held back no longer than needed, and answered no more often than useful."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from app.domain import decisions, states, views
from app.services import event_streams, long_polls, run_reader
from tests.unit.worker import pools, toys

SECONDS = 30.0


class CountingReader(run_reader.RunReader):
    """A reader that counts its answers."""

    asked = 0

    async def ready(self, run_id: str, last: views.RunView | None = None, *, fresh: bool = True) -> run_reader.Ready:
        """Return a run's answer."""
        self.asked += 1
        return await super().ready(run_id, last, fresh=fresh)


class Harness:
    """A pool with a poll."""

    def __init__(self, bench: pools.Bench) -> None:
        self.bench = bench
        self.reader = CountingReader(store=bench.store, engine=bench.pool, drivers=bench.dialects, clock=bench.clock)
        self.follower = event_streams.EventFollower(store=bench.store, engine=bench.pool, clock=bench.clock)
        self._waiter = long_polls.LongPolls(
            reader=self.reader, follower=self.follower, engine=bench.pool, clock=bench.clock
        )

    def poll(self, run_id: str, *known: str) -> asyncio.Task[run_reader.Ready]:
        """Begin a poll for an answer other than the known ones."""
        return asyncio.create_task(self._waiter.answer(run_id, SECONDS, frozenset(known)))

    async def pass_by(self, seconds: float) -> None:
        """Advance the time."""
        await pools.idle()
        self.bench.advance(seconds)
        await pools.idle()


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """Return a harness over a store in memory, whose time passes only when the test advances it."""
    bench = await pools.Bench().open()
    yield Harness(bench)
    await bench.close()


async def test_a_quick_run_is_answered_once_at_its_end(harness: Harness) -> None:
    """A poll from a run's start is answered once, at the run's end."""
    held = harness.bench.toolbox.hold("one")
    run_id = await harness.bench.submit(*toys.tools("one", "two", "three"))
    poll = harness.poll(run_id)
    await pools.idle()
    held.set()
    answer = await pools.soon(poll)

    assert (answer.finished, harness.reader.asked) == (True, 1)


async def test_quick_changes_are_reported_together(harness: Harness) -> None:
    """A poll of a running run waits a moment, and its answer has all changes of that moment."""
    held, kept = harness.bench.toolbox.hold("one"), harness.bench.toolbox.hold("four")
    run_id = await harness.bench.submit(*toys.tools("one", "two", "three", "four"))
    await harness.bench.executed("one/1")
    poll = harness.poll(run_id, (await harness.reader.ready(run_id)).etag)
    held.set()
    await harness.bench.executed("four/1")
    await pools.idle()
    before = poll.done()
    await harness.pass_by(long_polls.PAUSE_SECONDS)
    answer = json.loads((await pools.soon(poll)).body)

    assert not before
    assert [step["key"] for step in answer["steps"]] == ["one", "two", "three", "four"]
    assert harness.reader.asked == 2

    kept.set()


async def test_a_change_after_a_moment_is_reported_at_once(harness: Harness) -> None:
    """A poll that has waited longer than a moment is answered at the next change."""
    held, kept = harness.bench.toolbox.hold("one"), harness.bench.toolbox.hold("two")
    run_id = await harness.bench.submit(*toys.tools("one", "two"))
    await harness.bench.executed("one/1")
    poll = harness.poll(run_id, (await harness.reader.ready(run_id)).etag)
    blind = harness.poll(run_id)
    await harness.pass_by(long_polls.PAUSE_SECONDS)
    before = poll.done() or blind.done()
    held.set()
    answers = await pools.soon(asyncio.gather(poll, blind))

    assert not before
    assert answers[0] is answers[1]
    assert json.loads(answers[0].body)["current_step_index"] == 1

    kept.set()


async def test_a_poll_that_missed_something_does_not_wait_for_more(harness: Harness) -> None:
    """A poll with an outdated answer is answered after a moment, without a further change."""
    kept = harness.bench.toolbox.hold("one")
    run_id = await harness.bench.submit(*toys.tools("one"))
    await harness.bench.executed("one/1")
    poll = harness.poll(run_id, '"old"')
    await harness.pass_by(long_polls.PAUSE_SECONDS)

    assert (await pools.soon(poll)).etag == (await harness.reader.ready(run_id)).etag

    kept.set()


async def test_a_poll_ends_with_its_time(harness: Harness) -> None:
    """A poll without a change is answered with the known answer at the end of its time."""
    kept = harness.bench.toolbox.hold("one")
    run_id = await harness.bench.submit(*toys.tools("one"))
    await harness.bench.executed("one/1")
    known = await harness.reader.ready(run_id)
    polls = [harness.poll(run_id, known.etag), harness.poll(run_id)]
    for _ in range(29):
        await harness.pass_by(1)
    before = [poll.done() for poll in polls]
    await harness.pass_by(1)

    assert before == [False, False]
    assert [await pools.soon(poll) for poll in polls] == [known, known]

    kept.set()


async def test_an_ended_run_is_not_waited_for(harness: Harness) -> None:
    """A poll of an ended run is answered at once, even if the caller knows the answer."""
    run_id = await harness.bench.submit(*toys.tools("one"))
    await harness.bench.ended(run_id)
    await harness.bench.at_rest(run_id)
    answer = await pools.soon(harness.poll(run_id))

    assert answer.finished
    assert await pools.soon(harness.poll(run_id, answer.etag)) == answer


async def test_a_run_of_another_process_is_looked_at_again_and_again(harness: Harness) -> None:
    """A poll notices a change by another process at the next check."""
    run_id = await harness.bench.create(*toys.tools("one"), owner="process")
    poll = harness.poll(run_id)
    await pools.idle()
    log = await harness.bench.store.open(run_id)
    await log.decide(decisions.DecisionKind.PAUSED, {"reason": "paused_by_person"})
    await log.close()
    await harness.pass_by(event_streams.TICK_SECONDS)

    assert json.loads((await pools.soon(poll)).body)["status"] == states.RunState.PAUSED


async def test_a_poll_is_answered_when_the_service_stops(harness: Harness) -> None:
    """A poll is answered when the service stops."""
    kept = harness.bench.toolbox.hold("one")
    run_id = await harness.bench.submit(*toys.tools("one"))
    await harness.bench.executed("one/1")
    poll = harness.poll(run_id)
    await harness.pass_by(long_polls.PAUSE_SECONDS)
    harness.follower.stopping.set()

    assert not (await pools.soon(poll)).finished

    kept.set()
