"""Reads are served from rows and folders while no row can be written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from app import errors
from app.storage.index.sql.index import SqlIndex
from tests.integration import project as projects
from tests.integration import served

LISTS = ("/api/runs", "/api/runs?q=quick", "/api/stats", "/api/usage", "/api/gates", "/api/issues")
PARTS = ("", "/steps", "/why", "/graph")


async def _refused(*_: Any, **__: Any) -> Any:
    raise errors.StorageFault("the index cannot be used: database or disk is full", detail={"file": "index"})


def _change_row(project: projects.Project, statement: str, run_id: str) -> None:
    with sqlite3.connect(project.data / "index.db") as index:
        index.execute(statement, (run_id,))
    index.close()


def _without_row(project: projects.Project, run_id: str) -> None:
    _change_row(project, "DELETE FROM runs WHERE run_id = ?", run_id)


def _with_an_old_row(project: projects.Project, run_id: str) -> None:
    values = "status = 'running', completed_at = NULL, owner = 'process'"
    _change_row(project, f"UPDATE runs SET {values} WHERE run_id = ?", run_id)


def _damaged(project: projects.Project, run_id: str) -> None:
    journal = project.data / "runs" / run_id / "steps.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"status":"done"', b'"status":"fail"', 1))


def _gone(project: projects.Project, run_id: str) -> None:
    shutil.rmtree(project.data / "runs" / run_id)


@pytest.mark.parametrize(
    ("spoil", "since", "shown", "listed"),
    [
        (_without_row, "the start", "done", "done"),
        (_with_an_old_row, "the start", "done", "running"),
        (_with_an_old_row, "later", "done", "running"),
        (_damaged, "the start", "failed", "done"),
        (_damaged, "later", "failed", "done"),
        (_gone, "the start", None, "done"),
        (_gone, "later", None, "done"),
    ],
)
async def test_runs_are_shown_and_listed_before_their_rows_are_updated(
    project: projects.Project,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[projects.Project, str], None],
    since: str,
    shown: str | None,
    listed: str,
) -> None:
    """The run is shown from its folder, lists use its old row or its folder, and the row follows once it can."""
    async with served.in_process(project) as service:
        other, run_id = [(await service.run("quick"))["run_id"] for _ in range(2)]
    if since == "the start":
        spoil(project, run_id)
    with monkeypatch.context() as refusing:
        async with served.in_process(project) as service:
            if since == "later":
                await service.http.get("/api/runs")
                spoil(project, run_id)
            refusing.setattr(SqlIndex, "_change", _refused)
            parts = {part: await service.http.get(f"/api/runs/{run_id}{part}") for part in PARTS}
            lists = {path: await service.http.get(path) for path in LISTS}
            refusing.undo()
            later = (await service.http.get("/api/runs")).json()

    # The steps of a damaged run are refused.
    expected = {None: {404}, "done": {200}, "failed": {200, 409}}[shown]
    assert {answer.status_code for answer in parts.values()} == expected
    assert shown is None or parts[""].json()["status"] == shown
    assert {path: answer.status_code for path, answer in lists.items()} == dict.fromkeys(LISTS, 200)
    assert {row["run_id"]: row["status"] for row in lists["/api/runs"].json()} == {other: "done", run_id: listed}
    assert {row["run_id"]: row["status"] for row in later} == {other: "done"} | ({run_id: shown} if shown else {})
