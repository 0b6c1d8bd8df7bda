"""A service that is killed during an amplifier recipe: in an iteration, in a delay, or while a gate is open."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app import clock
from tests.acceptance import programs
from tests.unit.dialects.amplifier.recipe_harness import later, staged, step

ITEMS = [f"item {number}" for number in range(10)]


def _asks(id: str, **more: Any) -> dict[str, Any]:
    return step(id, **{"agent": "writer", **more})


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose agents answer from a script."""
    return programs.make_project(tmp_path / "project")


def _write(project: programs.Project, document: dict[str, Any], *entries: dict[str, Any]) -> None:
    project.write("recipes/amplifier/own.yaml", json.dumps({**document, "name": "own"}))
    project.write("replies.json", [*entries, {"key": "*", "text": "said"}])


def _killed(service: programs.Service) -> None:
    service.signal(signal.SIGKILL)
    assert service.ended() == -signal.SIGKILL


def _keys(run: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(line["key"], line["attempt"], line["status"]) for line in run["steps"]]


def _slot(project: programs.Project, run_id: str, name: str) -> Any:
    return json.loads((project.data / "runs" / run_id / "cache.json").read_text())[name]["text"]


def test_in_the_seventh_iteration_of_ten(project: programs.Project) -> None:
    """The run continues with exactly that iteration: the first six are not repeated, and all ten are in order."""
    document = later(
        _asks("each", foreach="{{items}}", prompt="Take {{item}}.", collect="all"),
        _asks("after", prompt="{{all}}"),
        context={"items": ITEMS},
    )
    said = [{"key": f"each[{number}]", "text": f"reply {number}"} for number in range(10)]
    _write(project, document, {"key": "each[6]", "hang": True}, *said)
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="own", args={})
        service.wait_until(run_id, lambda run: any(line["key"] == "each[6]" for line in run["steps"]))
        _killed(service)
    _write(project, document, *said)
    with programs.service(project) as service:
        run = service.wait(run_id)
        service.stop()

    assert run["status"] == "done", run["error"]
    assert _keys(run) == [
        *((f"each[{number}]", 2 if number == 6 else 1, "done") for number in range(10)),
        ("after", 1, "done"),
    ]
    assert json.loads(_slot(project, run_id, "all")) == [f"reply {number}" for number in range(10)]


def test_in_the_delay_before_a_retry(project: programs.Project) -> None:
    """The delay continues: the failed attempt is not repeated, and the next one starts when it was due."""
    retry = {"max_attempts": 2, "backoff": "linear", "initial_delay": 6}
    refused = {"key": "ask", "attempt": 1, "error": {"code": "rate_limited", "message": "too many"}}
    _write(project, later(_asks("ask", retry=retry, output="x")), refused)
    steps = project.data / "runs"
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="own", args={})
        service.wait_until(run_id, lambda run: (steps / run_id / "steps.jsonl").read_bytes().count(b"\n") == 1)
        _killed(service)
    with programs.service(project) as service:
        run = service.wait(run_id)
        service.stop()
    lines = [json.loads(line) for line in (steps / run_id / "steps.jsonl").read_text().splitlines()]
    control = [json.loads(line) for line in (steps / run_id / "control.jsonl").read_text().splitlines()]
    taken = [clock.instant(line["at"]) for line in control if line["kind"] == "taken"]
    due, begun = clock.instant(lines[0]["retry_at"]), clock.instant(lines[1]["started_at"])

    assert run["status"] == "done", run["error"]
    assert [(line["attempt"], line["status"], line["final"]) for line in lines] == [
        (1, "failed", False),
        (2, "done", True),
    ]
    assert due - clock.instant(lines[0]["completed_at"]) == timedelta(seconds=6)
    # Timers of the event loop have a resolution of milliseconds.
    assert begun >= due - timedelta(milliseconds=1)
    # A delay restarted by the second process would end later than this.
    assert len(taken) == 2
    assert begun - taken[1] < timedelta(seconds=6)


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_while_a_person_is_asked(project: programs.Project, decision: str) -> None:
    """After a restart the same gate is open, and its answer is available to later steps, or ends the run for good."""
    approval = {"required": True, "prompt": "Shall {{plan}} be done?", "timeout": 600}
    document = staged(
        {"name": "look", "steps": [_asks("plan", output="plan")], "approval": approval},
        {"name": "act", "steps": [_asks("act", prompt="Do it: {{approval.message}}")]},
    )
    _write(project, document, {"key": "plan", "text": "the bridge"})
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="own", args={})
        service.wait(run_id, "waiting")
        with service.http() as http:
            (before,) = http.get("/api/gates").json()
        _killed(service)
    with programs.service(project) as service:
        service.wait(run_id, "waiting")
        with service.http() as http:
            (after,) = http.get("/api/gates").json()
            answer = {"decision": decision, "message": "quickly", "shown_sha256": before["shown_sha256"]}
            answered = http.post(f"/api/gates/{after['gate_id']}", json=answer)
            run = service.wait(run_id)
            if decision == "deny":
                refused = http.post(f"/api/runs/{run_id}/resume")
                assert (refused.status_code, refused.json()["code"]) == (409, "gate_denied")
        service.stop()
    answered_gate = ("approval:look", 1, "done" if decision == "approve" else "failed")
    behind = [("act", 1, "done")] if decision == "approve" else []

    assert answered.status_code == 200, answered.text
    assert (after["gate_id"], after["asked_at"], after["expires_at"], after["prompt"]) == (
        before["gate_id"],
        before["asked_at"],
        before["expires_at"],
        "Shall the bridge be done?",
    )
    assert run["status"] == ("done" if decision == "approve" else "failed")
    assert _keys(run) == [("plan", 1, "done"), answered_gate, *behind]
