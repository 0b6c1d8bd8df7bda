"""Meddling: a run's folder that is deleted or made read-only, and a journal that a person edited."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import project as projects
from tests.integration import served
from tests.integration.held import DELAY_SECONDS, Held

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


@pytest.fixture
def freeze(tmp_path: Path) -> Iterator[Callable[[Path, str], None]]:
    """Return a function that makes a folder and its content read-only (`+i`) or writable (`-i`), even for root.

    Skip the test if this is not possible.
    """

    def change(folder: Path, how: str) -> None:
        subprocess.run(["chattr", "-R", how, str(folder)], check=True, capture_output=True)

    try:
        change(tmp_path, "+i")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("an immutable folder needs root, chattr and a file system that knows it")
    change(tmp_path, "-i")
    yield change
    change(tmp_path, "-i")


async def test_a_read_only_folder_parks_its_run_alone(
    tmp_path: Path, freeze: Callable[[Path, str], None], held: Held
) -> None:
    """A run whose folder becomes read-only is parked with the reason; others run, and it continues once it can."""
    project = projects.Project(tmp_path / "project")
    project.say("draft", text=projects.REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        folder = project.root / ".control-room" / "runs" / run_id
        freeze(folder, "+i")
        held.release()
        parked = await service.until(run_id, "paused", "failed", "done")
        other = await service.run("quick")
        freeze(folder, "-i")
        ended = await service.until(run_id, "done", "failed")
        log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()

    assert (parked["status"], parked["error"]["code"]) == ("paused", "storage_error")
    assert other["status"] == "done"
    assert ended["status"] == "done"
    assert all(step["attempt"] == 1 for step in log)


async def test_a_folder_deleted_under_a_run_stops_that_run_alone(tmp_path: Path, held: Held) -> None:
    """If its folder is deleted, a running run does not end falsely, and other runs and the service continue."""
    project = projects.Project(tmp_path / "project")
    project.say("draft", text=projects.REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project, stop_grace_seconds=0) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        shutil.rmtree(project.root / ".control-room" / "runs" / run_id)
        held.release()
        other = await service.run("quick")
        health = await service.http.get("/healthz")
        shown = await service.http.get(f"/api/runs/{run_id}")

    assert other["status"] == "done"
    assert health.status_code == 200
    assert shown.status_code == 404 or shown.json()["status"] != "done"

    async with served.in_process(project) as service:
        gone = await service.http.get(f"/api/runs/{run_id}")
        listed = (await service.http.get("/api/runs")).json()

    assert gone.status_code == 404
    assert [run["run_id"] for run in listed] == [other["run_id"]]


async def test_a_journal_edited_by_hand_is_named(tmp_path: Path) -> None:
    """A run whose journal was edited is failed with the place, and a repair keeps the lines before the edit."""
    project = projects.Project(tmp_path / "project")
    project.say("draft", hang=True)
    async with served.in_process(project, stop_grace_seconds=0) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
    journal = project.root / ".control-room" / "runs" / run_id / "steps.jsonl"
    first, second = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first.replace(b'"status":"done"', b'"status":"gone"') + second)
    project.say("draft", text=projects.REPLY)
    async with served.in_process(project) as service:
        named = await service.until(run_id, "failed", "done", "paused")

    assert (named["status"], named["error"]["code"]) == ("failed", "journal_corrupt")
    assert (named["error"]["detail"]["file"], named["error"]["detail"]["line"]) == ("steps.jsonl", 1)
    assert journal.read_bytes().splitlines(keepends=True)[1] == second
