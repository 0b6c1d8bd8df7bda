"""A follower that comes back with the last number it saw, after a kill behind every event."""

from __future__ import annotations

import pytest

from app import clock
from app.domain.decisions import DecisionKind
from app.domain.events import Event, EventType
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN

STEPS = ("a", "b", "c")
EVENTS = 3 + 2 * len(STEPS)
"""What an undisturbed run tells: it was created, started, and ended, and each step began and finished."""


class Follower:
    """Remember what each number meant, and ask for what comes behind the last one."""

    def __init__(self, most: int) -> None:
        self.told: list[Event] = []
        self._most = most

    async def follow(self, store: MemoryStore) -> None:
        """Read what there is, one event at a time.

        Raises:
            EOFError: this is the last event before the kill.
        """
        while found := await store.read_events(RUN, self.told[-1].seq if self.told else 0, 1):
            self.told += found
            if len(self.told) == self._most:
                raise EOFError


async def _live(store: MemoryStore, follower: Follower, *, eager: bool = True) -> None:
    """Execute what is left of the run, with a follower who reads at every moment, or from its first line on."""
    await follower.follow(store)
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {}, sync=log.loaded.decisions.taken > 0)
    log.add_event(EventType.RUN_STARTED, None, {"taken": log.loaded.decisions.taken})
    if eager:
        await follower.follow(store)
    done = {record.key for record in log.loaded.records}
    for key in STEPS:
        if key not in done:
            log.add_event(EventType.STEP_STARTED, key)
            if eager or done:
                await follower.follow(store)
            done.add(key)
            record = await log.append_step(store_harness.step(key))
            log.add_event(EventType.STEP_FINISHED, key, {"position": record.position})
            await follower.follow(store)
    await store_harness.end(log)
    log.add_event(EventType.RUN_ENDED)
    await follower.follow(store)
    await log.close()


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "late"])
@pytest.mark.parametrize("most", range(1, EVENTS + 1))
async def test_no_number_has_two_meanings_after_a_kill(most: int, *, eager: bool) -> None:
    """Whenever the process is killed, numbers go on rising, and each step and the end are told once."""
    follower, shown, everything = await _crashed(most, eager=eager, lose_unsynced=False)
    numbers = [event.seq for event in follower.told]
    once = [
        (event.type, event.key)
        for event in follower.told
        if event.type in ("run.created", "step.finished", "run.ended")
    ]

    assert numbers == sorted(set(numbers))
    assert once == [("run.created", None), *(("step.finished", key) for key in STEPS), ("run.ended", None)]
    assert [everything[event.seq] for event in shown] == shown


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "late"])
@pytest.mark.parametrize("most", range(1, EVENTS + 1))
async def test_no_number_has_two_meanings_after_a_power_cut(most: int, *, eager: bool) -> None:
    """Events that the disk did not keep are told again under numbers that no reader has seen."""
    follower, shown, everything = await _crashed(most, eager=eager, lose_unsynced=True)
    numbers = [event.seq for event in follower.told]

    assert numbers == sorted(set(numbers))
    assert all(everything.get(event.seq, event) == event for event in shown)
    assert follower.told[-1].type == "run.ended"


async def _crashed(most: int, *, eager: bool, lose_unsynced: bool) -> tuple[Follower, list[Event], dict[int, Event]]:
    store, follower = MemoryStore(clock=clock.SystemClock()), Follower(most)
    await store.start()
    await store.create(store_harness.start())
    with pytest.raises(EOFError):
        await _live(store, follower, eager=eager)
    shown, found = list(follower.told), store.crashed(lose_unsynced=lose_unsynced)
    await found.start()
    if (await found.read(RUN)).decisions.ended is None:
        await _live(found, follower)
    everything = {event.seq: event for event in await found.read_events(RUN)}
    await found.close()
    return follower, shown, everything
