"""The commands `control-room issues`, in a folder and as clients of a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import smoke
from tests.acceptance import programs


@pytest.mark.parametrize("served", [False, True])
def test_issues_are_opened_listed_shown_changed_and_closed(tmp_path: Path, served: bool):
    """The commands have the same results in the folder and through its service."""
    project = programs.make_project(tmp_path / "project")
    if not served:
        _walk(("--project", str(project.path)))
        return
    with programs.service(project) as service:
        _walk(("--server", service.url))


@pytest.mark.parametrize("served", smoke.only(False, [False, True]))
def test_receipts_are_listed_and_shown(tmp_path: Path, served: bool):
    """A run's receipts are listed by run and by session, and shown, in the folder and through its service."""
    project = programs.make_project(tmp_path / "project")
    folder = ("--project", str(project.path))
    run_id = json.loads(programs.control_room("run", "small", "--arg", "words=gate", "--json", *folder).stdout)[
        "run_id"
    ]
    if not served:
        _read_receipts(run_id, folder)
        return
    with programs.service(project) as service:
        _read_receipts(run_id, ("--server", service.url))


def _read_receipts(run_id: str, place: tuple[str, ...]) -> None:
    listed = json.loads(programs.control_room("receipts", "list", "--run", run_id, "--json", *place).stdout)
    receipt_id, session_id = listed[0]["receipt_id"], listed[0]["session_id"]
    table = programs.control_room("receipts", "list", "--session", session_id, *place)
    shown = programs.control_room("receipts", "show", receipt_id, *place)
    nothing = programs.control_room("receipts", "list", "--run", "other", *place)

    assert [receipt["run_id"] for receipt in listed] == [run_id]
    assert table.stdout.splitlines()[1].startswith(receipt_id)
    assert "intact yes" in " ".join(shown.stdout.split())
    assert nothing.stdout.strip() == "no receipts"


def _walk(place: tuple[str, ...]) -> None:
    opened = programs.control_room("issues", "open", "Look here", "--body", "Twice.", "--kind", "odd", "--json", *place)
    issue = json.loads(opened.stdout)
    listed = programs.control_room("issues", "list", "--kind", "odd", *place)
    shown = programs.control_room("issues", "show", issue["issue_id"], *place)
    stale = programs.control_room("issues", "close", issue["issue_id"], "--revision", "7", *place, code=1)
    closed = programs.control_room("issues", "close", issue["issue_id"], "--note", "done", *place)
    left = programs.control_room("issues", "list", *place)
    done = programs.control_room("issues", "list", "--status", "closed", "--json", *place)
    reopened = programs.control_room("issues", "reopen", issue["issue_id"], "--note", "not yet", *place)
    edited = programs.control_room("issues", "edit", issue["issue_id"], "--title", "There", "--note", "so", *place)
    nothing = programs.control_room("issues", "edit", issue["issue_id"], *place, code=2)
    keyed = ("issues", "open", "Once", "--idempotency-key", "k", "--json", *place)
    once, again = (json.loads(programs.control_room(*keyed).stdout) for _ in range(2))
    other = programs.control_room("issues", "open", "Twice", "--idempotency-key", "k", *place, code=1)
    unknown = programs.control_room("issues", "show", "iss_none", *place, code=4)
    refused = programs.control_room("issues", "open", "x", "--run", "nothing", *place, code=2)

    assert listed.stdout.splitlines()[1].split()[:3] == [issue["issue_id"], "open", "odd"]
    assert shown.stdout.startswith("Look here\n\nissue_id: ")
    assert "Twice." in shown.stdout
    assert "issue_changed" in stale.stderr
    assert "(closed): done" in closed.stdout
    assert left.stdout.strip() == "there are no such issues"
    assert [one["revision"] for one in json.loads(done.stdout)] == [2]
    assert "status: open" in reopened.stdout
    assert "(open): not yet" in reopened.stdout
    assert edited.stdout.startswith("There\n")
    assert "(open): so" in edited.stdout
    assert "changes nothing" in nothing.stderr
    assert once == again
    assert "idempotency_conflict" in other.stderr
    assert "issue_not_found" in unknown.stderr
    assert "unknown_run" in refused.stderr
