"""`runs verify --all` and `runs repair`, in a folder, beside a service and as its client."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from app.cli import terminal
from tests.acceptance import programs
from tests.integration.read_faults import ReadFaults


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


def test_verify_reports_the_same_damage_beside_a_service(project: programs.Project) -> None:
    """`verify` reports the same damage in the folder and by the service, and `repair` first shows its changes."""
    with programs.service(project) as service:
        sound, damaged = service.start_run(), service.start_run()
        for run_id in (sound, damaged):
            service.wait(run_id, "done")
        before = programs.asked("runs", "verify", "--all", project=project)
        journal = project.data / "runs" / damaged / "steps.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b'"status":"done"', b'"status":"gone"', 1))
        content = journal.read_bytes()
        found = programs.asked("runs", "verify", "--all", project=project, code=1)
        told = programs.control_room("runs", "verify", "--all", "--server", service.url, code=1)
        same = json.loads(
            programs.control_room("runs", "verify", "--all", "--json", "--server", service.url, code=1).stdout
        )
        shown = programs.control_room("runs", "repair", damaged, "--dry-run", "--server", service.url)

        assert journal.read_bytes() == content
        assert (before["state"], before["checked"]["run"], before["reports"]) == ("sound", 2, [])
        assert found == same
        assert (found["damaged"], [report["id"] for report in found["reports"]]) == (1, [damaged])
        assert f"control-room runs repair {damaged}" in told.stdout
        assert "steps.jsonl.damaged-1" in shown.stdout

        programs.control_room("runs", "repair", damaged, "--yes", "--server", service.url)

        assert programs.asked("runs", "show", damaged, project=project)["status"] == "paused"
        assert programs.asked("runs", "verify", "--all", project=project)["ok"]


def test_an_unreadable_file_is_distinguished_from_damage(
    project: programs.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 5 distinguishes unreadable files from damaged ones, and damage takes precedence."""
    with programs.service(project) as service:
        run_ids = [service.start_run(), service.start_run()]
        for run_id in run_ids:
            service.wait(run_id, "done")
    faults = ReadFaults(monkeypatch)
    faults.refuse(f"{run_ids[0]}/steps.jsonl")
    unread = programs.asked("runs", "verify", "--all", project=project, code=5)
    one = programs.asked("runs", "verify", run_ids[0], project=project, code=5)
    journal = project.data / "runs" / run_ids[1] / "steps.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"status":"done"', b'"status":"gone"', 1))
    both = programs.asked("runs", "verify", "--all", project=project, code=1)

    assert (unread["state"], unread["unreadable"], unread["damaged"]) == ("unreadable", 1, 0)
    assert (one["state"], one["ok"]) == ("unreadable", False)
    assert (both["state"], both["unreadable"], both["damaged"]) == ("damaged", 1, 1)


def test_progress_is_drawn_for_a_person(project: programs.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """If stderr is a terminal, a line shows the progress; otherwise none is printed."""
    with programs.service(project) as service:
        service.wait(service.start_run(), "done")
    silent = programs.control_room("runs", "verify", "--all", project=project)
    monkeypatch.setattr(terminal, "is_drawn_on", lambda: True)
    drawn = programs.control_room("runs", "verify", "--all", project=project)

    assert silent.stderr == ""
    assert drawn.stderr.startswith("1 runs, ")
    assert drawn.stderr.count("\n") == 1
    assert silent.stdout == drawn.stdout


def test_a_pause_at_once_interrupts_the_open_step(project: programs.Project) -> None:
    """`runs pause --now` returns once the run is paused, with and without a service."""
    project.say(draft={"hang": True})
    with programs.service(project) as service:
        run_ids = [service.start_run(), service.start_run()]
        for run_id in run_ids:
            service.wait_for_step(run_id, "draft")
        server = ("--server", service.url)
        waiting = programs.asked("runs", "pause", run_ids[0], *server)
        paused = [programs.asked("runs", "pause", run_ids[0], "--now", *server)]
        service.signal(signal.SIGKILL)
        service.ended()
    paused.append(programs.asked("runs", "pause", run_ids[1], "--now", project=project))
    project.say()
    with programs.service(project) as service:
        for run_id in run_ids:
            programs.asked("runs", "unpause", run_id, "--server", service.url)
        ended = [service.wait(run_id) for run_id in run_ids]

    assert (waiting["status"], waiting["reason"]) == ("running", "pausing")
    assert [(run["status"], run["reason"]) for run in paused] == [("paused", "paused_by_person")] * 2
    assert [run["status"] for run in ended] == ["done"] * 2
    assert [step["attempt"] for run in ended for step in run["steps"] if step["step_id"] == "draft"] == [2, 2]
