"""
The service, killed between the file of an issue and its row, and started again.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.acceptance.forked_service import Service


@pytest.mark.parametrize("point", ["before_write", "before_rename", "after_rename"])
def test_a_kill_in_a_change_leaves_list_and_file_alike(tmp_path: Path, point: str) -> None:
    """The list of the next service says what the file says, and the change can be made again."""
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
    """An issue whose file was there before the kill is in the list of the next service."""
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


@pytest.mark.parametrize("point", ["before_write", "before_rename", "after_rename"])
def test_a_request_that_was_cut_off_is_made_again(tmp_path: Path, point: str) -> None:
    """Whoever got no answer asks again under the same key, and there is one issue, with the first one's words."""
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
