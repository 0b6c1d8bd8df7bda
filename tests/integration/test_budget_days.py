"""Budgets per day, which begin again at midnight of a time zone, and budgets that a person edits by hand."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.domain import budgets
from app.domain.limits import RunLimits
from tests.integration import read_faults, scheduled, served
from tests.integration.project import Project

ARGS = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
DAILY = {"per": "day", "time_zone": "Europe/Berlin", "limits": {"calls": 1}}


@pytest.mark.parametrize(
    ("zone", "now", "begins", "turns"),
    [
        ("UTC", "2026-02-10T14:30", "2026-02-10T00:00", "2026-02-11T00:00"),
        ("Europe/Berlin", "2026-02-10T23:30", "2026-02-10T23:00", "2026-02-11T23:00"),
        ("Asia/Kathmandu", "2026-02-10T18:20", "2026-02-10T18:15", "2026-02-11T18:15"),
        # Days of 23 and 25 hours.
        ("Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", "2026-03-29T22:00"),
        ("Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
        # This day has no midnight; it begins at one o'clock.
        ("America/Santiago", "2026-09-06T12:00", "2026-09-06T04:00", "2026-09-07T03:00"),
        # This day has two midnights; it begins at the first.
        ("Atlantic/Azores", "2026-10-25T01:30", "2026-10-25T00:00", "2026-10-26T01:00"),
    ],
)
def test_a_day_is_that_of_its_time_zone(zone: str, now: str, begins: str, turns: str) -> None:
    """The day of a budget begins at local midnight and ends at the next one, also when clocks change."""
    budget = budgets.Budget(name="daily", per="day", time_zone=zone, limits=RunLimits(calls=1))
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)

    assert budget.since(at).startswith(begins)
    assert budget.next_turn(at) == datetime.fromisoformat(turns).replace(tzinfo=UTC)


async def test_the_turn_of_the_day_sends_runs_on(tmp_path: Path) -> None:
    """A run that the budget of the day has paused continues at midnight of the time zone, and not before."""
    project = Project(tmp_path)
    async with scheduled.in_process(project) as service:
        assert (await service.http.put("/api/budgets/daily", json=DAILY)).status_code == 200
        run_id = await _paused(service)
        # It is 15:30 in Berlin.
        await service.advance(8 * 3600)
        before = (await service.http.get("/api/budgets")).json()[0]
        still = (await service.http.get(f"/api/runs/{run_id}")).json()["status"]
        why = (await service.http.get(f"/api/runs/{run_id}/why")).json()
        await service.advance(3600)
        after = await _sent_on(service, run_id)
        (shown,) = (await service.http.get("/api/budgets")).json()

    assert (before["turns_at"], before["left"], still) == ("2026-02-10T23:00:00.000Z", {"calls": 0}, "paused")
    assert why["chain"][0]["until"] == before["turns_at"]
    assert why["sentence"].endswith("; budget daily begins anew at 2026-02-10T23:00:00.000Z.")
    assert after["status"] == "done"
    assert (shown["used"]["calls"], shown["turns_at"]) == (1, "2026-02-11T23:00:00.000Z")


async def test_a_run_that_cannot_be_read_at_the_turn_is_sent_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the disk fails at midnight, the service retries until the run can be read, and continues it that day."""
    project, faults = Project(tmp_path), read_faults.ReadFaults(monkeypatch)
    async with scheduled.in_process(project) as service:
        assert (await service.http.put("/api/budgets/daily", json=DAILY)).status_code == 200
        run_id = await _paused(service)
        faults.refuse(f"{run_id}/steps.jsonl")
        await service.advance(9 * 3600)
        async with asyncio.timeout(served.WAIT_SECONDS):
            while "not sent on" not in caplog.text:
                await served.moment()
        faults.lift()
        after = await _sent_on(service, run_id)

    assert after["status"] == "done"
    # Without another try, the run would continue at the next midnight.
    assert service.time.now() < scheduled.BEGIN + timedelta(hours=10)


async def test_a_budget_that_is_raised_by_hand_sends_runs_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A change of the budget file applies within seconds; a damaged file changes no budget, and is reported by the
    list and once in the log.
    """
    project = Project(tmp_path)
    async with scheduled.in_process(project) as service:
        assert (await service.http.put("/api/budgets/all", json={"limits": {"calls": 1}})).status_code == 200
        run_id = await _paused(service)
        text = (project.data / "budgets.json").read_text()
        project.write(".control-room/budgets.json", "{")
        damaged = await service.http.get("/api/budgets")
        for _ in range(3):
            await service.advance(6)
            await served.moment()
        still = (await service.http.get(f"/api/runs/{run_id}")).json()["status"]
        document = json.loads(text)
        document["budgets"][0]["limits"]["calls"] = 9
        project.write(".control-room/budgets.json", json.dumps(document))
        after = await _sent_on(service, run_id)

    assert (damaged.status_code, damaged.json()["code"]) == (409, "file_damaged")
    assert (still, after["status"]) == ("paused", "done")
    (logged,) = [each.message for each in caplog.records if "budgets read last" in each.message]
    assert "budgets.json in the data directory is not JSON" in logged


async def test_a_budget_of_a_session_covers_its_plan(project: Project, service: served.Served) -> None:
    """The runs of a session share its budget; the runs of other sessions do not."""
    await service.http.put("/api/budgets/book", json={"session_id": "sess_book", "limits": {"calls": 1}})
    wanted: dict[str, Any] = {"recipe_id": "draft", "args": ARGS}
    own = (await service.http.post("/api/runs", json=wanted | {"session_id": "sess_book"})).json()["run_id"]
    paused = await service.until(own, "paused", "done", "failed")
    free = await service.run("draft", args=ARGS)

    assert (paused["status"], paused["error"]["detail"]["budget"]["name"]) == ("paused", "book")
    assert free["status"] == "done"


async def _paused(service: scheduled.Scheduled) -> str:
    answer = await service.http.post("/api/runs", json={"recipe_id": "draft", "args": ARGS})
    assert answer.status_code == 201, answer.text
    run_id = str(answer.json()["run_id"])
    await service.until(run_id, "paused")
    return run_id


async def _sent_on(service: scheduled.Scheduled, run_id: str) -> dict[str, Any]:
    """Move the clock by seconds until a run is done, since the service may be reading a file at one moment."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while (shown := await service.show(run_id))["status"] != "done":
            await service.advance(6)
    return shown
