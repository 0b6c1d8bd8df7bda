"""Clock: time, identifiers and randomness, which a test must be able to control."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import random
import string
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

RUN_ID_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"  # Form of a run id, including foreign ones.
INTERNAL_PREFIX = "sp_"  # Beginning of the ids of runs that are session plans; lists of runs do not show them.

_LOOK_SECONDS = 60.0  # Longest time until a wait that ended while the machine was suspended is noticed.
# This clock counts while the machine is suspended, unlike that of an event loop. On macOS, which has no
# CLOCK_BOOTTIME, CLOCK_MONOTONIC does so.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_ID_ALPHABET = string.ascii_lowercase + string.digits
_BITS_EACH = 6
_SPARE_BITS = 64


def before(now: datetime, seconds: int) -> datetime:
    """Return the instant this many seconds earlier; for an age beyond the calendar, the calendar's first instant."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


class Clock(Protocol):
    """Returns the time, and waits."""

    def now(self) -> datetime:
        """Return the present instant, in UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never runs backwards, for durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait for a duration; return at once if it is not positive."""


class Ids(Protocol):
    """Makes identifiers."""

    def run_id(self, at: datetime) -> str:
        """Return a new run id, `YYYYMMDDTHHMMSSZ-<6 of a-z0-9>`."""

    def token(self, prefix: str, characters: int = 16) -> str:
        """Return `prefix` followed by random letters and digits."""


class SystemClock:
    """The machine's own clock."""

    # Built-ins, without a frame of the interpreter: each step asks five times.
    now = staticmethod(functools.partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop; time during which the machine is suspended counts."""
        end = _seconds_since_boot() + seconds
        while seconds > _LOOK_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            seconds = end - _seconds_since_boot()
        await asyncio.sleep(max(seconds, 0))


def _seconds_since_boot() -> float:
    return time.clock_gettime(_SINCE_BOOT)


class FakeClock:
    """A clock that only moves when a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 2, 10, 14, 30, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the instant last set."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds advanced so far; `jump` does not change them."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has passed the duration."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), waiter))
        await waiter

    def advance(self, seconds: float) -> None:
        """Move time forward, and wake every task whose wait is over."""
        self._elapsed += seconds
        self._now += timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or an empty battery would."""
        self._now += timedelta(seconds=seconds)

    def next_wake_seconds(self) -> float | None:
        """Return the seconds until the next task wakes, or None if no task sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] - self._elapsed if self._sleepers else None


class RandomIds:
    """Identifiers from a random source: the system's by default, a seeded one in tests."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._source = source or random.SystemRandom()

    def run_id(self, at: datetime) -> str:
        """Return the instant, to the second, and six random characters."""
        return f"{at:%Y%m%dT%H%M%SZ}-{self._characters(6)}"

    def token(self, prefix: str, characters: int = 16) -> str:
        """Return `prefix` and random characters."""
        return prefix + self._characters(characters)

    def _characters(self, count: int) -> str:
        # The source is asked once for all characters; the spare bits make all characters equally likely.
        rest = self._source.getrandbits(_BITS_EACH * count + _SPARE_BITS)
        found = []
        for _ in range(count):
            rest, index = divmod(rest, len(_ID_ALPHABET))
            found.append(_ID_ALPHABET[index])
        return "".join(found)


def is_internal(run_id: str) -> bool:
    """Return whether a run is a session plan, which lists and counts of runs do not show."""
    return run_id.startswith(INTERNAL_PREFIX)


def stamp(at: datetime) -> str:
    """Return an instant in the form of the project's JSON: UTC, milliseconds, `Z`."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return f"{at.isoformat(timespec='milliseconds')[:-6]}Z"


def instant(text: str) -> datetime:
    """Read an instant written by `stamp`, or any ISO 8601 instant with an offset.

    Raises:
        ValueError: the text is not an instant, has no offset, or is outside of the years 1 to 9999 in UTC.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.80} is not an instant; write it as 2026-02-10T14:30:00Z") from error
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no UTC offset")
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside of the calendar in UTC") from error
