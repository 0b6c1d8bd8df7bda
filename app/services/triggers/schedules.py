"""Schedules: the instants at which a trigger starts runs, by cron with a time zone, at an interval, or once."""

# The cron iterator always runs forwards, from a little before the relevant instant: its results then do not depend on
# its start, even if clocks are set back and local times repeat.

from __future__ import annotations

import itertools
import zoneinfo
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from app import clock, errors
from app.domain import triggers, zones

SHORTEST_SECONDS, LONGEST_SECONDS = 10, 366 * 24 * 3600  # Shortest and longest interval.

_FORMS = "or *, with lists (1,3), ranges (1-5) and steps (*/5)"
_FIELDS = {
    "minute": f"from 0 to 59 {_FORMS}",
    "hour": f"from 0 to 23 {_FORMS}",
    "day of month": f"from 1 to 31, L, LW {_FORMS}",
    "month": f"from 1 to 12, JAN to DEC {_FORMS}",
    "day of week": f"from 0 to 7, SUN to SAT, 5L, 5#2 {_FORMS}",
}  # Fields of a cron expression, with their allowed values.
_NEVER = "no date within 50 years fits its day of month, month and day of week"
_REPEATED = timedelta(hours=3)
_FIRST_WINDOW, _WIDER = timedelta(hours=1), 8


def flaws(schedule: triggers.Schedule) -> Iterator[errors.Flaw]:
    """Yield the flaws of a schedule."""
    given = [name for name in ("cron", "every_seconds", "at") if getattr(schedule, name) is not None]
    if len(given) != 1:
        yield _flaw("", "needs exactly one of cron, every_seconds and at", "missing")
    if schedule.cron is not None and (reason := _wrong_cron(schedule.cron)):
        yield _flaw(".cron", f"{schedule.cron!r:.80} cannot be used: {reason}")
    if fault := zones.fault(schedule.timezone):
        yield _flaw(".timezone", fault)
    if schedule.timezone != "UTC" and schedule.cron is None:
        yield _flaw(".timezone", "belongs to cron; an instant has its own offset")
    every = schedule.every_seconds
    if every is not None and not SHORTEST_SECONDS <= every <= LONGEST_SECONDS:
        yield _flaw(".every_seconds", f"must be from {SHORTEST_SECONDS} to {LONGEST_SECONDS} seconds")
    if schedule.at is not None:
        try:
            clock.instant(schedule.at)
        except ValueError as error:
            yield _flaw(".at", str(error))


def after(trigger: triggers.Trigger, instant: datetime) -> Iterator[datetime]:
    """Yield the occurrences of a trigger's schedule after an instant, in UTC, oldest first."""
    schedule = trigger.schedule
    if schedule is None:
        return iter(())
    if schedule.at is not None:
        once = clock.instant(schedule.at)
        return iter((once,) if once > instant else ())
    if schedule.every_seconds is not None:
        return _intervals(clock.instant(trigger.created_at), schedule.every_seconds, instant)
    return _cron(schedule.cron or "", schedule.timezone, instant)


def due(trigger: triggers.Trigger, until: datetime, most: int) -> tuple[list[datetime], bool]:
    """Return the newest occurrences from the cursor to an instant, oldest first, and whether older ones are left out.

    The work is bounded even if the cursor is old: the searched span grows backwards from the end.
    """
    begin, window = clock.instant(trigger.cursor), _FIRST_WINDOW
    while True:
        start = max(begin, until - window) if until - begin > window else begin
        inside = itertools.takewhile(lambda at: at <= until, after(trigger, start))
        # One more than requested, which shows whether there are others.
        found = deque(inside, maxlen=most + 1)
        if len(found) > most:
            return list(found)[1:], True
        if start == begin:
            return list(found), False
        window *= _WIDER


def name(at: datetime) -> str:
    """Return the name of an occurrence."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _intervals(anchor: datetime, seconds: int, instant: datetime) -> Iterator[datetime]:
    step = timedelta(seconds=seconds)
    anchor = anchor.replace(microsecond=0)
    first = max(1, (instant - anchor) // step + 1)
    return (anchor + count * step for count in itertools.count(first))


def _cron(expression: str, zone: str, instant: datetime) -> Iterator[datetime]:
    import cronsim

    local_zone = zoneinfo.ZoneInfo(zone)
    local = (instant - _REPEATED).astimezone(local_zone)
    if any(field.startswith("*") for field in expression.split()[:2]):
        # With a time zone of its own, cronsim loses occurrences if clocks change by half an hour, and never returns if
        # they are set back to the middle of an hour.
        found = _passages(cronsim.CronSim(expression, local.replace(tzinfo=None)), local_zone)
    else:
        found = (at.astimezone(UTC) for at in cronsim.CronSim(expression, local))
    return itertools.dropwhile(lambda at: at <= instant, found)


def _passages(times: Iterator[datetime], zone: zoneinfo.ZoneInfo) -> Iterator[datetime]:
    """Yield the instants at which a clock shows local times, oldest first.

    A local time that is skipped has no instant, and one that occurs twice has two.
    """
    second: deque[datetime] = deque()
    for time in times:
        # A local time may occur twice if clocks are set back, or not at all if they are set forward.
        at = {time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        passages = sorted(each for each in at if each.astimezone(zone).replace(tzinfo=None) == time)
        while second and passages and second[0] < passages[0]:
            yield second.popleft()
        yield from passages[:1]
        second.extend(passages[1:])
    yield from second


def _wrong_cron(expression: str) -> str | None:
    import cronsim

    if len(expression) > 200 or len(expression.split()) != len(_FIELDS):
        return f"it must have five fields: {', '.join(_FIELDS)}; an example is 30 7 * * MON-FRI"
    try:
        found = next(iter(cronsim.CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))), None)
    except (cronsim.CronSimError, ValueError, RecursionError):
        wrong = [field for field in zip(_FIELDS, expression.split(), strict=True) if not _is_cron_field(*field)]
        # The fields are valid, but no month has such a day.
        return "; ".join(itertools.starmap(_wrong_field, wrong)) or _NEVER
    return None if found else _NEVER


def _is_cron_field(name: str, value: str) -> bool:
    import cronsim

    others = dict.fromkeys(_FIELDS, "*")
    try:
        cronsim.CronSim(" ".join((others | {name: value}).values()), datetime(2026, 1, 1, tzinfo=UTC))
    except (cronsim.CronSimError, ValueError, RecursionError):
        return False
    return True


def _wrong_field(name: str, value: str) -> str:
    return f"the {name} {value!r:.40} must be {_FIELDS[name]}"


def _flaw(place: str, message: str, code: str = "invalid") -> errors.Flaw:
    return errors.Flaw(path=f"$.schedule{place}", code=code, message=message)
