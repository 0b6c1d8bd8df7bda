"""The service, killed by SIGKILL in the middle of `creative_draft_scene` and started again."""

from __future__ import annotations

import json
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.storage import crash_points
from tests.acceptance import drafting, kills
from tests.acceptance.forked_service import Service

ENGINE_POINTS = (
    "pool.queued",
    "pool.granted",
    "run.before_taken",
    "run.after_taken",
    "step.before_started",
    "step.after_started",
    "step.performing",
    "step.performed",
    "step.before_append",
    "step.after_append",
    "step.before_receipt",
    "step.after_receipt",
    "step.delivered",
    "run.before_ended",
    "run.after_ended",
)
SAMPLE = (
    ("storage.create.before_rename", 1),
    ("pool.granted", 1),
    ("step.performing", 4),
    ("storage.commit.before_sync", 5),
    ("step.performed", 9),
    ("step.after_append", 9),
    ("run.after_ended", 1),
    ("storage.move.before_row", 2),
)

SPECIFIED = (
    "step_index",
    "step_id",
    "phase",
    "tool",
    "agent_archetype",
    "agent_id",
    "status",
    "output_slot",
    "receipt_id",
    "input_slot_refs",
    "output_hash",
    "output_preview",
    "started_at",
    "completed_at",
    "error",
)
"""Fields of a journal line in execution-modes, appendix A."""

MANIFEST = (
    "run_id",
    "recipe_id",
    "session_id",
    "status",
    "created_at",
    "updated_at",
    "completed_at",
    "task",
    "current_step_index",
    "total_steps",
    "phase",
    "error",
)
"""Fields of run.json in the same appendix."""


Left = dict[str, Any]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Return the results of an undisturbed run."""
    return through(drafting.make_project(tmp_path_factory.mktemp("undisturbed") / "project"))


def through(project: Path) -> Left:
    """Request the run, or find it, and execute it to its end in a service that is stopped afterwards."""
    service = Service(project)
    http = service.http()
    assert http is not None
    run_id = drafting.post(http)
    assert run_id is not None
    assert drafting.wait(http, run_id) is not None
    assert service.stop() == 0
    return drafting.left_by(project, run_id)


def dies(project: Path, crash_at: str) -> bool:
    """Request the run in a service that kills itself at a point, and return whether the kill happened."""
    service = Service(project, crash_at)
    http = service.http()
    run_id = drafting.post(http) if http else None
    if http and run_id and drafting.wait(http, run_id):
        service.stop()
    return service.ended() == -signal.SIGKILL


def judge(project: Path, point: str, nth: int, undisturbed: Left) -> str | None:
    """Kill a service, start it again, and return the fault found afterwards, or that it did not die."""
    drafting.make_project(project)
    if not dies(project, f"{point}:{nth}"):
        return kills.NOT_REACHED
    recorded = drafting.recorded(project)
    before = {run_id: drafting.begun(project, run_id) for run_id, _, _ in recorded}
    left = through(project)
    if left != undisturbed:
        return f"{point}:{nth} left {left}, not {undisturbed}"
    repeated = {
        (run_id, key)
        for run_id, tries in before.items()
        for _, key, _ in drafting.begun(project, run_id)[len(tries) :]
        if key in {line[1] for line in recorded}
    }
    return f"{point}:{nth} repeated {repeated}" if repeated else None


def test_a_sample_of_kills(tmp_path: Path, undisturbed: Left) -> None:
    """Killed between two writes, the service brings the run to the same slots and records, and repeats no step."""
    assert kills.sampled(tmp_path, SAMPLE, partial(judge, undisturbed=undisturbed)) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_kill(tmp_path: Path, undisturbed: Left) -> None:
    """A kill at every passing of every point of engine, pool and storage leads to the same end."""
    judged = kills.every(tmp_path, ENGINE_POINTS + crash_points.POINTS, partial(judge, undisturbed=undisturbed))

    assert [wrong for wrong in judged if wrong is not None] == []
    assert len(judged) > 150


def test_killed_while_an_agent_is_speaking(tmp_path: Path, undisturbed: Left) -> None:
    """The interrupted agent step runs again as its next attempt, and all earlier steps are kept."""
    project = drafting.make_project(tmp_path / "project", polish={"hang": True})
    service = Service(project)
    http = service.http()
    assert http is not None
    run_id = drafting.post(http)
    assert run_id is not None
    while ("polish", "running") not in _steps(http.get(f"/api/runs/{run_id}", params={"wait": 5}).json()):
        pass
    service.kill()
    drafting.say(project)

    assert through(project) == undisturbed
    assert [key for _, key, _ in drafting.begun(project, run_id)].count("polish") == 2
    assert (run_id, "polish", 2) in drafting.recorded(project)


@pytest.mark.slow
def test_two_hundred_unfinished_runs_continue_after_a_restart(tmp_path: Path) -> None:
    """After a restart the service is ready at once, and finishes every unfinished run."""
    project = drafting.make_project(tmp_path / "project", brief={"hang": True})
    service = Service(project)
    http = service.http()
    assert http is not None
    run_ids = [drafting.post(http, str(number), recipe_id="short", args={}) for number in range(200)]
    service.kill()
    drafting.say(project)
    service = Service(project)
    http = service.http()
    assert http is not None
    assert http.get("/healthz").status_code == 200

    ended = [drafting.wait(http, run_id) for run_id in run_ids if run_id]

    assert [run["status"] for run in ended if run] == ["done"] * 200
    assert {run_id for run_id, _, _ in drafting.recorded(project)} == set(run_ids)
    assert service.stop() == 0


def test_a_copied_folder_is_listed_and_left_alone(tmp_path: Path) -> None:
    """A folder copied from another project under another name is not started automatically, but can be resumed."""
    project = drafting.make_project(tmp_path / "project", draft={"hang": True})
    other = drafting.make_project(tmp_path / "other")
    service = Service(project)
    http = service.http()
    assert http is not None
    run_id = drafting.post(http)
    assert run_id is not None
    while ("draft", "running") not in _steps(http.get(f"/api/runs/{run_id}", params={"wait": 5}).json()):
        pass
    service.kill()
    (other / ".control-room" / "runs").mkdir(parents=True)
    shutil.copytree(drafting.folder_of(project, run_id), drafting.folder_of(other, "copied"))
    lines = (drafting.folder_of(other, "copied") / "control.jsonl").read_bytes()
    service = Service(other)
    http = service.http()
    assert http is not None
    (listed,) = http.get("/api/runs").json()

    assert (listed["run_id"], listed["owner"], listed["status"]) == ("copied", "foreign", "running")
    assert (drafting.folder_of(other, "copied") / "control.jsonl").read_bytes() == lines
    answer = http.post("/api/runs/copied/resume", json={})
    assert answer.status_code == 200, answer.text

    run = drafting.wait(http, "copied", "paused", "failed")

    assert run is not None
    assert run["error"]["code"] == "workspace_not_allowed"
    assert run["status"] == "paused"
    assert service.stop() == 0


def test_a_handwritten_run_folder_is_adopted_and_finished(tmp_path: Path, undisturbed: Left) -> None:
    """A run folder with only the specified files, and two steps done, is adopted and finished."""
    project = drafting.make_project(tmp_path / "project")
    through(project)
    (made,) = (project / ".control-room" / "runs").glob("[!.]*")
    hand = project / ".control-room" / "runs" / "run_abc123"
    hand.mkdir()
    lines = [{name: line[name] for name in SPECIFIED} for line in drafting.lines(made / "steps.jsonl")[:2]]
    (hand / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    slots = json.loads((made / "cache.json").read_text())
    (hand / "cache.json").write_text(json.dumps({name: slots[name] for name in ("discovery", "outline_beat")}))
    written = json.loads((made / "run.json").read_text())
    manifest = {name: written[name] for name in MANIFEST} | {
        "run_id": "run_abc123",
        "status": "running",
        "completed_at": None,
        "current_step_index": 2,
        "phase": "a",
    }
    (hand / "run.json").write_text(json.dumps(manifest))
    service = Service(project)
    http = service.http()
    assert http is not None
    run = drafting.wait(http, "run_abc123")
    assert run is not None
    assert service.stop() == 0

    left = drafting.left_by(project, "run_abc123")

    assert run["status"] == "done"
    assert {name: slot for name, slot in left["slots"].items() if slot["type"] == "artifact"} == {
        name: slot for name, slot in undisturbed["slots"].items() if slot["type"] == "artifact"
    }
    assert next(key for _, key, _ in drafting.begun(project, "run_abc123")) == "check_canon"


def _steps(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["step_id"], step["status"]) for step in run["steps"]]
