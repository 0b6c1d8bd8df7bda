"""The contract as a client sees it: HTTP and the run folder alone, against execution-modes, appendices A to D."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration import project as projects
from tests.integration import served

TASK = {
    "recipe_id": "draft",
    "description": "Draft the arrival",
    "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"},
    "session_id": "sess_black_box",
    "session_plan_task_id": 1,
}


class Outsider:
    """A client that knows only the addresses and the folder."""

    def __init__(self, http: httpx.AsyncClient, data: Path) -> None:
        self.http = http
        self.data = data

    async def get(self, address: str) -> Any:
        """Return the answer of an address."""
        answer = await self.http.get(address)
        assert answer.status_code == 200
        return answer.json()

    def folder(self, run_id: str) -> Path:
        """Return a run's folder."""
        return self.data / "runs" / run_id

    def document(self, run_id: str, name: str) -> Any:
        """Return a JSON file of a run."""
        return json.loads((self.folder(run_id) / name).read_text(encoding="utf-8"))

    def lines(self, run_id: str) -> list[Any]:
        """Return the journal of a run."""
        return [json.loads(line) for line in (self.folder(run_id) / "steps.jsonl").read_text().splitlines()]


@pytest.fixture
async def outsider(project: projects.Project) -> AsyncIterator[Outsider]:
    """Return a client of a running service."""
    async with served.in_process(project) as service:
        yield Outsider(service.http, project.data)


async def ended(outsider: Outsider, body: dict[str, Any]) -> str:
    """Start a run, poll until it has ended, and return its id."""
    run_id = str((await outsider.http.post("/api/runs", json=body)).json()["run_id"])
    service = served.Served(projects.Project, outsider.http)  # type: ignore[arg-type]
    await service.until(run_id, "done", "failed", "cancelled")
    return run_id


def instant(text: str) -> datetime:
    """Parse an instant in the form of the appendices."""
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


async def test_the_manifest(outsider: Outsider) -> None:
    """Appendix A, run.json: every field of the specification is present with its meaning."""
    run_id = await ended(outsider, TASK)
    manifest = outsider.document(run_id, "run.json")

    assert manifest["run_id"] == run_id
    assert manifest["recipe_id"] == "draft"
    assert manifest["session_id"] == "sess_black_box"
    assert manifest["status"] == "done"
    assert instant(manifest["created_at"]) <= instant(manifest["updated_at"])
    assert instant(manifest["created_at"]) <= instant(manifest["completed_at"])
    assert manifest["task"] == {
        "description": "Draft the arrival",
        "session_plan_task_id": 1,
        "initial_args": {"scene_path": "Story/Scenes/SCN-the-arrival.md", "words": 500},
    }
    assert (manifest["current_step_index"], manifest["total_steps"]) == (4, 4)
    assert (manifest["phase"], manifest["error"]) == (None, None)


async def test_the_manifest_while_the_run_lives(outsider: Outsider, project: projects.Project) -> None:
    """Appendix A, run.json while an agent works: running, in phase b, not completed, two of four steps finished."""
    project.say("draft", hang=True)
    run_id = (await outsider.http.post("/api/runs", json=TASK)).json()["run_id"]
    service = served.Served(project, outsider.http)
    shown = await service.until(run_id, step="draft")
    await outsider.http.post(f"/api/runs/{run_id}/cancel")

    assert (shown["status"], shown["phase"], shown["completed_at"]) == ("running", "b", None)
    assert (shown["current_step_index"], shown["total_steps"]) == (2, 4)


async def test_the_manifest_of_a_failed_run(outsider: Outsider) -> None:
    """Appendix A, run.json of a failed run: the error names the step and the reason."""
    run_id = await ended(outsider, TASK | {"args": {"scene_path": "Story/none.md"}})
    manifest = outsider.document(run_id, "run.json")

    assert (manifest["status"], manifest["phase"]) == ("failed", None)
    assert set(manifest["error"]) == {"code", "message", "key", "detail"}
    assert (manifest["error"]["code"], manifest["error"]["key"]) == ("file_not_found", "analyze")
    assert manifest["current_step_index"] == 1


async def test_the_journal_of_a_tool_step(outsider: Outsider) -> None:
    """Appendix A, steps.jsonl, phase A: tool, receipt, the input read, and the hash and beginning of the output."""
    run_id = await ended(outsider, TASK)
    line = outsider.lines(run_id)[0]
    receipt = await outsider.get(f"/api/audit/receipts/{line['receipt_id']}")
    canonical = json.dumps(receipt["payload"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert (line["step_index"], line["step_id"], line["phase"]) == (0, "discover", "a")
    assert (line["tool"], line["agent_archetype"], line["agent_id"]) == ("file_locator", None, None)
    assert (line["status"], line["output_slot"], line["error"]) == ("done", "discovery", None)
    assert isinstance(line["input_slot_refs"], list)
    assert line["output_hash"] == "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    assert 0 < len(line["output_preview"]) <= 200
    assert instant(line["started_at"]) <= instant(line["completed_at"])


async def test_the_journal_of_an_agent_step(outsider: Outsider) -> None:
    """Appendix A, steps.jsonl, phase B: archetype and agent instead of a tool, no receipt, the slots read."""
    run_id = await ended(outsider, TASK)
    lines = outsider.lines(run_id)
    line = lines[2]

    assert [one["step_id"] for one in lines][:4] == ["discover", "analyze", "draft", "polish"]
    assert (line["step_index"], line["phase"], line["tool"]) == (2, "b", None)
    assert (line["agent_archetype"], line["agent_id"], line["receipt_id"]) == ("writer", "writer-1", None)
    assert (line["status"], line["output_slot"], line["input_slot_refs"]) == (
        "done",
        "draft",
        ["discovery", "task.description"],
    )
    assert line["output_hash"] == "sha256:" + hashlib.sha256(projects.REPLY.encode()).hexdigest()
    assert line["output_preview"] == projects.REPLY[:200]


async def test_the_journal_of_a_failed_step(outsider: Outsider) -> None:
    """Appendix A, steps.jsonl: a failed step is a line with its error."""
    run_id = await ended(outsider, TASK | {"args": {"scene_path": "Story/none.md"}})
    line = outsider.lines(run_id)[1]

    assert (line["step_id"], line["status"]) == ("analyze", "failed")
    assert (line["error"]["code"], line["error"]["key"]) == ("file_not_found", "analyze")


async def test_receipts_are_in_the_audit_path(outsider: Outsider) -> None:
    """Appendix A: payloads are stored once, in the session's tool receipts, and the journal points to them."""
    run_id = await ended(outsider, TASK)
    path = outsider.data / "audit" / "sessions" / "sess_black_box" / "tool_receipts.jsonl"
    receipts = [json.loads(line) for line in path.read_text().splitlines()]
    named = [line["receipt_id"] for line in outsider.lines(run_id) if line["receipt_id"]]

    assert [receipt["receipt_id"] for receipt in receipts] == named
    assert [receipt["tool"] for receipt in receipts] == ["file_locator", "prose_analyzer"]
    assert {receipt["run_id"] for receipt in receipts} == {run_id}
    assert {receipt["session_id"] for receipt in receipts} == {"sess_black_box"}
    assert all(name.startswith("rcpt_") for name in named)


async def test_the_slots(outsider: Outsider) -> None:
    """Appendix A, cache.json: pointers for tools, artifacts with their text for agents."""
    run_id = await ended(outsider, TASK)
    cache = outsider.document(run_id, "cache.json")
    lines = {line["output_slot"]: line for line in outsider.lines(run_id)}

    assert list(cache) == ["discovery", "prose", "draft", "edited_draft"]
    for name in ("discovery", "prose"):
        assert set(cache[name]) == {"type", "receipt_id", "sha256", "summary"}
        assert (cache[name]["type"], cache[name]["receipt_id"]) == ("pointer", lines[name]["receipt_id"])
    for name, agent_id in (("draft", "writer-1"), ("edited_draft", "editor-1")):
        assert set(cache[name]) == {"type", "agent_id", "text", "sha256", "summary"}
        assert (cache[name]["type"], cache[name]["agent_id"]) == ("artifact", agent_id)
        assert cache[name]["text"] == projects.REPLY
    for name, slot in cache.items():
        assert f"sha256:{slot['sha256']}" == lines[name]["output_hash"]
        assert slot["summary"]


async def test_starting_a_run(outsider: Outsider) -> None:
    """Appendix D, POST /api/runs: 201 with id and status; 400 for an unknown recipe and for missing arguments."""
    answer = await outsider.http.post("/api/runs", json=TASK)
    unknown = await outsider.http.post("/api/runs", json=TASK | {"recipe_id": "none"})
    missing = await outsider.http.post("/api/runs", json={"recipe_id": "draft"})

    assert answer.status_code == 201
    assert set(answer.json()) == {"run_id", "status"}
    assert answer.json()["status"] in ("running", "pending")
    assert (unknown.status_code, missing.status_code) == (400, 400)


async def test_listing_runs(outsider: Outsider) -> None:
    """Appendix D, GET /api/runs: a plain array of summaries, filtered by status and recipe."""
    run_id = await ended(outsider, TASK)
    listed = await outsider.get("/api/runs")
    manifest = outsider.document(run_id, "run.json")

    assert isinstance(listed, list)
    assert {"run_id", "recipe_id", "status", "created_at"} <= set(listed[0])
    assert {name: listed[0][name] for name in ("run_id", "recipe_id", "status", "created_at")} == {
        name: manifest[name] for name in ("run_id", "recipe_id", "status", "created_at")
    }
    assert await outsider.get("/api/runs?status=done&recipe_id=draft") == listed
    assert await outsider.get("/api/runs?status=failed") == []


async def test_polling_a_run(outsider: Outsider) -> None:
    """Appendix D, GET /api/runs/{id}: the manifest, the steps with their previews and the slots in one answer."""
    run_id = await ended(outsider, TASK)
    shown = await outsider.get(f"/api/runs/{run_id}")
    manifest = outsider.document(run_id, "run.json")
    cache = outsider.document(run_id, "cache.json")
    named = (
        "run_id recipe_id status phase current_step_index total_steps created_at updated_at completed_at task error"
    ).split()

    assert {name: shown[name] for name in named} == {name: manifest[name] for name in named}
    discover = next(step for step in shown["steps"] if step["step_id"] == "discover")
    assert (discover["phase"], discover["status"], discover["tool"]) == ("a", "done", "file_locator")
    assert (discover["output_slot"], discover["output_preview"]) == ("discovery", cache["discovery"]["summary"])
    assert "agent_archetype" not in discover
    draft = next(step for step in shown["steps"] if step["step_id"] == "draft")
    assert (draft["phase"], draft["status"], draft["agent_archetype"]) == ("b", "done", "writer")
    assert (draft["output_slot"], draft["output_preview"]) == ("draft", projects.REPLY[:200])
    assert "tool" not in draft
    assert shown["cache_summary"] == {
        name: {"type": slot["type"], "preview": slot["summary"]} for name, slot in cache.items()
    }


async def test_polling_a_living_run(outsider: Outsider, project: projects.Project) -> None:
    """Appendix D, GET /api/runs/{id} of a run whose agent works: the open step is `running`, without a preview."""
    project.say("draft", hang=True)
    run_id = (await outsider.http.post("/api/runs", json=TASK)).json()["run_id"]
    shown = await served.Served(project, outsider.http).until(run_id, step="draft")
    await outsider.http.post(f"/api/runs/{run_id}/cancel")
    last = shown["steps"][-1]

    assert (last["step_id"], last["phase"], last["status"]) == ("draft", "b", "running")
    assert (last["agent_archetype"], last["output_slot"]) == ("writer", "draft")
    assert "output_preview" not in last


async def test_the_step_log(outsider: Outsider) -> None:
    """Appendix D, GET /api/runs/{id}/steps: the parsed lines of the journal, with all their fields."""
    run_id = await ended(outsider, TASK)

    assert await outsider.get(f"/api/runs/{run_id}/steps") == outsider.lines(run_id)


async def test_reading_slots(outsider: Outsider) -> None:
    """Appendix D, GET /api/runs/{id}/cache/{slot}: a pointer's facts, an artifact's full text, each under its name."""
    run_id = await ended(outsider, TASK)
    cache = outsider.document(run_id, "cache.json")

    for name, slot in cache.items():
        assert await outsider.get(f"/api/runs/{run_id}/cache/{name}") == {"slot": name} | slot


async def test_cancelling_a_run(outsider: Outsider, project: projects.Project) -> None:
    """Appendix D, POST /api/runs/{id}/cancel: 200 with id and status; 404 for an unknown run, 409 for an ended one."""
    project.say("draft", hang=True)
    run_id = (await outsider.http.post("/api/runs", json=TASK)).json()["run_id"]
    service = served.Served(project, outsider.http)
    await service.until(run_id, step="draft")
    answer = await outsider.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")
    again = await outsider.http.post(f"/api/runs/{run_id}/cancel")
    unknown = await outsider.http.post("/api/runs/none/cancel")

    assert (answer.status_code, answer.json()) == (200, {"run_id": run_id, "status": "cancelled"})
    assert (again.status_code, unknown.status_code) == (409, 404)
    assert outsider.document(run_id, "run.json")["status"] == "cancelled"


@pytest.mark.parametrize(
    ("reference", "broken"),
    [
        ("discovery.matches[99].path", "matches[99]"),
        ("discovery.nothing.path", "nothing"),
        ("discovery.matches[0].title.text", "text"),
    ],
)
async def test_a_broken_reference_fails_its_step(
    outsider: Outsider, project: projects.Project, reference: str, broken: str
) -> None:
    """Appendix C: a reference without a target fails the step, and the error names the path and the segment."""
    step = projects.tool_step("analyze", "prose_analyzer", "prose", scene_path={"$ref": reference})
    project.add_recipe({"recipe_id": "refers", "label": "Refers", "phase_a": [projects.DISCOVER, step], "dod": []})
    run_id = await ended(outsider, {"recipe_id": "refers", "description": "arrival"})
    shown = await outsider.get(f"/api/runs/{run_id}")

    assert (shown["status"], shown["error"]["key"]) == ("failed", "analyze")
    assert reference in shown["error"]["message"]
    assert broken in shown["error"]["message"]


async def test_references_reach_tasks_and_payloads(outsider: Outsider, project: projects.Project) -> None:
    """Appendix C: `task.description`, `task.args.X` and a path into a tool's payload resolve to their values."""
    reads = projects.tool_step("analyze", "prose_analyzer", "prose", scene_path={"$ref": "discovery.matches[0].path"})
    project.add_recipe({"recipe_id": "refers", "label": "Refers", "phase_a": [projects.DISCOVER, reads], "dod": []})
    run_id = await ended(outsider, {"recipe_id": "refers", "description": "arrival"})
    cache = outsider.document(run_id, "cache.json")
    receipts = [await outsider.get(f"/api/audit/receipts/{slot['receipt_id']}") for slot in cache.values()]

    assert receipts[0]["args"]["search_criteria"] == "arrival"
    assert receipts[1]["args"]["scene_path"] == receipts[0]["payload"]["matches"][0]["path"]
