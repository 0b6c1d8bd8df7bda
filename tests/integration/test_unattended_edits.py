"""Edits of triggers and endpoints: other fields remain, secrets are shown once, and no message is repeated."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration import endpoints, scheduled, served
from tests.integration.project import SCENE, Project

ADDRESS = "/api/notifications/endpoints"
WEBHOOK = {"recipe_id": "quick", "webhook": {"scheme": "standard"}}
FILES = {"recipe_id": "draft", "args_from": {"scene_path": "/path"}, "files": {"pattern": "in/*.md"}}


async def edited(service: served.Served, path: str, **body: Any) -> dict[str, Any]:
    """Change a trigger or an endpoint, and return it."""
    answer = await service.http.patch(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_webhook_gets_another_address_and_scheme(project: Project) -> None:
    """The old address is no longer valid; the secret of another scheme is new, and each secret is shown once."""
    async with scheduled.in_process(project) as service:
        added = await service.add(recipe_id="quick", webhook={})
        path = f"/api/triggers/{added['trigger_id']}"
        moved = await edited(service, path, webhook={"new_address": True})
        old = await service.http.post(added["address"], json={})
        new = await service.http.post(moved["address"], json={})
        signed = await edited(service, path, webhook={"scheme": "github", "events": ["push"]})
        unsigned = await service.http.post(moved["address"], json={})
        own = await edited(service, path, webhook={"signing_secret": "s" * 20})
        again = await edited(service, path, webhook={"new_address": True})
        later = (await service.http.get(path)).json()

    assert moved["address"] != added["address"]
    assert (old.status_code, new.status_code) == (404, 202)
    assert ("address" in signed, len(signed["signing_secret"]) > 20) == (False, True)
    assert (unsigned.status_code, unsigned.json()["code"]) == (400, "signature_invalid")
    assert "signing_secret" not in own
    assert ("address" in again, "signing_secret" in again) == (True, False)
    assert later["webhook"] == {"scheme": "github", "events": ["push"]}
    assert later["revision"] == 5


async def test_an_edit_to_the_present_values_is_no_change(project: Project) -> None:
    """A trigger or an endpoint that has all values of an edit keeps its revision, and the audit log names no change."""
    async with scheduled.in_process(project) as service:
        trigger = await service.add(recipe_id="quick", webhook={"scheme": "github", "events": ["push"]})
        endpoint = (await service.http.post(ADDRESS, json={"url": "https://x.example", "kinds": ["done"]})).json()
        edits: list[dict[str, Any]] = [
            {"paused": False},
            {"name": "quick", "labels": {}},
            {"webhook": {}},
            {"webhook": {"scheme": "github", "events": ["push"]}},
        ]
        path = f"/api/triggers/{trigger['trigger_id']}"
        revisions = [(await edited(service, path, **each))["revision"] for each in edits]
        same = {"url": "https://x.example", "kinds": ["done"], "label": None}
        await edited(service, f"{ADDRESS}/{endpoint['endpoint_id']}", **same)
        paused = await edited(service, path, paused=True)
        orders = [each["action"] for each in (await service.http.get("/api/audit")).json()]

    assert revisions == [1] * 4
    assert paused["revision"] == 2
    assert orders == ["trigger.paused", "endpoint.added", "trigger.created"]


async def test_another_pattern_leaves_the_files_that_are_there_alone(project: Project) -> None:
    """A changed pattern applies to later files, as for a new trigger; the other settings remain."""
    project.write("in/old.md", SCENE)
    project.write("in/old.txt", SCENE)
    async with scheduled.in_process(project) as service:
        added = await service.add(**FILES)
        path = f"/api/triggers/{added['trigger_id']}"
        shown = await edited(service, path, files={"settle_seconds": 1, "pattern": "in/*.txt"})
        project.write("in/new.txt", SCENE)
        project.write("in/new.md", SCENE)
        for _ in range(4):
            await service.advance(2)
        (first,) = await service.results(added["trigger_id"], 1)
        runs = await service.runs()

    assert shown["files"] == {"pattern": "in/*.txt", "settle_seconds": 1, "existing": "ignore"}
    assert (first["subject"], len(runs)) == ("in/new.txt", 1)


async def test_files_that_are_there_start_runs_once_an_edit_wants_them(project: Project) -> None:
    """An edit to `existing: start` starts the files that are there, each once, also without another pattern."""
    project.write("in/old.md", SCENE)
    async with scheduled.in_process(project) as service:
        added = await service.add(**FILES)
        path = f"/api/triggers/{added['trigger_id']}"
        await edited(service, path, files={"existing": "start"})
        for _ in range(3):
            await service.advance(2)
        (first,) = await service.results(added["trigger_id"], 1)
        await edited(service, path, files={"existing": "start", "settle_seconds": 1})
        await edited(service, path, files={"existing": "ignore"})
        for _ in range(3):
            await service.advance(2)
        runs = await service.runs()

    assert (first["subject"], first["result"], len(runs)) == ("in/old.md", "started", 1)


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"cron": "0 6 * * *"}, {"cron": "0 6 * * *", "timezone": "Europe/Berlin"}),
        ({"timezone": "Asia/Tokyo"}, {"cron": "30 7 * * *", "timezone": "Asia/Tokyo"}),
        ({"cron": "0 6 * * *", "timezone": "UTC"}, {"cron": "0 6 * * *", "timezone": "UTC"}),
        ({"every_seconds": 60}, {"every_seconds": 60, "timezone": "UTC"}),
    ],
)
async def test_an_edited_schedule_keeps_the_fields_that_are_omitted(
    project: Project, change: dict[str, Any], after: dict[str, Any]
) -> None:
    """Other times of a cron trigger are times of its zone; an interval has none."""
    async with scheduled.in_process(project) as service:
        added = await service.add(schedule={"cron": "30 7 * * *", "timezone": "Europe/Berlin"})
        shown = await edited(service, f"/api/triggers/{added['trigger_id']}", schedule=change)

    assert shown["schedule"] == after


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"webhook": {"scheme": "github"}}, "$.webhook"),
        ({"schedule": {"every_seconds": 60}}, "$.schedule"),
        ({"files": {"pattern": "../x"}}, "$.files.pattern"),
        ({"files": {"settle_seconds": 0}}, "$.files.settle_seconds"),
        ({"files": {"colour": "red"}}, "$.files.colour"),
        ({}, "$"),
    ],
)
async def test_a_wrong_edit_of_a_trigger_is_refused_at_its_place(
    project: Project, body: dict[str, Any], place: str
) -> None:
    """A wrong edit is refused with the place of the fault, and the trigger does not change."""
    async with scheduled.in_process(project) as service:
        added = await service.add(**FILES)
        answer = await service.http.patch(f"/api/triggers/{added['trigger_id']}", json=body)
        shown = await service.trigger(added["trigger_id"])

    assert answer.status_code == 400
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == [place]
    assert shown["revision"] == 1


async def test_an_edited_endpoint_applies_to_the_next_message_only(tmp_path: Path) -> None:
    """A new address and other kinds apply to the next message, also after a restart; no message is repeated."""
    project = Project(tmp_path)
    allowed: dict[str, Any] = {"notify_allowed": ("127.0.0.0/8",)}
    async with endpoints.receiver() as first, endpoints.receiver() as second:
        async with served.in_process(project, **allowed) as service:
            added = (await service.http.post(ADDRESS, json={"url": first.url, "kinds": ["done"]})).json()
            path = f"{ADDRESS}/{added['endpoint_id']}"
            one = await service.run("quick")
            await first.until(1)
            shown = await edited(service, path, url=second.url, kinds=[])
            two = await service.run("quick")
            await second.until(1)
            renewed = await edited(service, path, signing_secret=None)
        async with served.in_process(project, **allowed) as service:
            listed = (await service.http.get(ADDRESS)).json()
            broken = await service.run("draft", args={"scene_path": "none.md"})
            await second.until(2)

    assert [post.content["data"]["run_id"] for post in first.posts] == [one["run_id"]]
    assert [post.content["data"]["run_id"] for post in second.posts] == [two["run_id"], broken["run_id"]]
    assert (shown["url"], shown["kinds"], "signing_secret" in shown) == (second.url, [], False)
    assert renewed["signing_secret"] not in (None, added["signing_secret"])
    assert (listed[0]["url"], listed[0]["name"]) == (second.url, added["name"])


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"to": ["a@example.org"]}, "$.to"),
        ({"url": "ftp://x"}, "$.url"),
        ({"label": "book"}, "$.label"),
        ({"signing_secret": "short"}, "$.signing_secret"),
        ({"signing_secret": "whsec_MQ=="}, "$.signing_secret"),
        ({}, "$"),
    ],
)
async def test_a_wrong_edit_of_an_endpoint_is_refused_at_its_place(
    service: served.Served, body: dict[str, Any], place: str
) -> None:
    """A wrong edit is refused with the place of the fault, and the endpoint does not change."""
    added = (await service.http.post(ADDRESS, json={"url": "https://hooks.example.org/runs"})).json()
    answer = await service.http.patch(f"{ADDRESS}/{added['endpoint_id']}", json=body)
    (shown,) = (await service.http.get(ADDRESS)).json()
    none = await service.http.patch(f"{ADDRESS}/ep_none", json={"name": "x"})

    assert answer.status_code == 400, answer.text
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == [place]
    assert shown == {name: value for name, value in added.items() if name != "signing_secret"}
    assert (none.status_code, none.json()["code"]) == (404, "endpoint_not_found")


@pytest.mark.parametrize(
    ("path", "folder", "body", "place"),
    [
        (ADDRESS, "outbox", {"url": "https://hooks.example.org/runs"}, ["signing_secret"]),
        ("/api/triggers", "triggers", WEBHOOK, ["webhook", "signing_secret"]),
    ],
    ids=["endpoint", "trigger"],
)
async def test_a_short_secret_of_an_earlier_version_stays(
    tmp_path: Path, path: str, folder: str, body: dict[str, Any], place: list[str]
) -> None:
    """An edit of other fields leaves a secret that would be refused today; a request cannot set it again."""
    project, short = Project(tmp_path), "whsec_MTIzNDU2Nzg5MDEyMzQ1"
    async with served.in_process(project) as service:
        added = (await service.http.post(path, json=body)).json()
        own = f"{path}/{added.get('endpoint_id') or added['trigger_id']}"
    (file,) = (project.data / folder).glob("*.json")
    content = json.loads(file.read_text())
    (content if len(place) == 1 else content[place[0]])[place[-1]] = short
    file.write_text(json.dumps(content))
    renewed: dict[str, Any] = {"signing_secret": "whsec_MTIzNDU2Nzg5MDEyMzQ="}
    async with served.in_process(project) as service:
        renamed = await service.http.patch(own, json={"name": "other"})
        again = await service.http.patch(own, json=renewed if len(place) == 1 else {"webhook": renewed})

    kept = json.loads(file.read_text())
    assert (renamed.status_code, renamed.json()["name"]) == (200, "other"), renamed.text
    assert (again.status_code, [flaw["path"] for flaw in again.json()["flaws"]]) == (400, [f"$.{'.'.join(place)}"])
    assert (kept if len(place) == 1 else kept[place[0]])[place[-1]] == short


async def test_edits_at_the_same_moment_all_count(service: served.Served) -> None:
    """Two simultaneous edits of different fields both apply."""
    added = (await service.http.post(ADDRESS, json={"url": "https://hooks.example.org/runs"})).json()
    path = f"{ADDRESS}/{added['endpoint_id']}"
    await asyncio.gather(edited(service, path, kinds=["failed"]), edited(service, path, name="Ada"))
    (shown,) = (await service.http.get(ADDRESS)).json()

    assert (shown["kinds"], shown["name"]) == (["failed"], "Ada")
