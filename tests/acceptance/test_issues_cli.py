"""
The commands `control-room issues`, in a folder and towards a service.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance import programs


@pytest.mark.parametrize("served", [False, True])
def test_issues_are_opened_listed_shown_and_closed(tmp_path: Path, served: bool):
    """
    The four commands say and do the same in the folder and through its service.
    """
    project = programs.make_project(tmp_path / "project")
    if not served:
        _walk(("--project", str(project.path)))
        return
    with programs.service(project) as service:
        _walk(("--server", service.url))


def _walk(place: tuple[str, ...]) -> None:
    opened = programs.control_room("issues", "open", "Look here", "--body", "Twice.", "--kind", "odd", "--json", *place)
    issue = json.loads(opened.stdout)
    listed = programs.control_room("issues", "list", "--kind", "odd", *place)
    shown = programs.control_room("issues", "show", issue["issue_id"], *place)
    stale = programs.control_room("issues", "close", issue["issue_id"], "--revision", "7", *place, code=1)
    closed = programs.control_room("issues", "close", issue["issue_id"], "--note", "done", *place)
    left = programs.control_room("issues", "list", *place)
    done = programs.control_room("issues", "list", "--status", "closed", "--json", *place)
    unknown = programs.control_room("issues", "show", "iss_none", *place, code=4)
    refused = programs.control_room("issues", "open", "x", "--run", "nothing", *place, code=2)

    assert listed.stdout.splitlines()[1].split()[:3] == [issue["issue_id"], "open", "odd"]
    assert shown.stdout.startswith("Look here\n\nissue_id: ")
    assert "Twice." in shown.stdout
    assert "issue_changed" in stale.stderr
    assert "(closed): done" in closed.stdout
    assert left.stdout.strip() == "there are no such issues"
    assert [one["revision"] for one in json.loads(done.stdout)] == [2]
    assert "issue_not_found" in unknown.stderr
    assert "unknown_run" in refused.stderr
