"""Schedules: triggers that start runs at set times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import clock
from app.domain import triggers
from tests.integration import held, scheduled
from tests.integration.project import Project

EVERY_FIVE_MINUTES = {"cron": "*/5 * * * *"}


async def test_an_occurrence_starts_one_run(tmp_path: Path) -> None:
    """A due run of the recipe begins with the trigger's arguments and labels, and names the trigger as its starter."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
        added = await service.add(
            recipe_id="draft", args=args, labels={"by": "clock"}, schedule={"every_seconds": 60}, name="Each minute"
        )
        await service.advance(60)
        (result,) = await service.results(added["trigger_id"], 1)
        shown = await service.until(result["run_id"], "done")
        await service.advance(60)
        await service.results(added["trigger_id"], 2)
        runs = await service.runs()

    assert added["next_at"][:2] == ["2026-02-10T14:31:00.000Z", "2026-02-10T14:32:00.000Z"]
    assert (result["occurrence"], result["result"]) == ("2026-02-10T14:31:00Z", "started")
    assert shown["started_by"] == {"name": f"trigger {added['trigger_id']}", "claimed": False, "via": "trigger"}
    assert [run["labels"] for run in runs] == [{"by": "clock"}] * 2


async def test_the_scheduler_sleeps_without_an_active_schedule(tmp_path: Path) -> None:
    """With a webhook and a paused schedule the scheduler sleeps while time passes; a schedule wakes it up."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        await service.add(webhook={})
        await service.add(schedule={"every_seconds": 60}, paused=True)
        await service.advance(0)
        before = service.probes.count("triggers.woken")
        for _ in range(10):
            await service.advance(3600)
            await service.runs()
        idle = service.probes.count("triggers.woken") - before
        await service.add(schedule={"every_seconds": 60})
        for _ in range(10):
            await service.advance(30)
        busy = service.probes.count("triggers.woken") - before

    assert idle == 0
    assert busy > 5


async def test_cron_follows_its_time_zone_over_both_changes_of_the_clock(tmp_path: Path) -> None:
    """A skipped local time comes right after the gap; one that comes twice starts one run."""
    night = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    spring, autumn = clock.instant("2026-03-28T00:00:00Z"), clock.instant("2026-10-24T00:00:00Z")
    shown = []
    for begin in (spring, autumn):
        async with scheduled.in_process(Project(tmp_path / begin.isoformat()), clock.FakeClock(begin)) as service:
            shown.append((await service.add(schedule=night))["next_at"][:3])

    assert [at[5:16] for at in shown[0]] == ["03-28T01:30", "03-29T01:00", "03-30T00:30"]
    assert [at[5:16] for at in shown[1]] == ["10-24T00:30", "10-25T00:30", "10-26T01:30"]


async def test_a_single_instant_starts_one_run_and_no_more(tmp_path: Path) -> None:
    """A trigger with `at` fires once, even if the service was down at that time, and has no next time."""
    project, time = Project(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with scheduled.in_process(project, time) as service:
        added = await service.add(schedule={"at": "2026-02-10T16:00:00+01:00"})
    time.advance(7200)
    async with scheduled.in_process(project, time) as service:
        (result,) = await service.results(added["trigger_id"], 1)
        shown = await service.trigger(added["trigger_id"])
    time.advance(7200)
    async with scheduled.in_process(project, time) as service:
        again = await service.trigger(added["trigger_id"])

    assert added["next_at"] == ["2026-02-10T15:00:00.000Z"]
    assert (result["due_at"], result["result"]) == ("2026-02-10T15:00:00.000Z", "started")
    assert shown["next_at"] == again["next_at"] == []
    assert again["history"] == shown["history"]


async def test_a_single_missed_occurrence_is_reported_as_one(tmp_path: Path) -> None:
    """The reason counts one occurrence in the singular."""
    project, time = Project(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with scheduled.in_process(project, time) as service:
        added = await service.add(schedule=EVERY_FIVE_MINUTES, catch_up="none")
    time.advance(8 * 60)
    async with scheduled.in_process(project, time) as service:
        (missed,) = await service.results(added["trigger_id"], 1)

    assert missed["reason"] == "1 occurrence until 2026-02-10T14:35:00Z, not made up for"


@pytest.mark.parametrize(
    ("catch_up", "started", "missed"),
    [("none", 0, "10 occurrences"), ("one", 1, "9 occurrences"), ("all", 10, None)],
)
async def test_missed_occurrences_are_made_up_for_as_asked(
    tmp_path: Path, catch_up: str, started: int, missed: str | None
) -> None:
    """After ten occurrences without a service, none, the newest or all start runs; omitted ones are recorded."""
    project, time = Project(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with scheduled.in_process(project, time) as service:
        added = await service.add(schedule=EVERY_FIVE_MINUTES, catch_up=catch_up, overlap="allow")
    time.advance(53 * 60)
    async with scheduled.in_process(project, time) as service:
        found = await service.results(added["trigger_id"], started + (missed is not None))
        runs = await service.runs()

    begun = [one["occurrence"][11:16] for one in found if one["result"] == "started"]
    reasons = [one["reason"] for one in found if one["result"] == "missed"]
    assert (
        begun
        == ["14:35", "14:40", "14:45", "14:50", "14:55", "15:00", "15:05", "15:10", "15:15", "15:20"][10 - started :]
    )
    assert [reason.startswith(missed) for reason in reasons] == ([True] if missed else [])
    assert len(runs) == started


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", [("started", True), ("skipped", False)]),
        ("allow", [("started", True), ("started", True)]),
        ("cancel", [("started", True), ("started", True)]),
    ],
)
async def test_overlap_decides_while_a_run_is_unfinished(
    tmp_path: Path, overlap: str, expected: list[tuple[str, bool]]
) -> None:
    """The second occurrence is skipped, starts beside the first run, or cancels it."""
    async with scheduled.in_process(_slow(tmp_path)) as service:
        added = await service.add(recipe_id="unguarded", schedule={"every_seconds": 60}, overlap=overlap)
        await service.advance(60)
        (first,) = await service.results(added["trigger_id"], 1)
        await service.until(first["run_id"], step="draft")
        await service.advance(60)
        found = await service.results(added["trigger_id"], 2)
        if overlap == "cancel":
            await service.until(first["run_id"], "cancelled")
        status = (await service.show(first["run_id"]))["status"]

    assert [(one["result"], one["run_id"] is not None) for one in found] == expected
    assert status == ("cancelled" if overlap == "cancel" else "running")
    assert (found[1]["reason"] == f"run {first['run_id']} is unfinished") is (overlap == "skip")


async def test_a_queued_occurrence_starts_when_the_run_before_has_ended(tmp_path: Path) -> None:
    """Queued occurrences survive a restart, and start in order, each after the one before."""
    project, time = _slow(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with scheduled.in_process(project, time) as service:
        added = await service.add(recipe_id="unguarded", schedule={"every_seconds": 60}, overlap="queue")
        await service.advance(60)
        (first,) = await service.results(added["trigger_id"], 1)
        await service.until(first["run_id"], step="draft")
        await service.advance(60)
        # It waits in the file before the history says so.
        await service.until_so(added["trigger_id"], lambda shown: shown["history"][0]["result"] == "queued")
    async with scheduled.in_process(project, time) as service:
        await service.until(first["run_id"], step="draft")
        waiting = await service.trigger(added["trigger_id"])
        await service.http.post(f"/api/runs/{first['run_id']}/cancel")
        await service.until_so(added["trigger_id"], lambda shown: shown["waiting"] == 0)
        found = await service.results(added["trigger_id"], 2)

    assert waiting["waiting"] == 1
    assert [(one["occurrence"][11:16], one["result"]) for one in waiting["history"]] == [
        ("14:32", "queued"),
        ("14:31", "started"),
    ]
    assert [one["occurrence"][11:16] for one in found] == ["14:31", "14:32"]
    assert found[1]["result"] == "started"


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
async def test_overlap_counts_every_unfinished_run(tmp_path: Path, overlap: str) -> None:
    """A run that was fired by hand and has ended does not hide an earlier unfinished run."""
    project = Project(tmp_path)
    project.say("draft", hang=True)
    async with scheduled.in_process(project) as service:
        added = await service.add(recipe_id="unguarded", schedule={"every_seconds": 60}, overlap=overlap)
        await service.advance(60)
        (first,) = await service.results(added["trigger_id"], 1)
        fired = await service.http.post(f"/api/triggers/{added['trigger_id']}/fire", json={})
        by_hand = fired.json()["run_id"]
        await service.http.post(f"/api/runs/{by_hand}/cancel")
        await service.until(by_hand, "cancelled")
        await service.advance(60)
        shown = await service.until_so(added["trigger_id"], lambda now: len(now["history"]) >= 3)
        if overlap == "queue":
            waiting = shown["waiting"]
            await service.http.post(f"/api/runs/{first['run_id']}/cancel")
            await service.until_so(added["trigger_id"], lambda now: now["waiting"] == 0)
        found = (await service.results(added["trigger_id"], 3))[2]
        if overlap != "skip":
            await service.until(first["run_id"], "cancelled")

    assert (found["occurrence"][11:16], found["result"]) == ("14:32", "skipped" if overlap == "skip" else "started")
    assert overlap != "skip" or found["reason"] == f"run {first['run_id']} is unfinished"
    assert overlap != "queue" or waiting == 1


async def test_overlap_counts_runs_that_the_history_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that executes again after a resume counts as unfinished, even without history; its fork does not."""
    monkeypatch.setattr(triggers, "MOST_HISTORY", 1)
    project = Project(tmp_path)
    project.say("draft", hang=True)
    async with scheduled.in_process(project) as service:
        trigger_id = (await service.add(recipe_id="unguarded", schedule={"every_seconds": 60}))["trigger_id"]
        first, second = [await _fired(service, trigger_id) for _ in range(2)]
        await service.http.post(f"/api/runs/{first}/fork", json={})
        await service.http.post(f"/api/runs/{first}/resume", json={})
        shown = await service.trigger(trigger_id)
        await service.advance(60)
        (found,) = (
            await service.until_so(trigger_id, lambda now: bool(now["history"][0]["occurrence"].startswith("2026")))
        )["history"]
        await service.http.post(f"/api/runs/{first}/cancel")
        await service.until(first, "cancelled")
        await service.advance(60)
        (last,) = (await service.until_so(trigger_id, lambda now: now["history"][0]["result"] == "started"))["history"]

    assert ([each["run_id"] for each in shown["history"]], shown["last_run_id"]) == ([second], second)
    assert (found["result"], found["reason"]) == ("skipped", f"run {first} is unfinished")
    assert last["occurrence"][11:16] == "14:32"


async def _fired(service: scheduled.Scheduled, trigger_id: str) -> str:
    """Fire a run by hand, cancel it, and return it."""
    run_id = str((await service.http.post(f"/api/triggers/{trigger_id}/fire", json={})).json()["run_id"])
    await service.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")
    return run_id


async def test_the_wall_clock_may_be_set_back_and_forth(tmp_path: Path) -> None:
    """If the clock is set back, repeated occurrences find their runs; if set forward, skipped ones are missed."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        added = await service.add(schedule={"cron": "0 * * * *"}, overlap="allow")
        await service.advance(1800)
        (first,) = await service.results(added["trigger_id"], 1)
        service.time.jump(-2 * 3600)
        for _ in range(250):
            await service.advance(30)
        back = await service.results(added["trigger_id"], 3)
        service.time.jump(5 * 3600 + 600)
        await service.advance(30)
        forth = await service.results(added["trigger_id"], 5)
        runs = await service.runs()

    assert [(one["occurrence"][11:16], one["result"]) for one in back] == [
        ("15:00", "started"),
        ("14:00", "started"),
        ("15:00", "repeated"),
    ]
    assert back[2]["run_id"] == first["run_id"]
    assert [one["result"] for one in forth[3:]] == ["missed", "started"]
    assert len({run["run_id"] for run in runs}) == 3


async def test_a_paused_trigger_starts_nothing_and_makes_nothing_up(tmp_path: Path) -> None:
    """A paused trigger shows its next time; after an unpause it continues with the next occurrence."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        added = await service.add(schedule=EVERY_FIVE_MINUTES, catch_up="all")
        address = f"/api/triggers/{added['trigger_id']}"
        paused = (await service.http.patch(address, json={"paused": True, "revision": 1})).json()
        stale = await service.http.patch(address, json={"paused": False, "revision": 1})
        service.time.advance(3600)
        await service.http.patch(address, json={"paused": False})
        await service.advance(300)
        (result,) = await service.results(added["trigger_id"], 1)

    assert (paused["paused"], paused["next_at"][0]) == (True, "2026-02-10T14:35:00.000Z")
    assert (stale.status_code, stale.json()["code"]) == (409, "trigger_changed")
    assert result["occurrence"] == "2026-02-10T15:35:00Z"


async def test_fire_starts_a_run_now_once_for_each_key(tmp_path: Path) -> None:
    """A person starts a run of a paused trigger, and a repetition with the same key finds the run."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        added = await service.add(schedule=EVERY_FIVE_MINUTES, paused=True, labels={"by": "clock"})
        address, once = f"/api/triggers/{added['trigger_id']}/fire", {"Idempotency-Key": "once"}
        first = await service.http.post(address, json={}, headers=once)
        again = await service.http.post(address, json={}, headers=once)
        wrong = await service.http.post(address, json={"args": {"tone": "dark"}})
        shown = await service.show(first.json()["run_id"])
        found = await service.results(added["trigger_id"], 1)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run_id"] == first.json()["run_id"] == found[0]["run_id"]
    assert (wrong.status_code, wrong.json()["code"]) == (400, "args_invalid")
    assert shown["started_by"]["via"] == "local"
    assert len(found) == 1


async def test_an_occurrence_without_a_run_records_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A missing recipe leaves a refusal with its reason, also in the log, and the next occurrence is tried again."""
    project = Project(tmp_path)
    async with scheduled.in_process(project) as service:
        added = await service.add(schedule={"every_seconds": 60})
        (project.data / "recipes" / "quick.json").unlink()
        await service.advance(60)
        (result,) = await service.results(added["trigger_id"], 1)

    assert (result["result"], result["run_id"]) == ("refused", None)
    assert "there is no recipe 'quick'" in result["reason"]
    place = f"trigger {added['trigger_id']}: occurrence {result['occurrence']} starts no run: "
    assert any(message.startswith(f"{place}there is no recipe 'quick'") for message in caplog.messages)
    assert result["reason"].endswith("[unknown_recipe]")


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"schedule": {"cron": "61 * * * *"}}, "request_invalid", "$.schedule.cron"),
        ({"schedule": {"cron": "* * * * * *"}}, "request_invalid", "$.schedule.cron"),
        ({"schedule": {"cron": "0 0 31 2 *"}}, "request_invalid", "$.schedule.cron"),
        ({"schedule": {"cron": "* * * * *", "timezone": "../etc/passwd"}}, "request_invalid", "$.schedule.timezone"),
        ({"schedule": {"every_seconds": 9}}, "request_invalid", "$.schedule.every_seconds"),
        ({"schedule": {"every_seconds": 60, "cron": "* * * * *"}}, "request_invalid", "$.schedule"),
        ({"schedule": {"at": "2020-01-01T00:00:00Z"}}, "request_invalid", "$.schedule.at"),
        ({"schedule": {"at": "tomorrow"}}, "request_invalid", "$.schedule.at"),
        ({"schedule": {"chron": "* * * * *"}}, "request_invalid", "$.schedule.chron"),
        ({}, "request_invalid", "$"),
        ({"schedule": {"every_seconds": 60}, "files": {"pattern": "x"}}, "request_invalid", "$"),
        ({"schedule": {"every_seconds": 60}, "recipe_id": "quack"}, "unknown_recipe", None),
        ({"schedule": {"every_seconds": 60}, "args": {"tone": 1}}, "args_invalid", "$.args.tone"),
        ({"schedule": {"every_seconds": 60}, "recipe_id": "draft"}, "args_invalid", "$.args.scene_path"),
        (
            {"schedule": {"every_seconds": 60}, "args_from": {"scene_path": "/x"}},
            "request_invalid",
            "$.args_from.scene_path",
        ),
        ({"files": {"pattern": "in/*.md"}, "args_from": {"tone": "/x"}}, "request_invalid", "$.args_from.tone"),
        ({"webhook": {}, "args_from": {"tone": "x"}}, "request_invalid", "$.args_from.tone"),
        (
            {"webhook": {"scheme": "standard", "signing_secret": "z" * 20}},
            "request_invalid",
            "$.webhook.signing_secret",
        ),
        (
            {"webhook": {"scheme": "standard", "signing_secret": "whsec_MTIzNDU2Nzg5MDEyMzQ1"}},
            "request_invalid",
            "$.webhook.signing_secret",
        ),
        ({"webhook": {"events": ["push"]}}, "request_invalid", "$.webhook.events"),
        ({"webhook": {}, "catch_up": "all"}, "request_invalid", "$.catch_up"),
        ({"files": {"pattern": "in/*.md"}, "catch_up": "none"}, "request_invalid", "$.catch_up"),
        ({"files": {"pattern": "../x"}}, "request_invalid", "$.files.pattern"),
        ({"files": {"pattern": ".control-room/*"}}, "request_invalid", "$.files.pattern"),
        ({"files": {"pattern": "x", "settle_seconds": 0}}, "request_invalid", "$.files.settle_seconds"),
        ({"files": {"pattern": "x"}, "working_dir": "/etc"}, "working_dir_refused", "$.working_dir"),
        ({"files": {"pattern": "x"}, "labels": {"a b": "c"}}, "request_invalid", "$.labels"),
        ({"files": {"pattern": "x"}, "name": "a\u0007"}, "request_invalid", "$.name"),
    ],
)
async def test_a_trigger_that_could_start_nothing_is_refused(
    tmp_path: Path, body: dict[str, Any], code: str, path: str | None
) -> None:
    """The refusal has a code and names the place of the fault, and no trigger is created."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        answer = await service.http.post("/api/triggers", json={"recipe_id": "quick"} | body)
        found = (await service.http.get("/api/triggers")).json()

    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert path is None or answer.json()["flaws"][0]["path"].startswith(path)
    assert found == []


async def test_creating_is_repeated_safely_and_removing_ends_it(tmp_path: Path) -> None:
    """A repetition with the same key finds the trigger, another request is refused; a removed trigger is gone."""
    project, once = Project(tmp_path), {"Idempotency-Key": "nightly"}
    body = {"recipe_id": "quick", "schedule": EVERY_FIVE_MINUTES}
    async with scheduled.in_process(project) as service:
        first = await service.http.post("/api/triggers", json=body, headers=once)
        again = await service.http.post("/api/triggers", json=body, headers=once)
        other = await service.http.post("/api/triggers", json=body | {"paused": True}, headers=once)
        address = first.headers["location"]
        removed = await service.http.delete(address)
        gone = await service.http.get(address)
    async with scheduled.in_process(project) as service:
        left = (await service.http.get("/api/triggers")).json()

    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert (removed.status_code, gone.status_code, gone.json()["code"]) == (204, 404, "trigger_not_found")
    assert left == []


def _slow(root: Path) -> Project:
    """Return a project whose writer answers after an hour of the clock."""
    project = Project(root)
    project.say("draft", text="Done.", delay_seconds=held.DELAY_SECONDS)
    return project
