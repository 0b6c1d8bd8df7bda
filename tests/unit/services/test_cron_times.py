"""Cron in time zones with clock changes of half an hour or at odd minutes, and in common ones."""

from __future__ import annotations

import itertools
import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest

from app.domain import triggers
from app.services.triggers import schedules

_MINUTE = timedelta(minutes=1)

CHANGES = {
    "Australia/Lord_Howe": ("2026-04-04T15:00Z", "2026-10-03T15:30Z"),
    "Europe/Berlin": ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),
    "Pacific/Chatham": ("2026-04-04T14:00Z", "2026-09-26T14:00Z"),
}
"""Instants at which clocks change."""

STARRED = {
    "0 */2 * * *": (range(1), range(0, 24, 2)),
    "15 */3 * * *": (range(15, 16), range(0, 24, 3)),
    "*/10 3 * * *": (range(0, 60, 10), range(3, 4)),
}
"""Expressions with a star in their minute or hour, and the local times that they match."""


def _between(expression: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    trigger = triggers.Trigger(
        trigger_id="trg_1",
        name="",
        kind="schedule",
        recipe_id="quick",
        created_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-01T00:00:00Z",
        cursor="2026-01-01T00:00:00Z",
        schedule=triggers.Schedule(cron=expression, timezone=zone),
    )
    return list(itertools.takewhile(lambda at: at <= end, schedules.after(trigger, begin)))


@pytest.mark.parametrize(
    ("zone", "at"), [(zone, datetime.fromisoformat(at)) for zone, both in CHANGES.items() for at in both]
)
def test_a_star_follows_elapsed_time(zone: str, at: datetime) -> None:
    """Every minute whose local time fits is an occurrence, across any clock change and from any beginning."""
    begin, end, local = at - timedelta(hours=4), at + timedelta(hours=4), zoneinfo.ZoneInfo(zone)
    minutes = [begin + number * _MINUTE for number in range(1, 481)]
    for expression, (at_minutes, at_hours) in STARRED.items():
        shown = ((minute, minute.astimezone(local)) for minute in minutes)
        expected = [each for each, here in shown if here.minute in at_minutes and here.hour in at_hours]
        looks = [begin + timedelta(minutes=37 * number) for number in range(13)]

        for look in looks:
            assert _between(expression, zone, look, end) == [each for each in expected if each > look], look


@pytest.mark.parametrize("zone", CHANGES)
def test_fixed_times_come_once_a_day(zone: str) -> None:
    """A fixed local time occurs once a day, also on days on which it is skipped or repeated."""
    for at in map(datetime.fromisoformat, CHANGES[zone]):
        for expression in ("45 1 * * *", "10 2 * * *", "50 2 * * *", "5 3 * * *"):
            found = _between(expression, zone, at - timedelta(hours=36), at + timedelta(hours=36))

            assert [each.tzinfo for each in found] == [UTC] * 3
            assert len({each.astimezone(zoneinfo.ZoneInfo(zone)).date() for each in found}) == 3
