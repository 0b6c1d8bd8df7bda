"""The service as a process: start, stop by signals, restart, refusal."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance import processes, programs

IDLE_BYTES = 120 * 1024 * 1024


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


def test_the_service_prints_its_paths_and_runs_a_recipe(project: programs.Project):
    """The first lines name project, data directory and recovered runs, and a posted run is executed to done."""
    with programs.service(project, **processes.COLD) as service:
        run_id = service.start_run()
        run = service.wait(run_id)
        assert service.stop() == 0

    assert run["status"] == "done"
    assert programs.lines_of(run) == [("find", "done"), ("brief", "done"), ("draft", "done"), *_checks(run)]
    assert service.said[0].startswith("Control Room ")
    assert service.said[1:3] == [f"project: {project.path}", f"data: {project.data}"]
    assert "recovered: nothing was unfinished" in service.said


def test_log_is_json_and_holds_no_secret(project: programs.Project):
    """Every line on stderr is a JSON object, and none contains the token."""
    token = "a-secret-token-of-this-test"
    with programs.service(project, CONTROL_ROOM_API_TOKEN=token, CONTROL_ROOM_LOG_LEVEL="debug") as service:
        service.wait(service.start_run())
        service.stop()

    assert service.logged
    assert all(json.loads(line)["level"] for line in service.logged)
    assert token not in "\n".join(service.logged)


LOOKING = """\
schema: "1.7"
name: looking
description: Look at what the processes above show, and at what this one has.
version: 1.0.0
secrets: [DEPLOY_TOKEN]
steps:
  - id: look
    type: bash
    command: |
      at=$$
      while [ "$at" -gt 1 ]; do
        tr '\\0' '\\n' < /proc/$at/environ | sed "s/^/$at /"
        at=$(sed 's/.*) . //; s/ .*//' /proc/$at/stat)
      done
      echo "got $DEPLOY_TOKEN, not ${GEMINI_API_KEY:-it}"
    output: seen
final_output: seen
"""


def test_a_command_finds_no_secret_that_it_was_not_given(project: programs.Project):
    """A command gets only the secrets that its recipe names, and the recorded output masks them.

    It finds neither the token nor keys of backends in the environments of the processes above it.
    """
    project.write("recipes/amplifier/looking.yaml", LOOKING)
    given: dict[str, Any] = {
        "CONTROL_ROOM_API_TOKEN": "sesame-of-the-service",
        "GEMINI_API_KEY": "sesame-of-gemini",
        "DEPLOY_TOKEN": "sesame-of-deployment",
        "OTHER_URL": "postgres://user:sesame-of-url@host/db",
        "PLAIN": "plain-4711",
    }
    given |= processes.COLD
    with programs.service(project, **given) as service:
        run_id = service.start_run(recipe_id="looking", args={})
        assert service.wait(run_id)["status"] == "done"
        with service.http() as http:
            seen = http.get(f"/api/runs/{run_id}/cache/final_output").json()["text"]
        own = Path(f"/proc/{service.process.pid}/environ").read_bytes()

    found = {line.partition("=")[0].split()[-1] for line in seen.splitlines() if "sesame" in line or "=***" in line}
    assert seen.endswith("got ***, not it")
    assert "PLAIN=plain-4711" in seen
    assert found == {"DEPLOY_TOKEN"}
    assert b"sesame" not in own.replace(b"postgres://user:sesame-of-url@host/db", b"")


def test_a_token_is_read_from_its_file(project: programs.Project):
    """A service with a token in a file requires it, and a client with the same setting sends it."""
    file = project.write("token", "a-token-that-is-in-a-file\n")
    file.chmod(0o600)
    with programs.service(project, CONTROL_ROOM_API_TOKEN_FILE=str(file)) as service, service.http() as http:
        refused = http.get("/api/runs").status_code
        listed = programs.asked("runs", "list", "--server", service.url, CONTROL_ROOM_API_TOKEN_FILE=str(file))

    assert (refused, listed) == (401, [])


def test_health_readiness_and_metrics_are_answered(project: programs.Project):
    """A running service is alive and ready, and counts runs, steps and requests."""
    with programs.service(project) as service, service.http() as http:
        service.wait(service.start_run())
        alive, ready, metrics = http.get("/healthz"), http.get("/readyz"), http.get("/metrics")

    assert (alive.status_code, ready.status_code) == (200, 200)
    assert 'control_room_steps_total{kind="agent_call",status="done"} 2.0' in metrics.text
    assert 'control_room_runs{state="done"} 1.0' in metrics.text
    assert "control_room_http_requests_total{" in metrics.text
    assert "control_room_slots 8.0" in metrics.text


def test_sigterm_lets_the_step_in_flight_end_and_begins_no_other(project: programs.Project):
    """Within the grace period a step in progress is finished and recorded; the next one runs after the next start."""
    project.say(brief={"text": "slow", "delay_seconds": 5})
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait_for_step(run_id, "brief")
        assert service.stop() == 0

    assert _keys(project, run_id) == ["find", "brief"]
    with programs.service(project) as service:
        run = service.wait(run_id)

    assert "recovered: 1 unfinished run" in service.said
    assert run["status"] == "done"
    assert _keys(project, run_id)[:3] == ["find", "brief", "draft"]


def test_step_that_outlasts_the_grace_runs_again_after_the_restart(project: programs.Project):
    """A step ended by the grace period has no record; the restart tries it again and ends the run."""
    project.say(draft=[{"hang": True}, "at the second try"])
    with programs.service(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2") as service:
        run_id = service.start_run()
        service.wait_for_step(run_id, "draft")
        assert service.stop() == 0

    with programs.service(project) as service, service.http() as http:
        run = service.wait(run_id)
        text = http.get(f"/api/runs/{run_id}/cache/text").json()["text"]

    assert run["status"] == "done"
    assert text == "at the second try"
    assert _keys(project, run_id)[:3] == ["find", "brief", "draft"]


def test_second_signal_does_not_wait_for_the_grace(project: programs.Project):
    """A second signal ends the step in progress at once, and its run can be continued."""
    project.say(draft=[{"hang": True}, "later"])
    with programs.service(project, CONTROL_ROOM_STOP_GRACE_SECONDS="3600") as service:
        run_id = service.start_run()
        service.wait_for_step(run_id, "draft")
        service.hurry()
        assert service.ended() == 130

    with programs.service(project) as service:
        assert service.wait(run_id)["status"] == "done"


def test_killed_service_continues_its_runs(project: programs.Project):
    """After SIGKILL during a step the next service continues the run, and executes no recorded step again."""
    project.say(draft=[{"hang": True}, "later"])
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait_for_step(run_id, "draft")
        service.signal(signal.SIGKILL)
        service.ended()
    before = _keys(project, run_id)

    with programs.service(project) as service:
        assert service.wait(run_id)["status"] == "done"

    assert before == ["find", "brief"]
    assert _keys(project, run_id)[:3] == ["find", "brief", "draft"]


def test_crash_point_kills_and_the_next_service_continues(project: programs.Project):
    """The variable of crash tests kills the process at its probe; the run loses and repeats no recorded step."""
    with programs.service(project, CONTROL_ROOM_CRASH_AT="step.after_append:2") as service:
        run_id = service.start_run()
        assert service.ended() == -signal.SIGKILL
    before = _keys(project, run_id)

    with programs.service(project) as service:
        assert service.wait(run_id)["status"] == "done"

    assert before == ["find", "brief"]
    assert _keys(project, run_id)[:3] == ["find", "brief", "draft"]


def test_crash_point_of_the_wrong_form_is_refused(project: programs.Project):
    """An unreadable crash point prevents the start of the service."""
    refused = programs.program("serve", "--port", "0", project=project, code=5, CONTROL_ROOM_CRASH_AT="x:none")

    assert "CONTROL_ROOM_CRASH_AT" in refused.stderr


def test_folder_written_by_hand_is_adopted_and_resumed(project: programs.Project):
    """A run folder exactly as in the specification, with two steps done, continues with the third."""
    run_id = "run_abc123"
    receipt, plan = _by_hand(project, run_id)
    with programs.service(project) as service, service.http() as http:
        run = service.wait(run_id)
        steps = http.get(f"/api/runs/{run_id}/steps").json()

    assert run["status"] == "done", run["error"]
    assert run["task"]["initial_args"] == {"words": "gate"}
    assert [line["step_id"] for line in steps][:3] == ["find", "brief", "draft"]
    assert steps[0]["receipt_id"] == receipt
    assert steps[1]["output_preview"] == plan[:200]


def test_streams_and_waiting_polls_end_with_the_service(project: programs.Project):
    """A stop ends event streams at once, so that a reader does not delay it."""
    project.say(draft={"hang": True})
    with programs.service(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2") as service, service.http() as http:
        run_id = service.start_run()
        service.wait_for_step(run_id, "draft")
        with http.stream("GET", f"/api/runs/{run_id}/events") as stream:
            lines = stream.iter_lines()
            assert any("step.started" in line for line in lines)
            service.signal(signal.SIGTERM)
            rest = list(lines)
        assert service.ended() == 0

    assert not any("run.ended" in line for line in rest)


def test_second_service_of_a_data_directory_is_refused(project: programs.Project):
    """A second service is refused and names the first one's process and address, and the first one continues."""
    with programs.service(project) as service:
        refused = programs.program("serve", "--port", "0", project=project, code=5)

        assert str(service.process.pid) in refused.stderr
        assert service.url in refused.stderr
        assert service.wait(service.start_run())["status"] == "done"


def test_a_taken_port_is_a_configuration_error(project: programs.Project):
    """A port that another program uses is a configuration error, and no runs folder is created."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = programs.program("serve", "--port", port, project=project, code=5, **processes.COLD)

    assert f"127.0.0.1:{port}" in refused.stderr
    assert "another program has this port" in refused.stderr
    assert not (project.data / "runs").exists()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.1"])
def test_an_unusable_host_is_a_configuration_error(project: programs.Project, host: str):
    """A host that the service cannot listen on is a configuration error."""
    given: dict[str, Any] = {"CONTROL_ROOM_API_TOKEN": "a-token-long-enough"}
    refused = programs.program("serve", "--host", host, "--port", "0", project=project, code=5, **given)

    assert f"{host}:0 cannot be listened on" in refused.stderr


def test_bad_settings_are_refused_with_all_remarks(project: programs.Project):
    """The service refuses to start with unusable settings, and reports all of them."""
    given: dict[str, Any] = {"CONTROL_ROOM_MAX_RUNNING": "0", "CONTROL_ROOM_HSOT": "x"}
    refused = programs.program("serve", "--host", "0.0.0.0", "--port", "0", project=project, code=5, **given)

    assert "error: CONTROL_ROOM_API_TOKEN" in refused.stderr
    assert "error: CONTROL_ROOM_MAX_RUNNING" in refused.stderr
    assert "warning: CONTROL_ROOM_HSOT: unknown setting; did you mean CONTROL_ROOM_HOST?" in refused.stderr


def test_broken_agents_file_is_refused_with_its_flaws(project: programs.Project):
    """The service refuses to start with an invalid agents file, and the error names the flaw."""
    project.write("agents.json", {"agents": [{"id": "a", "archetype": "writer", "tier": "t9", "backend": "script"}]})
    refused = programs.program("serve", "--port", "0", project=project, code=5)

    assert "agents_invalid" in refused.stderr
    assert "tier" in refused.stderr


def test_token_is_asked_for_everywhere_but_health(project: programs.Project):
    """A service with a token refuses requests without it, except those for health."""
    token = "a-secret-token-of-this-test"
    with programs.service(project, CONTROL_ROOM_API_TOKEN=token) as service:
        with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as stranger:
            refused, alive = stranger.get("/api/runs"), stranger.get("/healthz")
        with service.http() as http:
            known = http.get("/api/runs")

    assert (refused.status_code, alive.status_code, known.status_code) == (401, 200, 200)


@pytest.mark.slow
def test_idle_service_is_small(project: programs.Project):
    """An idle service stays under 120 MB."""
    with programs.service(project, **processes.COLD) as service, service.http() as http:
        assert http.get("/api/recipes").status_code == 200
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        resident = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

    assert resident < IDLE_BYTES, f"{resident / 1024 / 1024:.0f} MB"


def test_data_is_for_its_owner_only(project: programs.Project):
    """Only the owner can enter folders of runs, and read their files."""
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait(run_id)
        service.stop()
    folder = project.data / "runs" / run_id
    modes = {path: path.stat().st_mode & 0o077 for path in [folder, *folder.rglob("*")]}

    assert not any(modes.values()), modes
    assert os.stat(project.data / "runs").st_mode & 0o077 == 0


def _by_hand(project: programs.Project, run_id: str) -> tuple[str, str]:
    payload = {"matches": [{"path": "Story/SCN-gate.md"}], "report": "one file"}
    encoded = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    plan, receipt = "Kael arrives at dusk, as planned by hand.", "rcpt_a1b2c3"
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in (("found", encoded), ("plan", plan))}
    task = {"description": "By hand", "session_plan_task_id": 1, "initial_args": {"words": "gate"}}
    manifest = {
        "run_id": run_id,
        "recipe_id": "small",
        "session_id": "sess_xyz",
        "status": "running",
        "created_at": "2026-02-10T14:30:00Z",
        "updated_at": "2026-02-10T14:31:22Z",
        "completed_at": None,
        "task": task,
        "current_step_index": 2,
        "total_steps": 3,
        "phase": "b",
        "error": None,
    }
    shared = {
        "status": "done",
        "error": None,
        "started_at": "2026-02-10T14:30:01Z",
        "completed_at": "2026-02-10T14:30:02Z",
    }
    lines = [
        {
            "step_index": 0,
            "step_id": "find",
            "phase": "a",
            "tool": "file_locator",
            "agent_archetype": None,
            "agent_id": None,
            "output_slot": "found",
            "receipt_id": receipt,
            "input_slot_refs": ["task.args"],
            "output_hash": f"sha256:{hashes['found']}",
            "output_preview": "one file",
        },
        {
            "step_index": 1,
            "step_id": "brief",
            "phase": "b",
            "tool": None,
            "agent_archetype": "planner",
            "agent_id": "planner-test",
            "output_slot": "plan",
            "receipt_id": None,
            "input_slot_refs": ["found"],
            "output_hash": f"sha256:{hashes['plan']}",
            "output_preview": plan,
        },
    ]
    cache = {
        "found": {"type": "pointer", "receipt_id": receipt, "sha256": hashes["found"], "summary": "one file"},
        "plan": {
            "type": "artifact",
            "agent_id": "planner-test",
            "text": plan,
            "sha256": hashes["plan"],
            "summary": plan,
        },
    }
    proof = {"receipt_id": receipt, "session_id": "sess_xyz", "tool": "file_locator", "payload": payload}
    project.write(f"runs/{run_id}/run.json", manifest)
    project.write(f"runs/{run_id}/steps.jsonl", "".join(json.dumps(line | shared) + "\n" for line in lines))
    project.write(f"runs/{run_id}/cache.json", cache)
    project.write("audit/sessions/sess_xyz/tool_receipts.jsonl", json.dumps(proof) + "\n")
    return receipt, plan


def _checks(run: dict[str, list[dict[str, str]]]) -> list[tuple[str, str]]:
    return [(step["key"], "done") for step in run["steps"] if step["phase"] == "dod"]


def _keys(project: programs.Project, run_id: str) -> list[str]:
    journal = project.data / "runs" / run_id / "steps.jsonl"
    return [json.loads(line)["key"] for line in journal.read_text().splitlines()]
