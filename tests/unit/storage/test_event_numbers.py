"""A follower that returns with the last number it saw, after a kill behind every event."""

from __future__ import annotations

import pytest

from app import clock
from app.domain import plain
from app.domain.decisions import PAUSED_BY_PERSON, DecisionKind
from app.domain.events import Event, EventType
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN

STEPS = ("a", "b", "c")
EVENTS = 3 + 2 * len(STEPS)
"""The number of events of an undisturbed run: created, started, ended, and two for each step."""


class Follower:
    """A reader that records the event of each number, and asks for those after the last one."""

    def __init__(self, most: int) -> None:
        self.received: list[Event] = []
        self._most = most

    async def follow(self, store: MemoryStore) -> None:
        """Read the available events, one at a time.

        Raises:
        EOFError: this is the last event before the kill.
        """
        while found := await store.read_events(RUN, self.received[-1].seq if self.received else 0, 1):
            self.received += found
            if len(self.received) == self._most:
                raise EOFError


async def _live(store: MemoryStore, follower: Follower, *, eager: bool = True) -> None:
    """Execute the rest of the run, with a follower that reads at every moment, or only from its first new line on."""
    await follower.follow(store)
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {}, sync=log.loaded.decisions.taken > 0)
    if eager:
        await follower.follow(store)
    done = {record.key for record in log.loaded.records}
    for key in STEPS:
        if key not in done:
            attempt = log.loaded.decisions.highest_attempt.get(key, 0) + 1
            facts = {"key": key, "attempt": attempt, "operation": "x", "step_id": key, "phase": None}
            await log.decide(DecisionKind.STARTED, facts, sync=key == "b")
            if eager or done:
                await follower.follow(store)
            done.add(key)
            await log.append_step(store_harness.step(key))
            await follower.follow(store)
    await store_harness.end(log)
    await follower.follow(store)
    await log.close()


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "late"])
@pytest.mark.parametrize("most", range(1, EVENTS + 1))
async def test_no_number_has_two_meanings_after_a_kill(most: int, *, eager: bool) -> None:
    """After a kill at any moment, numbers continue to rise, and each step and the end have one event."""
    follower, shown, everything = await _crashed(most, eager=eager, lose_unsynced=False)
    numbers = [event.seq for event in follower.received]
    once = [
        (event.type, event.key)
        for event in follower.received
        if event.type in ("run.created", "step.finished", "run.ended")
    ]

    assert numbers == sorted(set(numbers))
    assert once == [("run.created", None), *(("step.finished", key) for key in STEPS), ("run.ended", None)]
    assert [everything[event.seq] for event in shown] == shown
    assert _identities(follower) == sorted(set(_identities(follower)))
    assert {event.seq for event in follower.received} == set(everything)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "late"])
@pytest.mark.parametrize("most", range(1, EVENTS + 1))
async def test_no_number_has_two_meanings_after_a_power_cut(most: int, *, eager: bool) -> None:
    """A reader sees no event twice after a power cut, and misses none whose line was kept.

    Events that the disk lost get the number of their line again.
    """
    follower, shown, everything = await _crashed(most, eager=eager, lose_unsynced=True)
    numbers = [event.seq for event in follower.received]

    assert numbers == sorted(set(numbers))
    assert all(everything.get(event.seq, event) == event for event in shown)
    assert follower.received[-1].type == "run.ended"
    assert {event.seq for event in follower.received} >= set(everything)
    assert [event.key for event in follower.received if event.type == "step.finished"] == list(STEPS)
    assert [event.type for event in follower.received].count("run.created") == 1
    assert [event.type for event in follower.received].count("run.ended") == 1


async def test_a_hole_in_the_events_is_filled_with_the_same_events() -> None:
    """An event that a power cut took from the middle of the file returns at its place, with its number."""
    store = MemoryStore(clock=clock.SystemClock())
    await _ended(store)
    before = await store.read_events(RUN)
    found = store.crashed(lose_unsynced=False)
    await found.start()
    files, path = found._parts.context.disk, f"runs/{RUN}/events.jsonl"
    lines = files.read(path).splitlines(keepends=True)
    files.write(path, b"".join(line for line in lines if b'"step.' not in line), sync=True)
    await (await found.open(RUN)).close()

    assert len(lines) == EVENTS
    assert await found.read_events(RUN) == before
    await found.close()


async def test_an_ordered_pause_has_one_durable_event() -> None:
    """The event of a pause that a person ordered is written after its line, once, and is durable before it is shown."""
    store = MemoryStore(clock=clock.SystemClock())
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    await log.decide(DecisionKind.PAUSED, {"reason": PAUSED_BY_PERSON})
    unasked = [event.type for event in await store.read_events(RUN)]
    log.add_event(EventType.RUN_PAUSED, None, {"reason": PAUSED_BY_PERSON, "error": None, "author": None})
    shown = await store.read_events(RUN)
    found = store.crashed(lose_unsynced=True)
    await found.start()
    await (await found.open(RUN)).close()

    assert unasked == ["run.created", "run.started"]
    assert shown[-1].type == "run.paused"
    assert await found.read_events(RUN) == shown
    await found.close()


async def test_a_refused_line_that_is_found_after_all_has_a_new_number() -> None:
    """A client that has seen the events after a refused line does not miss the line's event if the line was kept."""
    store = MemoryStore(clock=clock.SystemClock())
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    line = {**store_harness.step("a"), "event": log._events.next}
    log._events.held[line["event"]] = None
    log._events.next += 1
    log._projections.refused(line)
    log.add_event(EventType.STORAGE_FAILED, "a", {"error": None})
    shown = await store.read_events(RUN)
    await log._steps.append(plain.encode(line))
    found = store.crashed(lose_unsynced=False)
    await found.start()
    for _ in range(2):
        await (await found.open(RUN)).close()
    behind = await found.read_events(RUN, shown[-1].seq)

    assert shown[-1].type == "storage.failed"
    assert shown[-1].seq == line["event"] + 1
    assert [(event.type, event.key) for event in behind] == [("step.finished", "a")]
    await found.close()


async def _ended(store: MemoryStore) -> None:
    await store.start()
    await store.create(store_harness.start())
    await _live(store, Follower(EVENTS + 1))


def _identities(follower: Follower) -> list[tuple[int, str, str | None]]:
    return [(event.seq, event.type, event.key) for event in follower.received]


async def _crashed(most: int, *, eager: bool, lose_unsynced: bool) -> tuple[Follower, list[Event], dict[int, Event]]:
    store, follower = MemoryStore(clock=clock.SystemClock()), Follower(most)
    await store.start()
    await store.create(store_harness.start())
    with pytest.raises(EOFError):
        await _live(store, follower, eager=eager)
    shown, found = list(follower.received), store.crashed(lose_unsynced=lose_unsynced)
    await found.start()
    if (await found.read(RUN)).decisions.ended is None:
        await _live(found, follower)
    everything = {event.seq: event for event in await found.read_events(RUN)}
    await found.close()
    return follower, shown, everything
