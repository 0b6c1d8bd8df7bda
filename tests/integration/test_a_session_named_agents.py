"""A work session named `agents`, whose plan would share a folder with agent conversations."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration import conferring, served
from tests.integration.project import Project


def kept(project: Project) -> dict[str, bytes]:
    """Return every file of a conversation."""
    folder = project.data / "sessions" / "agents"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_session_named_agents_is_a_usual_session(service: served.Served) -> None:
    """A session named `agents` has runs, receipts and issues of its own, but not a plan."""
    before = kept(service.project)
    unknown = await service.http.post("/api/issues", json={"title": "x", "session_id": "agents"})
    run = await service.run("quick", session_id="agents")
    issue = await service.http.post("/api/issues", json={"title": "x", "session_id": "agents"})
    plan = await service.http.get("/api/sessions/agents")
    edits = [
        await service.http.patch("/api/sessions/agents", json={"order": [1]}),
        await service.http.post("/api/sessions/agents/start"),
        await service.http.post("/api/sessions/agents/tasks", json={"description": "look around"}),
    ]

    assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown_session")
    assert run["status"] == "done"
    assert issue.status_code == 201
    assert (service.project.data / "audit" / "sessions" / "agents" / "tool_receipts.jsonl").is_file()
    assert [answer.status_code for answer in (plan, *edits)] == [404] * 4
    assert plan.json()["code"] == "plan_not_found"
    assert kept(service.project) == before
    assert (await service.http.get("/api/sessions")).json() == []


async def test_a_conference_in_it_harms_no_conversation(tmp_path: Path) -> None:
    """A conference in the session `agents` keeps its receipts and writes no plan into the folder of conversations."""
    project = conferring.made(tmp_path)
    async with served.in_process(project) as service:
        answer = await service.http.post("/api/conferences", json={"message": "Early?", "session_id": "agents"})
        run = await service.until(answer.json()["run_id"], "done", "failed")

    assert run["status"] == "done", run["error"]
    assert not (project.data / "sessions" / "agents" / "plan.json").exists()


async def test_a_plan_put_there_by_hand_is_none(service: served.Served) -> None:
    """The service ignores a plan file in the folder of conversations, and does not take it for a session."""
    plan = {
        "session_id": "agents",
        "created_by": "user",
        "status": "running",
        "created_at": "2026-02-10T14:00:00Z",
        "tasks": [{"id": 1, "description": "look around", "recipe_id": "quick", "deps": [], "status": "pending"}],
    }
    service.project.write(".control-room/sessions/agents/plan.json", json.dumps(plan))

    assert (await service.http.get("/api/sessions")).json() == []
    assert (await service.http.get("/api/sessions/agents")).status_code == 404
    refused = await service.http.post("/api/issues", json={"title": "x", "session_id": "agents"})
    assert refused.json()["code"] == "unknown_session"
    assert (await service.http.get("/api/runs")).json() == []
