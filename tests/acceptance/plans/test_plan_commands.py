"""A plan that a command executes in its own process: interrupted or killed, then continued by another process."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.acceptance import drafting, processes, programs
from tests.acceptance.plans import working

WAIT_SECONDS = 60
TASKS = ("chore a", "chore b", "chore c")


def begun_by(folder: Path, project: programs.Project, step: str) -> processes.Started:
    """Start a plan in a process, and return the process once it has started a step."""
    words = [word for task in TASKS for word in ("--task", task)]
    made = programs.asked("plan", "create", *words, "--in-order", project=project)
    programs.asked("plan", "approve", made["session_id"], project=project)
    process = processes.start(
        "app",
        "plan",
        "start",
        made["session_id"],
        environ=programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2"),
        folder=folder,
    )
    tick = threading.Event()
    for _ in range(WAIT_SECONDS * 50):
        if any(key == step for _, run_id in started(folder) for _, key, _ in drafting.begun(folder, run_id)):
            return process
        assert process.poll() is None, process.communicate()
        tick.wait(0.02)
    raise AssertionError(f"{step} is not begun")


def started(folder: Path) -> list[tuple[int, str]]:
    """Return task and id of every run."""
    files = (folder / ".control-room" / "runs").glob("[0-9]*/start.json")
    found = [json.loads(file.read_text()) for file in files]
    return sorted((start["session_plan_task_id"], start["run_id"]) for start in found)


@pytest.mark.parametrize(
    ("how", "code", "by"),
    [
        (signal.SIGINT, 130, "service"),
        (signal.SIGTERM, 130, "command"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, "service", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command(tmp_path: Path, how: signal.Signals, code: int, by: str) -> None:
    """An interrupted or killed plan continues without repeating a finished step, and each task has one run."""
    folder = working.make_project(tmp_path / "project", draft_b={"hang": True})
    project = programs.Project(folder)
    process = begun_by(folder, project, "draft_b")
    process.send_signal(how)
    _, told = process.communicate(timeout=WAIT_SECONDS)
    between, before = working.kept(folder), drafting.recorded(folder)
    working.say(folder)
    session_id = between["session_id"]
    if by == "service":
        service, http = working.opened(folder)
        ended = working.wait(http, session_id)
        service.stop()
    else:
        programs.control_room("plan", "follow", session_id, project=project)
        ended = programs.asked("plan", "show", session_id, project=project)

    assert process.wait() == code
    assert code != 130 or session_id in told
    assert (between["status"], working.states(between)) == ("running", ["done", "running", "blocked"])
    assert ended is not None
    assert (ended["status"], [task["attempt"] for task in ended["tasks"]]) == ("done", [1, 1, 1])
    assert started(folder) == [(task["id"], task["run_id"]) for task in ended["tasks"]]
    assert working.repeated(folder, before) == set()


def test_a_plan_from_intent_to_done(tmp_path: Path) -> None:
    """One command lets the chief split an intent, and further ones approve the plan, execute it, and show it done."""
    folder = working.make_project(tmp_path / "project")
    project = programs.Project(folder)
    made = programs.asked("plan", "create", working.INTENT, "--no-review", project=project)
    drafted = programs.asked("plan", "show", made["session_id"], project=project)
    programs.control_room("plan", "approve", made["session_id"], project=project)
    done = programs.control_room("plan", "start", made["session_id"], project=project)
    shown = programs.asked("plan", "show", made["session_id"], project=project)

    assert (drafted["status"], drafted["created_by"], len(drafted["tasks"])) == ("draft", "chief", 4)
    assert (shown["status"], working.states(shown)) == ("done", ["done"] * 4)
    assert "done" in done.stdout
    assert len(working.runs_of(folder)) == 5


def test_beside_a_service(tmp_path: Path) -> None:
    """While a service holds the folder, a command can read a plan but not change it, and names the service."""
    folder = working.make_project(tmp_path / "project")
    project = programs.Project(folder)
    service, http = working.opened(folder)
    session_id = working.post(http)
    assert session_id is not None
    shown = programs.asked("plan", "show", session_id, project=project)
    refused = programs.control_room("plan", "approve", session_id, project=project, code=5)
    server = ("--server", str(http.base_url))
    plain = programs.Project(folder)
    approved = json.loads(programs.control_room("plan", "approve", session_id, "--json", *server).stdout)
    service.stop()

    assert shown["status"] == "draft"
    assert str(http.base_url).rstrip("/") in refused.stderr
    assert approved["status"] == "approved"
    assert plain.path == folder


def test_an_edit_of_the_file_that_the_service_has_not_taken(tmp_path: Path) -> None:
    """Beside a service, `plan show` says that an edit of the file is not taken, until the service has taken it."""
    folder = working.make_project(tmp_path / "project")
    project = programs.Project(folder)
    service, http = working.opened(folder)
    session_id = working.post(http)
    assert session_id is not None
    before = programs.control_room("plan", "show", session_id, project=project)
    file = folder / ".control-room" / "sessions" / session_id / "plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intent": "Another intent"}))
    edited = programs.control_room("plan", "show", session_id, project=project)
    taken = http.get(f"/api/sessions/{session_id}").json()
    after = programs.control_room("plan", "show", session_id, project=project)
    service.stop()

    assert "Another intent" in edited.stdout
    assert taken["intent"] == "Another intent"
    assert ["edited by hand" in done.stderr for done in (before, edited, after)] == [False, True, False]
