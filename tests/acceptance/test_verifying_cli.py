"""`runs verify --all` and `runs repair`, in a folder, beside a service and towards it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance import programs


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Make a project."""
    return programs.make_project(tmp_path / "project")


def test_everything_is_verified_beside_a_service_and_towards_it(project: programs.Project) -> None:
    """Both tell what was checked, what is damaged and what to type; a repair is shown first, and then made."""
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
