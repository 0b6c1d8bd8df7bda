"""The service, killed by SIGKILL in the middle of a conference and started again."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.storage import crash_points
from tests.acceptance import drafting, kills
from tests.acceptance.forked_service import Service
from tests.integration import conferring

SAMPLE = (
    ("storage.create.before_rename", 1),
    ("step.performed", 2),
    ("step.after_append", 3),
    ("step.before_append", 6),
    ("storage.issue.after_rename", 1),
    ("run.before_ended", 1),
    ("run.after_ended", 1),
)
POINTS = (
    "step.before_started", "step.after_started", "step.performing", "step.performed", "step.before_append",
    "step.after_append", "step.before_receipt", "step.after_receipt", "step.delivered", "run.before_ended",
    "run.after_ended",
)  # fmt: skip

Left = dict[str, Any]


def post(http: httpx.Client) -> str | None:
    """Request the conference, or find it; return None if the service dies meanwhile."""
    try:
        answer = http.post("/api/conferences", json={"message": "Does it hold up?"}, headers={"Idempotency-Key": "one"})
    except httpx.TransportError:
        return None
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["run_id"])


def through(project: Path) -> Left:
    """Request the conference, or find it, and execute it to its end in a service that is stopped afterwards."""
    service = Service(project)
    http = service.http()
    assert http is not None
    run_id = post(http)
    assert run_id is not None
    run = drafting.wait(http, run_id)
    assert run is not None
    text = http.get(f"/api/runs/{run_id}/cache/transcript").json().get("text")
    issues = http.get("/api/issues").json()
    shown = [http.get(f"/api/issues/{issue['issue_id']}").json() for issue in issues]
    assert service.stop() == 0
    lines = drafting.lines(drafting.folder_of(project, run_id) / "steps.jsonl")
    found = {
        "manifest": [run["status"], run["current_step_index"], run["error"], run["ending"]],
        "slots": run["cache_summary"],
        "transcript": text,
        "issues": [[issue["kind"], issue["key"], issue["body"], issue["receipts"]] for issue in shown],
        "records": sorted([line["key"], line["status"], json.dumps(line["output"])] for line in lines),
    }
    lasting = re.sub(r"(rcpt|iss)_[0-9a-f]{20}", r"\1", json.dumps(found, sort_keys=True)).replace(run_id, "RUN")
    normal: Left = json.loads(lasting)
    return normal


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Return the results of an undisturbed conference."""
    left = through(conferring.made(tmp_path_factory.mktemp("undisturbed") / "project").root)
    assert left["manifest"][0] == "done"
    assert len(left["issues"]) == 1
    return left


def judge(project: Path, point: str, nth: int, undisturbed: Left) -> str | None:
    """Kill a service, start it again, and return the fault found afterwards, or that it did not die."""
    conferring.made(project)
    service = Service(project, f"{point}:{nth}")
    http = service.http()
    run_id = post(http) if http else None
    if http and run_id and drafting.wait(http, run_id):
        service.stop()
    if service.ended() != -signal.SIGKILL:
        return kills.NOT_REACHED
    recorded = drafting.recorded(project)
    before = {run_id: len(drafting.begun(project, run_id)) for run_id, _, _ in recorded}
    left = through(project)
    if left != undisturbed:
        return f"{point}:{nth} left {left}, not {undisturbed}"
    keys = {key for _, key, _ in recorded}
    again = [drafting.begun(project, run_id)[count:] for run_id, count in before.items()]
    repeated = {key for tries in again for _, key, _ in tries if key in keys}
    return f"{point}:{nth} repeated {repeated}" if repeated else None


@pytest.mark.slow
def test_a_sample_of_kills(tmp_path: Path, undisturbed: Left) -> None:
    """Killed between two writes, the service ends the conference the same way, with one issue and no repeated step."""
    assert kills.sampled(tmp_path, SAMPLE, partial(judge, undisturbed=undisturbed)) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_kill(tmp_path: Path, undisturbed: Left) -> None:
    """A kill at every passing of every point of engine and storage leads to the same end."""
    judged = kills.every(tmp_path, POINTS + crash_points.POINTS, partial(judge, undisturbed=undisturbed))

    assert [wrong for wrong in judged if wrong is not None] == []
    assert len(judged) > 100


@pytest.mark.parametrize("key", ["chief#2", "opinion.editor-1"])
def test_killed_while_an_agent_is_speaking(tmp_path: Path, undisturbed: Left, key: str) -> None:
    """In either phase only the interrupted agent is asked again, as the next attempt, and given answers are kept."""
    project = conferring.made(tmp_path / "project")
    project.say(key, hang=True)
    service = Service(project.root)
    http = service.http()
    assert http is not None
    run_id = post(http)
    assert run_id is not None
    others = {"opinion.critic-1.evidence", "opinion.writer-1.evidence"} if key.startswith("opinion") else {"tool"}
    while not others <= {recorded for _, recorded, _ in drafting.recorded(project.root)}:
        http.get(f"/api/runs/{run_id}", params={"wait": 1})
    assert drafting.wait_until(http, run_id, lambda run: (key, "running") in _steps(run))
    service.kill()
    project.say(key, text=conferring.DONE if key == "chief#2" else conferring.QUOTED)

    assert through(project.root) == undisturbed
    begun = [begun for _, begun, _ in drafting.begun(project.root, run_id)]
    assert {name: begun.count(name) for name in begun if begun.count(name) > 1} == {key: 2}


def _steps(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["key"], step["status"]) for step in run["steps"]]
