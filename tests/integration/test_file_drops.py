"""File drops: triggers that start a run for each new file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from app import clock
from tests.integration import scheduled
from tests.integration.project import SCENE, Project

WATCH: dict[str, Any] = {"recipe_id": "draft", "args_from": {"scene_path": "/path"}, "files": {"pattern": "in/*.md"}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a folder `in` that contains one scene."""
    project = Project(tmp_path)
    project.write("in/old.md", SCENE)
    return project


async def test_each_new_file_starts_one_run(project: Project) -> None:
    """Existing files are ignored; a new file starts one run with its path, also across restarts."""
    time = clock.FakeClock(scheduled.BEGIN)
    async with scheduled.in_process(project, time) as service:
        added = await service.add(**WATCH)
        project.write("in/new.md", SCENE)
        project.write("in/no.txt", SCENE)
        for _ in range(4):
            await service.advance(2)
        (first,) = await service.results(added["trigger_id"], 1)
        await service.until(first["run_id"], "done")
        args = await service.args(first["run_id"])
    # Dropped while the service is stopped.
    project.write("in/later.md", SCENE)
    async with scheduled.in_process(project, time) as service:
        for _ in range(4):
            await service.advance(2)
        found = await service.results(added["trigger_id"], 2)
        for _ in range(4):
            await service.advance(2)
        runs = await service.runs()

    assert args["scene_path"] == "in/new.md"
    assert [(one["subject"], one["result"]) for one in found] == [("in/new.md", "started"), ("in/later.md", "started")]
    assert len(runs) == 2
    assert (project.root / "in/new.md").read_text() == SCENE


async def test_a_file_that_still_grows_waits(project: Project) -> None:
    """A file starts its run only after it has not changed for the settling time; a later change starts another run."""
    async with scheduled.in_process(project) as service:
        added = await service.add(**WATCH | {"files": {"pattern": "in/*.md", "settle_seconds": 5}})
        for part in range(4):
            project.write("in/new.md", SCENE * (part + 1))
            await service.advance(2)
        growing = await service.trigger(added["trigger_id"])
        for _ in range(4):
            await service.advance(2)
        await service.results(added["trigger_id"], 1)
        project.write("in/new.md", SCENE * 9)
        for _ in range(5):
            await service.advance(2)
        found = await service.results(added["trigger_id"], 2)

    assert growing["history"] == []
    assert [one["subject"] for one in found] == ["in/new.md"] * 2
    assert found[0]["run_id"] != found[1]["run_id"]


async def test_existing_files_can_start_runs(project: Project) -> None:
    """With `existing: start`, existing files start runs, too."""
    async with scheduled.in_process(project) as service:
        added = await service.add(**WATCH | {"files": {"pattern": "in/*.md", "existing": "start"}})
        for _ in range(3):
            await service.advance(2)
        (result,) = await service.results(added["trigger_id"], 1)

    assert result["subject"] == "in/old.md"


async def test_a_name_that_is_no_text_is_noted_once(project: Project) -> None:
    """A file whose name is not UTF-8 starts no run, and the history says so once, beside the files that start runs."""
    async with scheduled.in_process(project) as service:
        added = await service.add(**WATCH)
        project.write(os.fsdecode(b"in/bad\xff.md"), SCENE)
        project.write("in/new.md", SCENE)
        for _ in range(4):
            await service.advance(2)
        found = await service.results(added["trigger_id"], 2)

    (noted,) = [one for one in found if one["result"] == "refused"]
    assert noted["reason"] == r"'in/bad\xff.md' cannot be used: its name is not UTF-8; rename it"
    assert [one["subject"] for one in found if one["result"] == "started"] == ["in/new.md"]


async def test_links_lead_nowhere_outside_and_a_missing_folder_forgets_nothing(
    project: Project, tmp_path: Path
) -> None:
    """A link out of the workspace starts no run, and is recorded once beside the files that start runs.

    A folder that is missing for a while starts no run again.
    """
    outside = tmp_path.parent / f"{tmp_path.name}-outside.md"
    outside.write_text(SCENE)
    async with scheduled.in_process(project) as service:
        added = await service.add(**WATCH)
        os.rename(project.root / "in", project.root / "away")
        for _ in range(3):
            await service.advance(2)
        os.rename(project.root / "away", project.root / "in")
        for _ in range(3):
            await service.advance(2)
        quiet = await service.trigger(added["trigger_id"])
        os.symlink(outside, project.root / "in" / "link.md")
        for _ in range(3):
            await service.advance(2)
        (result,) = await service.results(added["trigger_id"], 1)
        runs = await service.runs()
        project.write("in/new.md", SCENE)
        for _ in range(4):
            await service.advance(2)
        beside = await service.results(added["trigger_id"], 2)
        also = (await service.add(**WATCH | {"files": {"pattern": "in/*.md", "existing": "start"}}))["trigger_id"]
        for _ in range(4):
            await service.advance(2)
        there = await service.results(also, 3)

    assert [each["result"] for each in beside] == ["refused", "started"]
    assert sorted(each["result"] for each in there) == ["refused", "started", "started"]
    assert quiet["history"] == []
    assert (result["result"], result["run_id"]) == ("refused", None)
    assert "a link leads out of it" in result["reason"]
    assert runs == []
