"""Cron expressions that cannot be used, and the reasons that people read."""

from __future__ import annotations

import pytest

from app.domain import triggers
from app.services.triggers import schedules

FORMS = "or *, with lists (1,3), ranges (1-5) and steps (*/5)"
NEVER = "no date within 50 years fits its day of month, month and day of week"


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("0 25 * * *", f"the hour '25' must be from 0 to 23 {FORMS}"),
        (
            "61 9 * FOO *",
            f"the minute '61' must be from 0 to 59 {FORMS}; the month 'FOO' must be from 1 to 12, JAN to ",
        ),
        ("0 0 * * MON-XX", "the day of week 'MON-XX' must be from 0 to 7, SUN to SAT"),
        ("0 0 32 * *", "the day of month '32' must be from 1 to 31"),
        ("0 0 31 4 *", NEVER),
        ("0 0 30 2 *", NEVER),
        ("0 0 * *", "it must have five fields: minute, hour, day of month, month, day of week"),
    ],
)
def test_a_reason_names_the_field(cron: str, reason: str) -> None:
    """A reason names each wrong field with its value and the allowed ones, or says that no date fits."""
    (flaw,) = schedules.flaws(triggers.Schedule(cron=cron))

    assert flaw.path == "$.schedule.cron"
    assert flaw.message.startswith(f"{cron!r} cannot be used: {reason}")


@pytest.mark.parametrize("cron", ["30 7 * * MON-FRI", "0 0 29 2 *", "0 0 LW * *", "*/5 0 31 2,4 FRI", "0 0 * * 5L"])
def test_an_expression_with_dates_has_no_flaw(cron: str) -> None:
    """An expression that occurs has no flaw."""
    assert list(schedules.flaws(triggers.Schedule(cron=cron))) == []
