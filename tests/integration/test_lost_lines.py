"""Journals without their last lines, as in a restored copy: no recorded step runs again without an order."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs
from tests.integration import served
from tests.integration.project import Project

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


def cut(file: Path, lines: int) -> None:
    """Truncate a file to its first lines."""
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:lines]))


def cut_behind(folder: Path, key: str) -> None:
    """Restore both journals to the moment at which a step began."""
    lines = (folder / "control.jsonl").read_bytes().splitlines(keepends=True)
    count = next(number for number, line in enumerate(lines, 1) if json.loads(line).get("key") == key)
    cut(folder / "control.jsonl", count)
    cut(folder / "steps.jsonl", 0)


def only_steps(folder: Path) -> None:
    """Remove two lines of steps.jsonl; later decisions show how many there were."""
    cut(folder / "steps.jsonl", 1)


def both(folder: Path) -> None:
    """Restore both journals to their beginning; the events show the later lines."""
    cut_behind(folder, "discover")


def all_but_the_manifest(folder: Path) -> None:
    """Restore the journals and remove the events; run.json shows the later lines."""
    cut_behind(folder, "discover")
    (folder / "events.jsonl").unlink()


LOSSES: dict[str, Callable[[Path], None]] = {
    "control.jsonl": only_steps,
    "events.jsonl": both,
    "run.json": all_but_the_manifest,
}


async def interrupted(project: Project) -> tuple[str, Path]:
    """Return a run whose fourth step was in flight when its service stopped."""
    project.say("polish", hang=True)
    async with served.in_process(project, stop_grace_seconds=0) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="polish")
    project.say("polish", text="Polished.")
    return run_id, project.data / "runs" / run_id


@pytest.mark.parametrize("told_by", LOSSES)
async def test_a_run_with_lost_lines_waits_for_a_person(project: Project, told_by: str) -> None:
    """The run is parked with the place and the remedy, in list and detail, over restarts; an order continues it."""
    run_id, folder = await interrupted(project)
    LOSSES[told_by](folder)
    left = (folder / "steps.jsonl").read_bytes()
    async with served.in_process(project) as service:
        parked = await service.until(run_id, "paused", "done", "failed")
    async with served.in_process(project) as service:
        (row,) = (await service.http.get("/api/runs")).json()
        again = await service.show(run_id)
        untouched = (folder / "steps.jsonl").read_bytes() == left
        answer = await service.http.post(f"/api/runs/{run_id}/unpause")
        ended = await service.until(run_id, "paused", "done", "failed")
    error = parked["error"]

    assert (parked["status"], parked["reason"], row["status"]) == ("paused", "journal_lines_missing", "paused")
    assert error["code"] == "journal_lines_missing"
    assert (error["detail"]["file"], error["detail"]["told_by"]) == ("steps.jsonl", told_by)
    assert "unpause the run" in error["message"]
    assert (again["status"], again["error"], untouched) == ("paused", error, True)
    assert (answer.status_code, ended["status"]) == (200, "done")


async def test_a_lost_ending_is_not_undone(project: Project) -> None:
    """An ended run whose journal and row lost the end is not taken up again."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
    folder = project.data / "runs" / run_id
    for path in (*project.data.glob("index.db*"), folder / "events.jsonl"):
        path.unlink()
    cut(folder / "control.jsonl", 1)
    cut(folder / "steps.jsonl", 0)
    async with served.in_process(project) as service:
        parked = await service.until(run_id, "paused", "done", "failed")

    assert (parked["status"], parked["error"]["detail"]["told_by"]) == ("paused", "run.json")


def test_a_command_parks_too(project: Project) -> None:
    """A run with lost lines is also parked if a command resumes it in its own process."""
    run_id, folder = asyncio.run(interrupted(project))
    only_steps(folder)
    place = programs.Project(project.root)
    ended = programs.control_room("runs", "unpause", run_id, project=place, code=None)
    resumed = programs.control_room("runs", "resume", run_id, project=place, code=None)
    shown: dict[str, Any] = programs.asked("runs", "show", run_id, project=place)

    assert 0 not in (ended.returncode, resumed.returncode)
    assert (shown["status"], shown["error"]["code"]) == ("paused", "journal_lines_missing")


def test_the_commit_log_is_asked(tmp_path: Path) -> None:
    """After a kill in the same boot, the commit log shows the removed lines; the run is parked without them."""
    project = programs.make_project(tmp_path / "project")
    project.write("replies.json", [{"key": "draft", "hang": True}, {"key": "*", "text": "Kael arrives."}])
    with programs.service(project) as service:
        run_id = service.start_run()
        service.wait_for_step(run_id, "draft")
        service.signal(signal.SIGKILL)
        service.ended()
    folder = project.data / "runs" / run_id
    cut(folder / "steps.jsonl", 1)
    project.say()
    with programs.service(project) as service:
        parked = service.wait(run_id, "paused", "done", "failed")

    assert (parked["status"], parked["error"]["code"]) == ("paused", "journal_lines_missing")
    assert parked["error"]["detail"]["told_by"] == "the commit log in commits/"
    assert len((folder / "steps.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("begun", [True, False])
async def test_a_run_that_lost_its_start_is_not_adopted(project: Project, begun: bool) -> None:
    """A folder with journals but without start.json is damaged: no step runs again, and the run can be deleted."""
    run_id, folder = await interrupted(project)
    (folder / "start.json").unlink()
    if not begun:
        # Like a run that was only accepted.
        for name in ("steps.jsonl", "control.jsonl"):
            (folder / name).write_bytes(b"")
    before = {file.name: file.read_bytes() for file in folder.glob("*.jsonl")}
    async with served.in_process(project) as service:
        rows = {}
        async with asyncio.timeout(served.WAIT_SECONDS):
            # The service opens the run beside the requests.
            while run_id not in rows:
                found = (await service.http.get("/api/runs?status=failed")).json()
                rows = {row["run_id"]: row for row in found}
        after = {name: (folder / name).read_bytes()[: len(content)] for name, content in before.items()}
        resumed = await service.http.post(f"/api/runs/{run_id}/resume")
        deleted = await service.http.delete(f"/api/runs/{run_id}")

    assert (rows[run_id]["status"], rows[run_id]["error_code"]) == ("failed", "journal_corrupt")
    assert after == before
    assert (resumed.status_code, resumed.json()["code"]) == (409, "journal_corrupt")
    assert "start.json is missing beside journals" in resumed.json()["detail"]
    assert deleted.status_code == 204
