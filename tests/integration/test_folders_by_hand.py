"""Run folders written by hand, to the letter of execution-modes, appendix A, as the service finds them at its start."""

from __future__ import annotations

import json
from typing import Any

from app.domain import plain
from tests.integration import project as projects
from tests.integration import served
from tests.integration.project import Project

PAYLOAD = {"matches": [{"path": "Story/Scenes/SCN-the-arrival.md"}]}
"""Payload of the first tool."""


def recipe() -> dict[str, Any]:
    """Return a recipe whose second step reads an argument that has a default."""
    reads = projects.tool_step("analyze", "prose_analyzer", "prose", scene_path={"$ref": "task.args.scene_path"})
    scene = {"type": "string", "default": "Story/Scenes/SCN-the-arrival.md"}
    return projects.quick("by_hand") | {
        "phase_a": [projects.DISCOVER, reads],
        "args_schema": {"type": "object", "properties": {"scene_path": scene}},
    }


def write(project: Project, run_id: str, **facts: Any) -> None:
    """Write a folder with one step done."""
    digest = plain.sha256(plain.canonical(PAYLOAD))
    manifest = {
        "run_id": run_id,
        "recipe_id": "by_hand",
        "session_id": "sess_xyz",
        "status": "running",
        "created_at": "2026-02-10T14:30:00Z",
        "updated_at": "2026-02-10T14:31:22Z",
        "completed_at": None,
        "task": {"description": "Draft scene 21", "session_plan_task_id": 1, "initial_args": {}},
        "current_step_index": 1,
        "total_steps": 2,
        "phase": "a",
        "error": None,
    }
    line = {
        "step_index": 0,
        "step_id": "discover",
        "phase": "a",
        "tool": "file_locator",
        "agent_archetype": None,
        "agent_id": None,
        "status": "done",
        "output_slot": "discovery",
        "receipt_id": "rcpt_a1b2c3",
        "input_slot_refs": ["task.description"],
        "output_hash": f"sha256:{digest}",
        "output_preview": "1 file found",
        "started_at": "2026-02-10T14:30:01Z",
        "completed_at": "2026-02-10T14:30:02Z",
        "error": None,
    }
    slot = {"type": "pointer", "receipt_id": "rcpt_a1b2c3", "sha256": digest, "summary": "1 file found"}
    receipt = {"receipt_id": "rcpt_a1b2c3", "tool": "file_locator", "payload": PAYLOAD}
    folder = f".control-room/runs/{run_id}"
    project.write(f"{folder}/run.json", json.dumps(manifest | facts, indent=2))
    project.write(f"{folder}/steps.jsonl", json.dumps(line) + "\n")
    project.write(f"{folder}/cache.json", json.dumps({"discovery": slot}))
    project.write(".control-room/audit/sessions/sess_xyz/tool_receipts.jsonl", json.dumps(receipt) + "\n")


async def test_defaults_of_the_recipe_are_arguments(project: Project) -> None:
    """A manifest contains the given arguments; the recipe's defaults apply as in every run."""
    project.add_recipe(recipe())
    write(project, "run_abc123")
    async with served.in_process(project) as service:
        shown = await service.until("run_abc123", "done", "failed")

        assert (shown["status"], shown["error"]) == ("done", None)
        assert [step["key"] for step in shown["steps"]] == ["discover", "analyze"]


async def test_a_paused_folder_stays_paused(project: Project) -> None:
    """A run whose manifest contains `paused` does not start by itself; after an unpause it continues from its steps."""
    project.add_recipe(recipe())
    write(project, "run_paused", status="paused")
    async with served.in_process(project) as service:
        shown = await service.until("run_paused", "paused", "done", "failed")
        answer = await service.http.post("/api/runs/run_paused/unpause")
        ended = await service.until("run_paused", "done", "failed")

        assert (shown["status"], shown["current_step_index"]) == ("paused", 1)
        assert answer.status_code == 200
        assert ended["status"] == "done"


async def test_a_folder_whose_recipe_is_gone_can_be_looked_at(project: Project) -> None:
    """A run without its recipe is parked with the reason while others run; with the recipe back, it continues."""
    write(project, "run_orphan")
    async with served.in_process(project) as service:
        other = await service.run("quick")
        shown = await service.until("run_orphan", "paused")
        listed = (await service.http.get("/api/runs?status=paused")).json()

        assert other["status"] == "done"
        assert shown["error"]["code"] == "unknown_recipe"
        assert [(run["run_id"], run["error_code"]) for run in listed] == [("run_orphan", "unknown_recipe")]
    project.add_recipe(recipe())
    async with served.in_process(project) as service:
        assert (await service.until("run_orphan", "done", "failed"))["status"] == "done"


async def test_an_unknown_run_has_one_code(service: served.Served) -> None:
    """Every request for an unknown run returns `run_not_found`, whatever the form of the id."""
    asked = [("GET", ""), ("GET", "/steps"), ("GET", "/cache/x"), ("GET", "/logs"), ("POST", "/cancel"), ("DELETE", "")]
    answers = [
        await service.http.request(method, f"/api/runs/{run_id}{part}")
        for method, part in asked
        for run_id in ("nope", "%2e%2e")
    ]

    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(404, "run_not_found")}


async def test_list_detail_and_manifest_show_the_same_end(service: served.Served) -> None:
    """The list, the detail and the manifest agree on the time when a run ended."""
    shown = await service.run("quick")
    listed = (await service.http.get("/api/runs")).json()[0]

    assert listed["completed_at"] == shown["completed_at"]
