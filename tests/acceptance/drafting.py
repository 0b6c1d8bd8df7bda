"""The example project with agents from a script, and the files that a run of `creative_draft_scene` leaves there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests import example_project

ROOT = Path(__file__).resolve().parents[2]

REQUEST: dict[str, Any] = {
    "recipe_id": "creative_draft_scene",
    "description": "Draft scene 21",
    "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md", "canon_paths": ["Compendium/Characters"]},
}
STEPS = ("brief", "draft", "polish", "continuity", "critique")
AGENTS = ("planner-001", "writer-001", "editor-001", "continuity-001", "critic-001")
REPLIES: dict[str, Any] = {step: f"What {step} says about Kael's arrival at the tower." for step in STEPS}


SHORT_RECIPE = {
    "recipe_id": "short",
    "label": "Brief a scene",
    "phase_a": [
        {
            "step_id": "outline",
            "tool": "outline_analyzer",
            "args": {"outline_path": "Story/SCN-outline.md"},
            "output_slot": "outline_beat",
        },
        {
            "step_id": "canon",
            "tool": "canon_checker",
            "args": {"canon_paths": ["Compendium/Characters"]},
            "output_slot": "canon_context",
        },
    ],
    "phase_b": [
        {
            "step_id": "brief",
            "agent_archetype": "planner",
            "input_slots": ["outline_beat", "canon_context"],
            "output_slot": "scene_brief",
            "prompt_type": "refine_brief",
        }
    ],
    "dod": [{"check": "slot_not_null", "slot": "scene_brief"}],
}


def make_project(folder: Path, **replies: Any) -> Path:
    """Create a project whose agents answer from a script; `replies` by step replace the usual ones."""
    example_project.copy(folder)
    script = {"backends": {"script": {"type": "scripted", "file": "replies.json"}}}
    agents = [{"id": agent, "backend": "script", "tier": "t3", "evidence": "none"} for agent in AGENTS]
    recipes = folder / ".control-room" / "recipes"
    recipes.mkdir(parents=True, exist_ok=True)
    (recipes / "short.json").write_text(json.dumps(SHORT_RECIPE))
    (folder / ".control-room" / "agents.json").write_text(json.dumps({"agents": agents, **script}))
    say(folder, **replies)
    return folder


def say(folder: Path, **replies: Any) -> None:
    """Let the agents give the usual answers, except for the given replies."""
    (folder / ".control-room" / "replies.json").write_text(json.dumps(REPLIES | replies))


def post(http: httpx.Client, key: str = "one", **body: Any) -> str | None:
    """Request a run, or find the one requested with the same key; return None if the service dies meanwhile."""
    try:
        answer = http.post("/api/runs", json=REQUEST | body, headers={"Idempotency-Key": key})
    except httpx.TransportError:
        return None
    assert answer.status_code in (200, 201), answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def wait(http: httpx.Client, run_id: str, *statuses: str) -> dict[str, Any] | None:
    """Wait until a run has one of the states, by default an end; return None if the service dies before."""
    return wait_until(http, run_id, lambda run: run["status"] in (statuses or ("done", "failed", "cancelled")))


def wait_until(http: httpx.Client, run_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """Wait until a condition on a run is true; return None if the service dies before."""
    etag = ""
    try:
        while True:
            # The first request does not wait: if the condition is already true, no further change may come.
            wait = {"wait": 20 if etag else 0}
            answer = http.get(f"/api/runs/{run_id}", params=wait, headers={"If-None-Match": etag})
            etag = answer.headers.get("ETag", "")
            if answer.status_code == 304:
                continue
            assert answer.status_code == 200, answer.text
            detail: dict[str, Any] = answer.json()
            if holds(detail):
                return detail
    except httpx.TransportError:
        return None


def folder_of(project: Path, run_id: str) -> Path:
    """Return a run's folder."""
    return project / ".control-room" / "runs" / run_id


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]


def recorded(project: Path) -> set[tuple[str, str, int]]:
    """Return run, key and attempt of every journal line, of all runs that lists show."""
    journals = (project / ".control-room" / "runs").glob("[0-9]*/steps.jsonl")
    return {(file.parent.name, line["key"], line["attempt"]) for file in journals for line in lines(file)}


def begun(project: Path, run_id: str) -> list[tuple[str, str, int]]:
    """Return run, key and attempt of every attempt that was started."""
    control = lines(folder_of(project, run_id) / "control.jsonl")
    return [(run_id, line["key"], line["attempt"]) for line in control if line["kind"] == "started"]


def taken(project: Path, run_id: str) -> bool:
    """Return whether any process has taken up a run."""
    return any(line["kind"] == "taken" for line in lines(folder_of(project, run_id) / "control.jsonl"))


def left_by(project: Path, run_id: str) -> dict[str, Any]:
    """Return a run's results in its folder and in the workspace, without parts that differ between any two runs."""
    folder = folder_of(project, run_id)
    manifest = json.loads((folder / "run.json").read_text())
    found = {
        "manifest": {
            name: manifest[name] for name in ("status", "current_step_index", "total_steps", "error", "ending")
        },
        "slots": {name: _lasting(slot) for name, slot in json.loads((folder / "cache.json").read_text()).items()},
        "records": [
            [line["key"], line["status"], line["output"], line["output_slot"], line["receipt_id"] is not None]
            for line in lines(folder / "steps.jsonl")
        ],
        "draft": (project / "Drafts" / f"{run_id}.md").read_text(),
    }
    normal: dict[str, Any] = json.loads(json.dumps(found).replace(run_id, "RUN"))
    return normal


def _lasting(slot: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in slot.items() if name != "receipt_id"}
