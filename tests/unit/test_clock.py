"""The clock, identifiers and chance, under the control of a test."""

from __future__ import annotations

import asyncio
import collections
import random
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_system_clock_is_utc_and_its_monotonic_time_does_not_go_back():
    """The machine's clock returns aware instants and rising seconds."""
    system = clock.SystemClock()
    before = system.monotonic()

    assert system.now().tzinfo is UTC
    assert system.monotonic() >= before


async def test_system_clock_does_not_wait_for_a_duration_in_the_past():
    """A wait of negative length ends at once."""
    await asyncio.wait_for(clock.SystemClock().sleep(-5), timeout=60)


async def test_time_for_which_the_machine_is_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long wait ends soon after its time although the event loop's time stops while the machine is suspended."""
    since_boot = [1_000.0]
    monkeypatch.setattr(clock, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(clock, "_seconds_since_boot", lambda: since_boot[0])
    wait = asyncio.create_task(clock.SystemClock().sleep(8 * 3600))
    for passed, over in ((0, False), (8 * 3600 - 1, False), (9 * 3600, True)):
        since_boot[0] = 1_000.0 + passed
        await asyncio.wait([wait], timeout=60 if over else 0.02)

        assert wait.done() is over


async def test_fake_clock_wakes_sleepers_in_the_order_of_their_ends():
    """Time moves only by `advance`, which wakes only the sleepers whose wait has passed."""
    fake, woken = clock.FakeClock(), []

    async def wait(name: str, seconds: float) -> None:
        await fake.sleep(seconds)
        woken.append(name)

    waits = [asyncio.create_task(wait("late", 10)), asyncio.create_task(wait("soon", 2))]
    await asyncio.sleep(0)
    assert fake.next_wake_seconds() == 2
    fake.advance(5)
    await asyncio.sleep(0)

    assert woken == ["soon"]
    fake.advance(5)
    await asyncio.gather(*waits)
    assert woken == ["soon", "late"]
    assert fake.next_wake_seconds() is None


async def test_fake_clock_passes_over_a_sleeper_that_was_cancelled():
    """A cancelled wait is not woken."""
    fake = clock.FakeClock()
    sleeper = asyncio.create_task(fake.sleep(1))
    await asyncio.sleep(0)
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)

    fake.advance(2)

    assert sleeper.cancelled()


def test_fake_clock_jump_moves_the_wall_only():
    """Setting the clock does not change measured durations."""
    fake = clock.FakeClock()
    start = fake.now()
    fake.jump(-3600)

    assert fake.now() == start - timedelta(hours=1)
    assert fake.monotonic() == 0


def test_a_run_id_begins_with_its_second():
    """A run's id begins with the instant of its creation."""
    made = clock.RandomIds(random.Random(7)).run_id(datetime(2026, 2, 10, 14, 30, 5, tzinfo=UTC))

    assert re.fullmatch(r"20260210T143005Z-[a-z0-9]{6}", made)
    assert re.fullmatch(clock.RUN_ID_PATTERN, made)


def test_seeded_ids_repeat_and_others_do_not():
    """Identifiers are reproducible only if a test seeds them."""
    assert clock.RandomIds(random.Random(1)).token("sess_") == clock.RandomIds(random.Random(1)).token("sess_")
    assert clock.RandomIds().token("sess_") != clock.RandomIds().token("sess_")


def test_an_id_costs_one_question_to_its_source():
    """An identifier of any length asks its source of chance once."""

    class Asked(random.Random):
        times = 0

        def getrandbits(self, k: int) -> int:
            self.times += 1
            return super().getrandbits(k)

    source = Asked(1)
    clock.RandomIds(source).token("sess_")

    assert source.times == 1


def test_every_character_is_as_likely_as_any_other():
    """Over many identifiers each of the 36 characters occurs about equally often at each place."""
    ids = clock.RandomIds(random.Random(3))
    made = [ids.token("") for _ in range(3600)]
    often = [collections.Counter(place) for place in zip(*made, strict=True)]

    assert all(len(each) == 36 and 50 < min(each.values()) <= max(each.values()) < 160 for each in often)


def test_an_age_that_is_longer_than_the_calendar_ends_at_its_beginning():
    """An age longer than the calendar gives the calendar's first instant."""
    now = datetime(2026, 2, 10, tzinfo=UTC)
    ages = [clock.before(now, seconds) for seconds in (0, 3600, 10**11, 2**53)]

    assert ages[:2] == [now, datetime(2026, 2, 9, 23, tzinfo=UTC)]
    assert ages[2] == ages[3] < _EPOCH


@given(st.integers(-(10**16), 10**17), st.integers(-23, 23))
def test_stamp_reads_back_to_the_millisecond(microseconds: int, hours: int):
    """An instant of any zone is written and read back to the millisecond."""
    at = (_EPOCH + timedelta(microseconds=microseconds)).astimezone(timezone(timedelta(hours=hours)))
    written = clock.stamp(at)

    assert written.endswith("Z")
    assert timedelta(0) <= at - clock.instant(written) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-02-10T14:30:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01"]
)
def test_instant_refuses_an_invalid_instant(text: str):
    """A text without the form or offset of an instant is refused, and so is an instant outside of the UTC calendar."""
    with pytest.raises(ValueError, match=r"not an instant; write it as|no UTC offset|outside of the calendar"):
        clock.instant(text)
