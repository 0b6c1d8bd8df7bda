"""A data directory that is moved, removed or replaced while it is in use."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from app import clock
from app.storage import data_directory
from tests.integration import served
from tests.integration.project import Project

WORDS = "the data directory was moved, removed or replaced; put it back, or restart Control Room"

RECIPE = """\
name: waits
description: Waits for a file
version: "1.0.0"
schema: "1.7"
steps:
  - id: first
    type: bash
    command: echo yes > begun; until [ -e release ]; do sleep 0.02; done; echo first >> done
  - id: second
    type: bash
    command: echo second >> done
"""


def displace(project: Project, *, copied: bool = False) -> Path:
    """Move the data directory aside, leave a copy of it in its place if requested, and return where it is now."""
    aside = project.root / "aside"
    project.data.rename(aside)
    if copied:
        shutil.copytree(aside, project.data, ignore=shutil.ignore_patterns("*.new"))
    return aside


def put_back(project: Project, aside: Path) -> None:
    """Move the data directory back to its place."""
    shutil.rmtree(project.data, ignore_errors=True)
    aside.rename(project.data)


def content(folder: Path) -> dict[str, bytes]:
    """Return every file of the runs below a data directory."""
    files = (path for path in (folder / "runs").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


async def begun(service: served.Served) -> str:
    """Start the run that waits, and return its id once its first command is at work."""
    pipe = service.project.root / "begun"
    os.mkfifo(pipe)
    run_id = await service.start("waits")
    await asyncio.to_thread(pipe.read_bytes)
    return run_id


async def test_a_service_without_its_directory_is_not_ready(project: Project) -> None:
    """The probe is refused with the reason, nothing is written at the old place, and the directory may come back."""
    async with served.in_process(project) as service:
        assert (await service.http.get("/readyz")).status_code == 200
        aside = displace(project)
        ready = await service.http.get("/readyz")
        assert not project.data.exists()
        put_back(project, aside)

        assert (await service.http.get("/readyz")).status_code == 200
        assert (await service.run("quick"))["status"] == "done"

    assert (ready.status_code, ready.json()["code"]) == (503, "disk_failing")
    assert WORDS in ready.json()["detail"]


async def test_runs_stop_when_a_copy_replaces_their_directory(project: Project) -> None:
    """The next step does not begin, the copy stays as it is, and the run continues once its directory is back."""
    project.write(".control-room/recipes/amplifier/waits.yaml", RECIPE)
    async with served.in_process(project) as service:
        run_id = await begun(service)
        # This change is durable only after all earlier lines of the run.
        assert (await service.http.patch(f"/api/runs/{run_id}", json={"pinned": True})).status_code == 200
        aside = displace(project, copied=True)
        before = content(project.data)
        project.write("release", "")
        stopped = await service.until(run_id, "paused")
        refused = await service.http.post("/api/runs", json={"recipe_id": "quick"})
        after, made = content(project.data), (project.root / "done").read_text(encoding="utf-8")
        put_back(project, aside)
        ended = await service.until(run_id, "done", "failed")

    assert WORDS in stopped["error"]["message"]
    assert (refused.status_code, refused.json()["facts"]["error"]) == (507, WORDS)
    assert (after, made) == (before, "first\n")
    assert ended["status"] == "done"
    assert (project.root / "done").read_text(encoding="utf-8") == "first\nsecond\n"


async def test_a_service_whose_directory_is_gone_can_stop(project: Project) -> None:
    """A service whose data directory was removed during a step ends without an error, and creates nothing."""
    project.write(".control-room/recipes/amplifier/waits.yaml", RECIPE)
    async with served.in_process(project) as service:
        # The folder of processes is made when the first command starts.
        await begun(service)
        # While files are removed one by one, the service may write others.
        shutil.rmtree(displace(project), ignore_errors=True)

    assert not project.data.exists()


def test_a_displaced_service_leaves_the_next_one_announced(project: Project) -> None:
    """The end of a service whose directory was replaced does not remove what another service has announced there."""
    chosen = served.chosen(project).project.data_directory
    directory = data_directory.DataDirectory(chosen, clock=clock.SystemClock(), ids=clock.RandomIds())
    first = directory.lock_service()
    displace(project, copied=True)
    second = directory.lock_service()
    second.announce("http://127.0.0.1:1")
    first.release()
    announced = directory.service()
    second.release()

    assert announced is not None
    assert announced["url"] == "http://127.0.0.1:1"
