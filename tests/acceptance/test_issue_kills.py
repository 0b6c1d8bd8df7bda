"""The service, killed between the file of an issue and its row, and started again."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import smoke
from tests.acceptance.forked_service import Service
from tests.integration.project import Project, tool_step

POINTS = ("before_write", "before_rename", "after_rename")


@pytest.mark.parametrize("point", smoke.only("before_rename", POINTS))
def test_a_kill_in_a_change_leaves_list_and_file_alike(tmp_path: Path, point: str) -> None:
    """After a kill during a change, list and file of the next service agree, and the change can be repeated."""
    service = Service(tmp_path, f"storage.issue.{point}:2")
    http = service.http()
    assert http is not None
    issue = http.post("/api/issues", json={"title": "Look here", "kind": "continuity"}).json()
    address = f"/api/issues/{issue['issue_id']}"
    with pytest.raises(httpx.HTTPError):
        http.patch(address, json={"status": "closed", "revision": 1})
    assert service.ended() != 0

    service = Service(tmp_path)
    http = service.http()
    assert http is not None
    try:
        shown = http.get(address).json()
        (row,) = http.get("/api/issues").json()
        again = http.patch(address, json={"status": "closed", "note": "again"}).json()
    finally:
        service.stop()

    assert {name: shown[name] for name in row} == row
    assert shown["revision"] == (2 if point == "after_rename" else 1)
    assert (again["status"], again["revision"]) == ("closed", shown["revision"] + 1)


def test_a_kill_in_the_making_leaves_a_whole_issue(tmp_path: Path) -> None:
    """An issue whose file existed before the kill is in the list of the next service."""
    service = Service(tmp_path, "storage.issue.after_rename:1")
    http = service.http()
    assert http is not None
    with pytest.raises(httpx.HTTPError):
        http.post("/api/issues", json={"title": "Look here"})
    assert service.ended() != 0

    service = Service(tmp_path)
    http = service.http()
    assert http is not None
    try:
        (row,) = http.get("/api/issues").json()
    finally:
        service.stop()

    assert (row["title"], row["status"], row["revision"]) == ("Look here", "open", 1)


@pytest.mark.parametrize("point", smoke.only("before_rename", POINTS))
def test_a_request_that_was_cut_off_is_made_again(tmp_path: Path, point: str) -> None:
    """A request without an answer can be repeated under the same key, and opens one issue."""
    headers = {"Idempotency-Key": "once"}
    service = Service(tmp_path, f"storage.issue.{point}:1")
    http = service.http()
    assert http is not None
    with pytest.raises(httpx.HTTPError):
        http.post("/api/issues", json={"title": "Look here"}, headers=headers)
    assert service.ended() != 0

    service = Service(tmp_path)
    http = service.http()
    assert http is not None
    try:
        again = http.post("/api/issues", json={"title": "Look here"}, headers=headers)
        third = http.post("/api/issues", json={"title": "Look here"}, headers=headers)
        (row,) = http.get("/api/issues").json()
    finally:
        service.stop()

    assert again.status_code == (200 if point == "after_rename" else 201)
    assert third.status_code == 200
    assert row["issue_id"] == again.json()["issue_id"] == third.json()["issue_id"]


@pytest.mark.parametrize(("point", "nth"), smoke.only(("before_rename", 2), itertools.product(POINTS, (1, 2))))
def test_a_kill_while_findings_are_closed_leaves_none_open(tmp_path: Path, point: str, nth: int) -> None:
    """A check that dies while it closes issues of absent findings closes all of them in the next service."""
    project = Project(tmp_path)
    project.add_recipe(NUMBERS)
    project.write("Story/outline.md", "# Outline\n\n## Scene 1: A\n\n- It begins.\n\n## Scene 1: B\n\n- It ends.\n")
    service = Service(tmp_path)
    http = service.http()
    assert http is not None
    _done(http, http.post("/api/runs", json={"recipe_id": "numbers"}).json()["run_id"])
    opened = len(http.get("/api/issues?status=open").json())
    service.stop()
    project.write("Story/outline.md", "# Outline\n")
    service = Service(tmp_path, f"storage.issue.{point}:{nth}")
    http = service.http()
    assert http is not None
    run_id = http.post("/api/runs", json={"recipe_id": "numbers"}).json()["run_id"]
    assert service.ended() != 0

    service = Service(tmp_path)
    http = service.http()
    assert http is not None
    try:
        shown = _done(http, run_id)
        left = http.get("/api/issues?status=open").json()
        closed = http.get("/api/issues?status=closed").json()
        lines = http.get(f"/api/runs/{run_id}/steps").json()
    finally:
        service.stop()

    assert opened >= 2
    assert (shown["status"], left, len(closed)) == ("done", [], opened)
    assert sorted(lines[-1]["output"]["closed"]) == sorted(row["issue_id"] for row in closed)


NUMBERS = {
    "recipe_id": "numbers",
    "label": "Look at the outline",
    "phase_a": [tool_step("look", "outline_analyzer", "outline", outline_path="Story/outline.md", mode="structure")],
    "findings": {"$ref": "outline.findings"},
}


def _done(http: httpx.Client, run_id: str) -> dict[str, Any]:
    while (shown := http.get(f"/api/runs/{run_id}?wait=5").json())["status"] not in ("done", "failed"):
        pass
    return dict(shown)
