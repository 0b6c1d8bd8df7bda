"""A service that is killed while an agent works continues the same conversation, whichever prompt was interrupted."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import smoke
from tests.acceptance import programs, remembering_agent
from tests.unit.dialects.agent_recipes import recipe_harness

STEPS = {name: recipe_harness.RECIPE["steps"][name] for name in ("review", "fix", "commit")}

CUT_OFF = {
    "first prompt, before the program has the conversation": (
        {"hang": "Review it.", "when": "early"},
        [("--session-id", "Review it."), ("--resume", "Review it."), ("--session-id", "Review it.")],
        [("review", 2), ("commit", 1)],
        [("--resume", "Commit it.")],
    ),
    "first prompt, after it": (
        {"hang": "Review it.", "when": "late"},
        [("--session-id", "Review it."), ("--resume", "Review it.")],
        [("review", 2), ("commit", 1)],
        [("--resume", "Commit it.")],
    ),
    "later prompt": (
        {"hang": "Commit it.", "when": "late"},
        [("--session-id", "Review it."), ("--resume", "Commit it.")],
        [("review", 1), ("commit", 2)],
        [("--resume", "Commit it.")],
    ),
}


class Agent:
    """The agent program, and its recorded calls."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        os.mkfifo(home / "waits")
        self.path = home / "claude"
        script = Path(remembering_agent.__file__)
        self.path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
        self.path.chmod(0o755)

    def plan(self, plan: dict[str, str] | None) -> None:
        """Set the prompt at which the program hangs; None: at none."""
        (self.home / "plan.json").write_text(json.dumps(plan))

    def wait(self) -> None:
        """Wait until the program hangs."""
        assert (self.home / "waits").read_text() == "here\n"

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Return the recorded calls of the program."""
        return [json.loads(line) for line in (self.home / "calls.jsonl").read_text().splitlines()]

    def environment(self) -> dict[str, Any]:
        """Return the environment that directs the service to the program."""
        return {"CLAUDE_CLI_PATH": str(self.path), "REMEMBERING_HOME": str(self.home), "IS_SANDBOX": "1"}


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project with a recipe of two prompts."""
    made = programs.make_project(tmp_path / "project")
    made.write("recipes/agent_recipes/two.json", recipe_harness.recipe(id="two", steps=STEPS))
    return made


@pytest.mark.parametrize("when", smoke.only("first prompt, after it", CUT_OFF))
def test_the_conversation_continues_after_a_kill(project: programs.Project, tmp_path: Path, when: str) -> None:
    """No earlier agent is left, and the run continues in its own conversation, as the record of the session shows."""
    plan, before_and_again, lines, after = CUT_OFF[when]
    agent = Agent(tmp_path / "agent")
    agent.plan(plan)
    with programs.service(project, **agent.environment()) as service:
        run_id = service.start_run(recipe_id="two", args={})
        agent.wait()
        talk = _talk(service, run_id)
        service.signal(signal.SIGKILL)
        service.ended()
    agent.plan(None)
    with programs.service(project, **agent.environment()) as service:
        run = service.wait(run_id)
        _, held = _start(service, talk)
        service.stop()

    assert run["status"] == "done", run
    assert [(step["key"], step["attempt"]) for step in run["steps"]] == lines
    told = [(call["way"], call["prompt"]) for call in agent.calls[: len(before_and_again) + len(after)]]
    assert told == [*before_and_again, *after]
    # A conversation that the program does not know gets another id there; the id of the run stays.
    assert len({call["talk"] for call in agent.calls}) == (2 if "before" in when else 1)
    assert agent.calls[0]["talk"] == talk
    assert run["machine"]["sessionId"] == talk
    assert held == 201
    assert not any(_lives(call["pid"]) for call in agent.calls)
    kept = json.loads((project.data / "sessions" / "agents" / talk / "session.json").read_text())
    assert (kept["created"], kept["backend"]) == (True, "claude-code")


def test_a_killed_service_leaves_the_conversation_taken(project: programs.Project, tmp_path: Path) -> None:
    """While the interrupted run is unfinished, the next service refuses other runs in its conversation."""
    agent = Agent(tmp_path / "agent")
    agent.plan({"hang": "Commit it.", "when": "late"})
    with programs.service(project, **agent.environment()) as service:
        run_id = service.start_run(recipe_id="two", args={})
        agent.wait()
        talk = _talk(service, run_id)
        service.signal(signal.SIGKILL)
        service.ended()
    with programs.service(project, **agent.environment()) as service:
        agent.wait()
        told, status = _start(service, talk)
        with service.http() as http:
            http.post(f"/api/runs/{run_id}/cancel")
        service.wait(run_id)
        _, later = _start(service, talk)
        service.stop()

    assert (status, told["code"], told["facts"]["holder"]) == (409, "session_locked", run_id)
    assert later == 201
    assert not any(_lives(call["pid"]) for call in agent.calls)


def _talk(service: programs.Service, run_id: str) -> str:
    with service.http() as http:
        return str(http.get(f"/api/runs/{run_id}").json()["machine"]["sessionId"])


def _start(service: programs.Service, talk: str) -> tuple[dict[str, Any], int]:
    with service.http() as http:
        answer = http.post("/api/runs", json={"recipe_id": "two", "args": {"agent_session_id": talk}})
    return answer.json(), answer.status_code


def _lives(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"remembering_agent" in command
