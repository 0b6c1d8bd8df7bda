"""Requests about session plans, repeated to the next service after a kill before their answer."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.acceptance.plans import working

POINTS = ("before_write", "before_rename", "after_rename")


@pytest.mark.parametrize("point", POINTS)
def test_a_task_is_added_once(tmp_path: Path, point: str) -> None:
    """A request for a further task without an answer can be repeated under the same key, and adds the task once."""
    project = working.make_project(tmp_path / "project")
    # The first write is that of the plan, and the second that of the further task.
    service, http = working.opened(project, f"storage.plan.{point}:2")
    session_id = working.post(http)
    assert session_id is not None
    lost = working.add(http, session_id, "chore a", key="more")
    assert lost is None
    assert service.ended() != 0

    service, http = working.opened(project)
    try:
        again, third = (working.add(http, session_id, "chore a", key="more") for _ in range(2))
        other = working.add(http, session_id, "chore b", key="more")
    finally:
        service.stop()

    assert again is not None
    assert third is not None
    assert other is not None
    assert (again.status_code, third.status_code) == (200, 200)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert [task["id"] for task in working.kept(project)["tasks"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("point", ["before_remove", "after_remove"])
def test_a_plan_is_deleted_whole(tmp_path: Path, point: str) -> None:
    """A service that is killed during a deletion leaves the whole plan or none, and the runs stay."""
    project = working.make_project(tmp_path / "project")
    working.through(project)
    before = set(working.runs_of(project))
    service, http = working.opened(project, f"storage.plan.{point}:1")
    session_id = working.kept(project)["session_id"]
    with pytest.raises(httpx.TransportError):
        http.delete(f"/api/sessions/{session_id}")
    assert service.ended() != 0

    service, http = working.opened(project)
    try:
        status = [http.delete(f"/api/sessions/{session_id}").status_code for _ in range(2)]
        listed = http.get("/api/sessions").json()
    finally:
        service.stop()

    assert status == ([404, 404] if point == "after_remove" else [204, 404])
    assert listed == []
    assert set(working.runs_of(project)) == before
