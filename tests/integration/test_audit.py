"""The audit list: every order and every change over HTTP names its author."""

from __future__ import annotations

import json

from tests.integration import served
from tests.integration.project import Project

ADA = {"X-Control-Room-Author": "Ada"}


async def test_changes_without_a_journal_name_their_author(project: Project) -> None:
    """The list contains issues, deletions and repairs with their authors, and not refused orders."""
    async with served.in_process(project) as service:
        http = service.http
        made = (await http.post("/api/issues", json={"title": "Fix the door"}, headers=ADA)).json()["issue_id"]
        await http.patch(f"/api/issues/{made}", json={"note": "done", "status": "closed"}, headers=ADA)
        await http.patch(f"/api/issues/{made}", json={"title": "x", "revision": 1}, headers=ADA)
        await http.patch(f"/api/issues/{made}", json={"status": "closed"}, headers=ADA)
        run_id = await service.start("unguarded")
        await service.until(run_id, "done")
        await http.post("/api/runs/bulk", json={"action": "delete", "run_ids": [run_id]}, headers=ADA)
        plan = {"tasks": [{"description": "Draft", "recipe_id": "unguarded"}]}
        session_id = (await http.post("/api/sessions", json=plan, headers=ADA)).json()["session_id"]
        await http.delete(f"/api/sessions/{session_id}", headers=ADA)
        listed = (await http.get("/api/audit")).json()
        first = await http.get("/api/audit", params={"limit": 1, "author": "Ada"})
        second = await http.get(first.headers["Link"].partition(">")[0].removeprefix("<"))
        refused = await http.get("/api/audit", params={"cursor": "x"})

    assert [(entry["action"], entry["target"]) for entry in listed] == [
        ("plan.deleted", session_id),
        ("plan.created", session_id),
        ("run.deleted", run_id),
        ("issue.edited", made),
        ("issue.created", made),
    ]
    assert {json.dumps(entry["author"]) for entry in listed} == {
        json.dumps({"name": "Ada", "claimed": True, "via": "local"})
    }
    assert listed[3]["details"] == {"changed": ["status", "note"], "revision": 2}
    assert first.json() + second.json() == listed[:2]
    assert refused.json()["code"] == "bad_cursor"


async def test_pauses_of_triggers_are_actions_of_their_own(project: Project) -> None:
    """The pause and unpause of a trigger are other actions than an edit; an unknown action is refused at its place."""
    async with served.in_process(project) as service:
        new = {"recipe_id": "quick", "schedule": {"every_seconds": 86_400}}
        path = f"/api/triggers/{(await service.http.post('/api/triggers', json=new)).json()['trigger_id']}"
        for changes in ({"paused": True}, {"paused": False}, {"paused": True, "name": "daily"}):
            answer = await service.http.patch(path, json=changes)
            assert answer.status_code == 200, answer.text
        listed = (await service.http.get("/api/audit", params={"action": "trigger"})).json()
        refused = await service.http.get("/api/audit", params={"action": "triggers"})

    assert [entry["action"].partition(".")[2] for entry in listed] == ["edited", "unpaused", "paused", "created"]
    assert (refused.status_code, refused.json()["flaws"][0]["path"]) == (400, "query.action")


async def test_orders_to_a_run_name_their_authors(project: Project) -> None:
    """Start and label of a run are in the list at once, with the file of each line; a refused pause is not."""
    async with served.in_process(project) as service:
        http = service.http
        body = {"recipe_id": "unguarded"}
        run_id = (await http.post("/api/runs", json=body, headers=ADA)).json()["run_id"]
        await http.patch(
            f"/api/runs/{run_id}", json={"labels": {"book": "one"}}, headers={"X-Control-Room-Author": "Eve"}
        )
        await service.until(run_id, "done")
        refused = await http.post(f"/api/runs/{run_id}/pause", headers=ADA)
        listed = (await http.get("/api/audit", params={"target": run_id})).json()
        by_eve = (await http.get("/api/audit", params={"author": "Eve", "action": "run"})).json()
        before = (await http.get("/api/audit", params={"created_before": listed[-1]["at"]})).json()

    assert refused.status_code == 409
    assert [(entry["action"], entry["author"]["name"], entry["file"]) for entry in listed] == [
        ("run.labelled", "Eve", "control.jsonl"),
        ("run.started", "Ada", "start.json"),
    ]
    assert by_eve == listed[:1]
    assert by_eve[0]["details"] == {"labels": {"book": "one"}}
    assert {entry["run_id"] for entry in listed} == {run_id}
    assert before == []


async def test_orders_to_a_plan_name_their_authors(project: Project) -> None:
    """The list names who made, approved and started a plan, and who answered its question, also after a restart."""
    tasks = [{"description": "Look around", "recipe_id": "quick", "scoping_question": "Where?"}]
    async with served.in_process(project) as service:
        http = service.http
        session_id = (await http.post("/api/sessions", json={"tasks": tasks}, headers=ADA)).json()["session_id"]
        address = f"/api/sessions/{session_id}"
        await http.post(f"{address}/approve", headers=ADA)
        await http.post(f"{address}/start", headers={"X-Control-Room-Author": "Eve"})
        answered = await http.post(f"{address}/tasks/1/answer", json={"answer": "Here"}, headers=ADA)
        live = (await http.get("/api/audit", params={"target": session_id})).json()
    async with served.in_process(project) as service:
        kept = (await service.http.get("/api/audit", params={"action": "plan"})).json()
    for file in project.data.glob("index.db*"):
        file.unlink()
    async with served.in_process(project) as service:
        rebuilt = (await service.http.get("/api/audit", params={"action": "plan"})).json()

    assert answered.status_code == 200
    assert [(entry["action"], entry["author"]["name"], entry["details"].get("status")) for entry in live] == [
        ("plan.changed", "Ada", "running"),
        ("plan.changed", "Eve", "running"),
        ("plan.changed", "Ada", "approved"),
        ("plan.created", "Ada", None),
    ]
    assert live == kept == rebuilt


async def test_the_row_of_a_run_shows_its_pin(project: Project) -> None:
    """The row of a run shows its pin at once, after a restart, and in a rebuilt index."""
    async with served.in_process(project) as service:
        pinned, other = [await service.start("quick") for _ in range(2)]
        for run_id in (pinned, other):
            await service.until(run_id, "done")
        await service.http.patch(f"/api/runs/{pinned}", json={"pinned": True})
        found = [(await service.http.get("/api/runs")).json()]
        await service.http.patch(f"/api/runs/{other}", json={"pinned": True})
        await service.http.patch(f"/api/runs/{other}", json={"pinned": False})
        found.append((await service.http.get("/api/runs")).json())
    async with served.in_process(project) as service:
        found.append((await service.http.get("/api/runs")).json())
    for file in project.data.glob("index.db*"):
        file.unlink()
    async with served.in_process(project) as service:
        found.append((await service.http.get("/api/runs")).json())

    assert [[row["run_id"] for row in rows if row["pinned"]] for rows in found] == [[pinned]] * 4
