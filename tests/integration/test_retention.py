"""Retention: a person removes finished runs by age, state, label and size after a preview; pinned runs remain."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

import pytest

from app import errors
from app.domain import retention as rules
from tests.integration import served
from tests.integration.project import Project

ALL = {"older_than_seconds": 0}


async def pruned(service: served.Served, **body: Any) -> dict[str, Any]:
    """Send an order to prune."""
    answer = await service.http.post("/api/runs/prune", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def there(service: served.Served) -> list[str]:
    """Return all runs, newest first."""
    return [row["run_id"] for row in (await service.http.get("/api/runs")).json()]


async def test_a_look_comes_first(service: served.Served) -> None:
    """By default no run is removed; a removal needs the previewed number, and leaves an entry with its author."""
    runs = [(await service.run("quick", labels={"book": book}))["run_id"] for book in ("one", "one", "two")]
    looked = await pruned(service, **ALL, labels={"book": "one"})
    before = await there(service)
    differs = await service.http.post("/api/runs/prune", json=ALL | {"dry_run": False, "expected": 9})
    unseen = await service.http.post("/api/runs/prune", json=ALL | {"dry_run": False})
    done = await pruned(service, **ALL, labels={"book": "one"}, dry_run=False, expected=2)
    audit = (await service.http.get("/api/audit?action=run.deleted")).json()

    assert [run["run_id"] for run in looked["runs"]] == runs[:2]
    assert all(run["size_bytes"] > 0 and run["why"] for run in looked["runs"])
    assert (looked["removed"], looked["dry_run"], len(before)) == (0, True, 3)
    assert (differs.status_code, differs.json()["code"]) == (409, "bulk_count_differs")
    assert unseen.status_code == 400
    assert (done["removed"], done["refused"]) == (2, {})
    assert await there(service) == runs[2:]
    assert {entry["target"] for entry in audit} == set(runs[:2])


async def test_copied_runs_are_kept_and_counted(project: Project) -> None:
    """A run that was copied here stays, takes no room from the others, and the report says so."""
    async with served.in_process(project) as service:
        own = (await service.run("quick"))["run_id"]
    folder = project.data / "runs"
    shutil.copytree(folder / own, folder / "copied")
    async with served.in_process(project) as service:
        by_age, by_size = await pruned(service, **ALL), await pruned(service, keep_bytes=1 << 30)
        removed = await pruned(service, **ALL, dry_run=False, expected=1)
        left = await there(service)

    assert ([run["run_id"] for run in by_age["runs"]], by_age["kept"]) == ([own], {"copied": 1})
    assert (by_size["runs"], by_size["kept"]) == ([], {})
    assert (removed["removed"], left) == (1, ["copied"])


async def test_pinned_and_needed_runs_are_kept(project: Project) -> None:
    """A pinned run of any age stays, and so does a finished child of a working run."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        pinned = (await service.run("quick"))["run_id"]
        await service.http.patch(f"/api/runs/{pinned}", json={"pinned": True})
        parent = await service.start("unguarded")
        await service.until(parent, step="draft")
        child = (await service.run("quick", parent_run_id=parent))["run_id"]
        other = (await service.run("quick"))["run_id"]
        looked = await pruned(service, **ALL)
        done = await pruned(service, **ALL, dry_run=False, expected=1)
        left = await there(service)
        await service.http.post(f"/api/runs/{parent}/cancel")

    assert [run["run_id"] for run in looked["runs"]] == [other]
    assert looked["kept"] == {"pinned": 1, "needed": 1}
    assert done["removed"] == 1
    assert set(left) == {pinned, parent, child}


async def test_age_state_and_size_choose(service: served.Served) -> None:
    """Runs that are too young remain; within a size, the newest remain."""
    runs = [(await service.run("quick"))["run_id"] for _ in range(3)]
    failed = (await service.run("picky", args={"scene_path": "no", "other_path": "no"}))["run_id"]
    young = await pruned(service, older_than_seconds=2**53)
    states = await pruned(service, **ALL, status=["failed"])
    size = next(run["size_bytes"] for run in (await pruned(service, **ALL))["runs"] if run["run_id"] == runs[2])
    small = await pruned(service, keep_bytes=size + 10, status=["done"])

    assert young["matched"] == 0
    assert [run["run_id"] for run in states["runs"]] == [failed]
    assert [run["run_id"] for run in small["runs"]] == runs[:2]


async def test_a_policy_is_applied(project: Project) -> None:
    """A policy is stored durably, survives a restart, and removes runs in its own name."""
    body = {"rules": [{"older_than_seconds": 0, "status": ["done"], "labels": {"book": "one"}}]}
    async with served.in_process(project) as service:
        empty = (await service.http.get("/api/retention")).json()
        put = await service.http.put("/api/retention", json=body)
        gone = (await service.run("quick", labels={"book": "one"}))["run_id"]
        kept = (await service.run("quick"))["run_id"]
    async with served.in_process(project) as service:
        read = (await service.http.get("/api/retention")).json()
        removed = await service.app.state.services.retention.apply()  # type: ignore[union-attr]
        left = await there(service)
        audit = (await service.http.get("/api/audit?action=run.deleted")).json()

    assert empty == {"rules": []}
    assert put.status_code == 200
    assert read == put.json()
    assert read["rules"][0]["labels"] == {"book": "one"}
    assert (removed, left) == (1, [kept])
    assert [(entry["target"], entry["author"]["name"]) for entry in audit] == [(gone, "retention policy")]


async def test_a_damaged_policy_removes_nothing(project: Project) -> None:
    """A damaged policy file is reported with the remedy, and is not changed."""
    file = project.write(".control-room/retention/policy.json", json.dumps({"rules": [{"older_than_seconds": -1}]}))
    async with served.in_process(project) as service:
        answer = await service.http.get("/api/retention")
        put = await service.http.put("/api/retention", json={"rules": []})

    assert (answer.status_code, answer.json()["code"]) == (409, "retention_damaged")
    assert put.status_code == 200
    assert json.loads(file.read_text()) == {"rules": []}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$"),
        ({"older_than_seconds": -1}, "$.older_than_seconds"),
        ({"older_than_seconds": "30d"}, "$.older_than_seconds"),
        ({"older_than_seconds": 1, "status": ["running"]}, "$.status"),
        ({"older_than_seconds": 1, "status": []}, "$.status"),
        ({"older_than_seconds": 1, "labels": {"a b": "x"}}, "$.labels"),
        ({"keep_bytes": 1.5}, "$.keep_bytes"),
        ({"keep": 1}, "$.keep"),
    ],
)
async def test_bad_rules_are_refused_with_their_place(service: served.Served, body: Any, path: str) -> None:
    """Bad rules of an order or a policy are refused with their place."""
    order = await service.http.post("/api/runs/prune", json=body)
    policy = await service.http.put("/api/retention", json={"rules": [body]})

    assert (order.status_code, policy.status_code) == (400, 400)
    assert order.json()["flaws"][0]["path"].startswith(path)
    assert policy.json()["flaws"][0]["path"].startswith("$.rules[0]")


async def test_runs_are_pinned_while_others_are_removed(service: served.Served) -> None:
    """A pin that is set between the preview and the removal keeps its run."""
    runs = [(await service.run("quick"))["run_id"] for _ in range(6)]
    retention = service.app.state.services.retention  # type: ignore[union-attr]
    removing = asyncio.ensure_future(retention.prune(rules.Rule(older_than_seconds=0), dry_run=False))
    pins = await asyncio.gather(
        *(service.http.patch(f"/api/runs/{run_id}", json={"pinned": True}) for run_id in reversed(runs))
    )
    report = await removing
    left = set(await there(service))
    pinned = {run_id for run_id, answer in zip(reversed(runs), pins, strict=True) if answer.status_code == 200}

    assert pinned <= left
    assert report.removed + len(left) == 6


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ([], ["$.rules"]),
        ({"rules": [1, {"older_than_seconds": 1}]}, ["$.rules[0]"]),
        (
            {"rules": [{"older_than_seconds": -1}, {"keep_bytes": True}]},
            ["$.rules[0].older_than_seconds", "$.rules[1].keep_bytes"],
        ),
        ({"rules": [{"older": 1}]}, ["$.rules[0].older", "$.rules[0]"]),
        ({"rules": [{"keep_bytes": 1, "status": ["failed", "cancelld"]}]}, ["$.rules[0].status"]),
        ({"rules": [{"keep_bytes": 1, "status": "done"}]}, ["$.rules[0].status"]),
        (
            {"rules": [{"keep_bytes": 1, "recipe_id": 3, "labels": {"book": 1}}]},
            ["$.rules[0].recipe_id", "$.rules[0].labels"],
        ),
    ],
)
def test_a_file_that_is_not_a_policy_is_refused_with_every_place(document: Any, places: list[str]) -> None:
    """`retention set FILE` and a policy that a person changed are checked by the same rules as a request."""
    with pytest.raises(errors.RequestInvalid) as refused:
        rules.Policy.of(document)

    assert [flaw.path for flaw in refused.value.flaws] == places


async def test_a_run_is_deleted_once_and_a_pinned_one_is_not_recorded_as_deleted(service: served.Served) -> None:
    """Orders on one run at a time take turns: the second delete finds no run, and only what happens is recorded."""
    gone, kept = [(await service.run("quick"))["run_id"] for _ in range(2)]
    marking = service.http.patch(f"/api/runs/{kept}", json={"pinned": True})
    answers = await asyncio.gather(*(service.http.delete(f"/api/runs/{gone}") for _ in range(3)), marking)
    with pytest.raises(errors.Conflict, match="is pinned"):
        await service.app.state.services.runs.delete(kept, spare_pinned=True)  # type: ignore[union-attr]
    audit = (await service.http.get("/api/audit?action=run.deleted")).json()

    assert sorted(answer.status_code for answer in answers) == [200, 204, 404, 404]
    assert [entry["target"] for entry in audit] == [gone]
