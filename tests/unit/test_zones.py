"""Time zones: only names of the IANA database, which mean the same on every machine."""

from __future__ import annotations

import zoneinfo
from importlib import resources

import pytest

from app.domain import budgets, limits, triggers, zones
from app.services.triggers import schedules


@pytest.mark.parametrize(
    "name",
    [
        "localtime",
        "posixrules",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "$TZ",
        "../x",
        "Europe/../Europe/Berlin",
        "/etc/localtime",
        "/usr/share/zoneinfo/Europe/Berlin",
        "Europe",
        "Europe/Berlin\0",
        "",
        "x" * 10_000,
        None,
        ["UTC"],
    ],
)
def test_a_file_of_a_machine_is_not_a_time_zone(name: object) -> None:
    """Files of a machine, paths and variables are not accepted as time zones, for schedules or for days of budgets."""
    schedule = triggers.Schedule(cron="0 7 * * *", timezone=name)  # type: ignore[arg-type]
    budget = budgets.Budget(name="all", limits=limits.RunLimits(calls=1), per="day", time_zone=name)  # type: ignore[arg-type]

    assert "there is no time zone" in str(zones.fault(name))
    assert [flaw.path for flaw in schedules.flaws(schedule)] == ["$.schedule.timezone"]
    assert [flaw.code for flaw in budget.flaws()] == ["unknown_time_zone"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("europe/berlin", "Europe/Berlin"), ("Europe/Berln", "Europe/Berlin"), ("Asia/Calcuta", "Asia/Calcutta")],
)
def test_the_nearest_time_zone_is_named(name: str, nearest: str) -> None:
    """A misspelt time zone is answered with the nearest name."""
    assert zones.fault(name) == f"there is no time zone {name!r}; did you mean {nearest}?"


def test_every_listed_time_zone_can_be_used() -> None:
    """Every listed time zone is accepted and can be loaded."""
    names = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()

    assert {"UTC", "Europe/Berlin", "Australia/Lord_Howe"} <= set(names)
    assert all(zones.fault(name) is None and zoneinfo.ZoneInfo(name) for name in names)
