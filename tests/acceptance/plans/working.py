"""A project whose recipes have two agent steps each, a plan of four such tasks, and its results on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance import drafting, programs
from tests.acceptance.forked_service import Service

Plan = dict[str, Any]
Left = dict[str, Any]

LETTERS = "abcd"
DEPS: dict[str, list[int]] = {"a": [], "b": [1], "c": [1], "d": [2, 3]}
TASKS: list[dict[str, Any]] = [
    {"description": f"chore {letter}", "deps": DEPS[letter], "dod": f"{letter} is done"} for letter in LETTERS
]
"""One task, two that depend on it, and one that depends on both."""

INTENT = "Do all the chores"
CHIEF_SAYS = json.dumps({"tasks": [{"id": number, **task} for number, task in enumerate(TASKS, 1)]})
REPLIES: dict[str, Any] = {
    f"{step}_{letter}": f"What {step} says of {letter}." for step in ("brief", "draft") for letter in LETTERS
} | {"chief*": CHIEF_SAYS}
"""The agents' replies by step, with those of the chief."""


def make_project(folder: Path, **replies: Any) -> Path:
    """Create the project; `replies` by step replace the usual ones."""
    project = programs.make_project(folder)
    for letter in LETTERS:
        project.write(f"recipes/chore_{letter}.json", _recipe(letter))
    templates = {"label": "Chore", "variants": {"t3": "templates/chore.md"}}
    project.write("prompts/prompts.json", {"pipeline_templates": {**_templates(), "chore": templates}})
    project.write("prompts/templates/chore.md", "Do it: {{task.description}}\n")
    chief = {"id": "chief-test", "archetype": "chief", "tier": "t3", "backend": "script", "role": "You are the chief."}
    project.write("agents.json", {**programs.AGENTS, "agents": [*programs.AGENTS["agents"], chief]})
    say(folder, **replies)
    return folder


def say(folder: Path, **replies: Any) -> None:
    """Let the agents give the usual answers, except for the given replies."""
    (folder / ".control-room" / "replies.json").write_text(json.dumps(REPLIES | replies))


def post(http: httpx.Client, key: str = "one", **body: Any) -> str | None:
    """Request the plan, or find the one requested with the same key; return None if the service dies meanwhile."""
    answer = _sent(http, "POST", "/api/sessions", body or {"tasks": TASKS, "review": "off"}, {"Idempotency-Key": key})
    if answer is None:
        return None
    assert answer.status_code in (200, 201), answer.text
    session_id: str = answer.json()["session_id"]
    return session_id


def order(http: httpx.Client, session_id: str, verb: str, **body: Any) -> httpx.Response | None:
    """Post an order to a plan; return None if the service dies meanwhile."""
    return _sent(http, "POST", f"/api/sessions/{session_id}/{verb}", body)


def add(http: httpx.Client, session_id: str, description: str, key: str) -> httpx.Response | None:
    """Add a task, or find the one added with the same key; return None if the service dies meanwhile."""
    body = {"description": description}
    return _sent(http, "POST", f"/api/sessions/{session_id}/tasks", body, {"Idempotency-Key": key})


def begin(http: httpx.Client, session_id: str) -> bool:
    """Approve and start a plan, unless that was done already; return False if the service dies meanwhile."""
    for verb in ("approve", "start"):
        answer = order(http, session_id, verb)
        if answer is None:
            return False
        assert answer.status_code in (200, 409), answer.text
    return True


def wait(http: httpx.Client, session_id: str, holds: Callable[[Plan], bool] | None = None) -> Plan | None:
    """Wait until a condition on a plan is true, by default its end; return None if the service dies before."""
    etag = ""
    try:
        while True:
            # The first request does not wait: if the condition is already true, no further change may come.
            wait = {"wait": 20 if etag else 0}
            answer = http.get(f"/api/sessions/{session_id}", params=wait, headers={"If-None-Match": etag})
            if answer.status_code == 304:
                continue
            assert answer.status_code == 200, answer.text
            etag, plan = answer.headers["ETag"], answer.json()
            if (holds or has_ended)(plan):
                return dict(plan)
    except httpx.TransportError:
        return None


def has_ended(plan: Plan) -> bool:
    """Return whether a plan is done or failed."""
    return plan["status"] in ("done", "failed")


def states(plan: Plan) -> list[str]:
    """Return the states of a plan's tasks, in their order."""
    return [task["status"] for task in plan["tasks"]]


def are(*expected: str) -> Callable[[Plan], bool]:
    """Return the condition that the tasks are in these states."""
    return lambda plan: states(plan) == list(expected)


def opened(project: Path, crash_at: str | None = None) -> tuple[Service, httpx.Client]:
    """Start a service that must reach its listening state."""
    service = Service(project, crash_at)
    http = service.http()
    assert http is not None
    return service, http


def through(project: Path, **body: Any) -> Left:
    """Request the plan, or find it, and execute it to its end in a service that is stopped afterwards."""
    service, http = opened(project)
    try:
        session_id = post(http, **body)
        assert session_id is not None
        assert wait(http, session_id, lambda plan: bool(plan["tasks"])) is not None
        assert begin(http, session_id)
        assert wait(http, session_id) is not None
    finally:
        code = service.stop()
    assert code == 0
    return left_by(project)


def kept(project: Path) -> Plan:
    """Return the one plan of a project from its file."""
    (file,) = (project / ".control-room" / "sessions").glob("*/plan.json")
    plan: Plan = json.loads(file.read_text(encoding="utf-8"))
    return plan


def runs_of(project: Path) -> dict[tuple[int | None, str], dict[str, Any]]:
    """Return the manifest of every run except the plan's own, by its task and its id."""
    folders = (project / ".control-room" / "runs").glob("[0-9]*")
    found = {folder.name: json.loads((folder / "run.json").read_text()) for folder in folders}
    return {(run["task"]["session_plan_task_id"], run_id): run for run_id, run in found.items()}


def left_by(project: Path) -> Left:
    """Return the results of a plan, without the parts that differ between any two plans."""
    plan, runs = kept(project), runs_of(project)
    return {
        "status": plan["status"],
        "tasks": [{name: task[name] for name in _LASTING} for task in plan["tasks"]],
        "named": {task["run_id"] for task in plan["tasks"]} == {run_id for task, run_id in runs if task is not None},
        "runs": sorted((task or 0, run["recipe_id"], run["status"]) for (task, _), run in runs.items()),
        "records": sorted(
            (task or 0, line["key"], line["status"], line["output_hash"])
            for task, run_id in runs
            for line in drafting.lines(drafting.folder_of(project, run_id) / "steps.jsonl")
        ),
    }


def repeated(project: Path, before: set[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    """Return the attempts that were started of steps recorded before."""
    done = {(run_id, key): attempt for run_id, key, attempt in before}
    tries = {each for _, run_id in runs_of(project) for each in drafting.begun(project, run_id)}
    return {(run_id, key, attempt) for run_id, key, attempt in tries if attempt > done.get((run_id, key), attempt)}


_LASTING = ("id", "description", "recipe_id", "deps", "dod", "status", "attempt", "earlier_runs", "forced", "error")


def _recipe(letter: str) -> dict[str, Any]:
    steps = [
        {
            "step_id": f"{step}_{letter}",
            "agent_archetype": role,
            "input_slots": [],
            "output_slot": step,
            "prompt_type": "chore",
        }
        for step, role in (("brief", "planner"), ("draft", "writer"))
    ]
    return {
        "recipe_id": f"chore_{letter}",
        "label": f"Chore {letter}",
        "task_patterns": [f"chore {letter}"],
        "phase_a": [],
        "phase_b": steps,
        "dod": [{"check": "slot_not_null", "slot": "draft"}],
    }


def _templates() -> dict[str, Any]:
    found: dict[str, Any] = programs.PROMPTS["pipeline_templates"]
    return found


def _sent(
    http: httpx.Client, method: str, address: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> httpx.Response | None:
    try:
        return http.request(method, address, json=body, headers=headers)
    except httpx.TransportError:
        return None
