"""Schedules combined with overlap policy, catch-up, changes of the clock, pauses and restarts, in one table."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app import clock
from tests import smoke
from tests.integration import scheduled
from tests.integration.project import Project

SCHEDULE = {"cron": "30 0-5 * * *", "timezone": "Europe/Berlin"}

NIGHTS = {
    "usual": ("2026-02-09T23:45:00Z", ("00:30", "01:30", "02:30", "03:30")),
    "spring": ("2026-03-28T23:45:00Z", ("00:30", "01:00", "01:30", "02:30")),
    "autumn": ("2026-10-24T22:45:00Z", ("23:30", "00:30", "02:30", "03:30")),
}
"""When the clock begins, and the next four occurrences in UTC.

In spring 02:30 does not exist and comes right after the gap; in autumn it comes twice and counts once.
"""

MEANWHILE = ("serves", "is down", "is paused")
"""State of the service or the trigger during the second and third occurrence."""

POLICIES = list(itertools.product(("skip", "queue", "cancel", "allow"), ("none", "one", "all")))
"""Overlap and catch-up; each pair has its own trigger in every case."""


@pytest.mark.parametrize(
    ("night", "meanwhile"), smoke.only(("spring", "is down"), itertools.product(NIGHTS, MEANWHILE))
)
async def test_every_policy_over_a_night(tmp_path: Path, night: str, meanwhile: str) -> None:
    """Runs without an end of their own meet four occurrences; each ends as in the documented table, and once."""
    project = Project(tmp_path)
    project.say("draft", hang=True)
    begin, hours = NIGHTS[night]
    time = clock.FakeClock(clock.instant(begin))
    dues = list(_instants(time, hours))
    triggers: dict[tuple[str, str], str] = {}
    async with scheduled.in_process(project, time) as service:
        for overlap, catch_up in POLICIES:
            body = {"recipe_id": "unguarded", "schedule": SCHEDULE, "overlap": overlap, "catch_up": catch_up}
            added = await service.add(**body, labels={"policy": f"{overlap}-{catch_up}"})
            triggers[overlap, catch_up] = added["trigger_id"]
        await _reach(service, dues[0], triggers, dict.fromkeys(POLICIES, 1))
        if meanwhile == "serves":
            for number in (1, 2):
                counts = dict.fromkeys(POLICIES, number + 1)
                await _reach(service, dues[number], triggers, counts)
        elif meanwhile == "is paused":
            await _change(service, triggers, paused=True)
            await service.advance((dues[2] - time.now()).total_seconds() + 300)
            await _change(service, triggers, paused=False)
    if meanwhile == "is down":
        time.advance((dues[2] - time.now()).total_seconds() + 300)
    async with scheduled.in_process(project, time) as service:
        made_up = {policy: _made_up(policy[1], meanwhile) for policy in POLICIES}
        await _settle(service, triggers, {policy: 1 + sum(map(len, made_up[policy])) for policy in POLICIES})
        counts = {policy: 2 + sum(map(len, made_up[policy])) for policy in POLICIES}
        await _reach(service, dues[3], triggers, counts)
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    async with scheduled.in_process(project, time) as service:
        for policy, trigger_id in triggers.items():
            shown = await _ended(service, trigger_id)
            found[policy] = [(each["occurrence"][11:16], each["result"]) for each in reversed(shown["history"])]
            label = f"policy:{policy[0]}-{policy[1]}"
            rows = (await service.http.get("/api/runs", params={"label": label})).json()
            assert len(rows) == [result for _, result in found[policy]].count("started"), policy

    assert found == {policy: _expected(policy, meanwhile, hours) for policy in POLICIES}


def _expected(policy: tuple[str, str], meanwhile: str, hours: Sequence[str]) -> list[tuple[str, str]]:
    """Return the results of a trigger's occurrences, in the order in which they become known."""
    missed, kept = _made_up(policy[1], meanwhile)
    result = "skipped" if policy[0] == "skip" else "started"
    notes = [(hours[number], "missed") for number in missed]
    return [(hours[0], "started"), *notes, *((hours[number], result) for number in (*kept, 3))]


def _made_up(catch_up: str, meanwhile: str) -> tuple[Sequence[int], Sequence[int]]:
    """Return which occurrences are recorded as the first missed one, and which are handled."""
    if meanwhile == "serves":
        return (), (1, 2)
    if meanwhile == "is paused":
        return (), ()
    return {"none": ((1,), ()), "one": ((1,), (2,)), "all": ((), (1, 2))}[catch_up]


def _instants(time: clock.FakeClock, hours: Sequence[str]) -> Iterator[Any]:
    """Yield the instants of some clock times in UTC, one after the other."""
    at = time.now()
    for hour in hours:
        at = at.replace(hour=int(hour[:2]), minute=int(hour[3:])) + timedelta(days=hour[:2] < f"{at:%H}")
        yield at


async def _reach(
    service: scheduled.Scheduled, at: Any, triggers: Mapping[tuple[str, str], str], counts: Mapping[Any, int]
) -> None:
    """Move time to an occurrence, and wait until each trigger has handled or queued its number of occurrences."""
    await service.advance((at - service.time.now()).total_seconds())
    await _settle(service, triggers, counts)


async def _settle(
    service: scheduled.Scheduled, triggers: Mapping[tuple[str, str], str], counts: Mapping[Any, int]
) -> None:
    for policy, trigger_id in triggers.items():
        # After the first one, a queued occurrence waits for the end of its run; the others are about to start.
        waits = policy[0] == "queue" and counts[policy] > 1
        await service.until_so(trigger_id, functools.partial(_is_at, counts[policy], waits))


def _is_at(count: int, waits: bool, shown: Mapping[str, Any]) -> bool:
    return bool(shown["history"]) and _handled(shown) + (shown["waiting"] if waits else 0) >= count


def _handled(shown: Mapping[str, Any]) -> int:
    return sum(each["result"] != "queued" for each in shown["history"])


async def _change(service: scheduled.Scheduled, triggers: Mapping[Any, str], **change: Any) -> None:
    for trigger_id in triggers.values():
        assert (await service.http.patch(f"/api/triggers/{trigger_id}", json=change)).status_code == 200


async def _ended(service: scheduled.Scheduled, trigger_id: str) -> dict[str, Any]:
    """End the runs of a trigger, one after the other, until no occurrence waits."""
    while True:
        shown = await service.trigger(trigger_id)
        for each in shown["history"]:
            if each["run_id"]:
                await service.http.post(f"/api/runs/{each['run_id']}/cancel")
                await service.until(each["run_id"], "cancelled")
        if not shown["waiting"]:
            return shown
        await service.until_so(trigger_id, functools.partial(_is_at, _handled(shown) + 1, False))
