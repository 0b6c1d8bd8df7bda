"""Imported runs that had not ended: they continue on request, and repeat no recorded step."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app import bootstrap, errors
from app.storage.disk import os_disk
from tests.acceptance import programs
from tests.integration import served
from tests.integration.project import Project

STEPS = {
    "child": [
        {"id": "first", "type": "bash", "command": "echo x >> first"},
        {"id": "second", "type": "bash", "command": "echo y >> second; test -e go || sleep 300"},
    ],
    "parent": [{"id": "below", "type": "recipe", "recipe": "child"}],
}


def whole(name: str, steps: list[dict[str, str]]) -> dict[str, Any]:
    """Return a recipe of these steps."""
    return {"schema": "1.7", "name": name, "description": name, "version": "1.0.0", "steps": steps}


async def test_an_imported_parent_continues_its_child(project: Project, tmp_path: Path) -> None:
    """An imported parent finds the child that it had started; runs are not copied while their service runs."""
    for name, steps in STEPS.items():
        project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole(name, steps)))
    async with served.in_process(project) as service:
        parent = await service.start("parent")
        await service.until(parent, step="below")
        async with asyncio.timeout(served.WAIT_SECONDS):
            while not (children := (await service.http.get(f"/api/runs?parent_run_id={parent}")).json()):
                await served.moment()
        [child] = children
        await service.until(child["run_id"], step="second")
        kept, other = tmp_path / "kept", served.chosen(project, data=Path(".other"))
        with pytest.raises(errors.DataDirectoryBusy, match="stop it first") as refused:
            await bootstrap.export_runs(served.chosen(project), [], kept)
    assert (kept.exists(), refused.value.detail["url"]) == (False, None)
    project.write("go", "")
    await bootstrap.export_runs(served.chosen(project), [], kept)
    await bootstrap.import_runs(other, [], kept)
    async with served.in_process(project, data=Path(".other")) as service:
        resumed = await service.http.post(f"/api/runs/{parent}/resume", json={})
        assert resumed.status_code == 200, resumed.text
        assert (await service.until(parent, "done", "failed"))["status"] == "done"
        listed = [run["run_id"] for run in (await service.http.get("/api/runs")).json()]

    assert sorted(listed) == sorted([parent, child["run_id"]])
    assert (project.root / "first").read_text() == "x\n"


GATED = {
    "schema": "1.7",
    "name": "gated",
    "description": "gated",
    "version": "1.0.0",
    "stages": [
        {
            "name": "one",
            "steps": [{"id": "first", "type": "bash", "command": "echo x >> first"}],
            "approval": {"required": True, "prompt": "Go on?"},
        },
        {"name": "two", "steps": [{"id": "second", "type": "bash", "command": "echo y >> second"}]},
    ],
}


async def test_an_imported_run_says_that_a_resume_takes_it_over(project: Project, tmp_path: Path) -> None:
    """Until a resume, no service executes an imported run: its explanation, orders, and the inbox of gates agree."""
    project.write(".control-room/recipes/amplifier/gated.yaml", json.dumps(GATED))
    project.write(".control-room/recipes/amplifier/slow.yaml", json.dumps(whole("slow", STEPS["child"][1:])))
    async with served.in_process(project) as service:
        asking, working = await service.start("gated"), await service.start("slow")
        await service.until(asking, "waiting")
        await service.until(working, step="second")
    kept, other = tmp_path / "kept", served.chosen(project, data=Path(".other"))
    await bootstrap.export_runs(served.chosen(project), [], kept)
    await bootstrap.import_runs(other, [], kept)
    async with served.in_process(project, data=Path(".other")) as service:
        why = {run_id: (await service.http.get(f"/api/runs/{run_id}/why")).json() for run_id in (asking, working)}
        orders = {run_id: (await service.show(run_id))["orders"] for run_id in (asking, working)}
        gates = (await service.http.get("/api/gates")).json()
        of_run = (await service.http.get(f"/api/gates?run_id={asking}")).json()
        paused = (await service.http.post(f"/api/runs/{working}/pause")).json()["detail"]
        for run_id in (asking, working):
            assert (await service.http.post(f"/api/runs/{run_id}/resume", json={})).status_code == 200
        await service.until(asking, "waiting")
        [gate] = (await service.http.get("/api/gates")).json()
        await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
        ended = await service.until(asking, "done", "failed")
        taken = (await service.show(working))["orders"]
        await service.http.post(f"/api/runs/{working}/cancel")

    told = "Nothing executes it: its folder was copied here, and a resume takes it over"
    assert [explained["sentence"].startswith(told) for explained in why.values()] == [True, True], why
    for run_id, explained in why.items():
        acts = {cause["act"] for cause in explained["chain"] if cause.get("act")}
        assert acts == {f"control-room runs resume {run_id}"}
    assert "at work" not in why[working]["sentence"]
    assert {refused["resume"] for refused in orders.values()} == {None}
    assert all(str(refused["pause"]) in paused for refused in orders.values())
    assert (gates, of_run) == ([], [])
    assert (ended["status"], (project.root / "first").read_text()) == ("done", "x\n")
    assert (taken["pause"], taken["resume"]) == (None, "it has not ended")


def codes_of(outcomes: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each run whether it is new, or the code of its refusal."""
    return {run_id: getattr(outcome, "code", outcome) for run_id, outcome in outcomes.items()}


async def test_a_run_that_cannot_be_copied_does_not_keep_back_the_others(project: Project, tmp_path: Path) -> None:
    """A run that is damaged, at work or differs, and a folder written by hand, are named; all others are copied."""
    async with served.in_process(project) as service:
        damaged, *sound = [(await service.run("quick"))["run_id"] for _ in range(3)]
    steps, kept = project.root / ".control-room" / "runs" / damaged / "steps.jsonl", tmp_path / "kept"
    steps.write_bytes(steps.read_bytes().replace(b'"key"', b'"kez"'))
    project.write(".control-room/runs/by_hand/run.json", json.dumps({"run_id": "by_hand", "status": "done"}))
    exported = await bootstrap.export_runs(served.chosen(project), [], kept)
    lock = os_disk.lock(str(project.root / ".control-room" / "runs" / sound[0]))
    busy = await bootstrap.export_runs(served.chosen(project), sound, tmp_path / "busy")
    assert lock is not None
    lock.release()
    (kept / "runs" / "unstarted").mkdir()
    other = served.chosen(project, data=Path(".other"))
    first = await bootstrap.import_runs(other, [], kept)
    (project.root / ".other" / "runs" / sound[0] / "control.jsonl").write_text("")
    again = await bootstrap.import_runs(other, [], kept)

    copied = dict.fromkeys(sound, True)
    assert codes_of(busy) == copied | {sound[0]: "run_busy"}
    assert codes_of(exported) == copied | {damaged: "journal_corrupt", "by_hand": "transfer_refused"}
    assert codes_of(first) == copied | {"unstarted": "transfer_refused"}
    assert codes_of(again) == {"unstarted": "transfer_refused", sound[0]: "run_exists", sound[1]: False}


async def test_an_import_replaces_the_row_of_a_former_run(project: Project, tmp_path: Path) -> None:
    """An index that still has the run's row of another store does not decide who continues the imported run."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
    kept, other = tmp_path / "kept", served.chosen(project, data=Path(".other"))
    await bootstrap.export_runs(served.chosen(project), [], kept)
    (project.root / ".other").mkdir()
    for file in (project.root / ".control-room").glob("index.db*"):
        shutil.copy(file, project.root / ".other" / file.name)
    await bootstrap.import_runs(other, [], kept)
    async with served.in_process(project, data=Path(".other")) as service:
        (row,) = (await service.http.get("/api/runs")).json()

    assert (row["run_id"], row["status"], row["owner"]) == (run_id, "done", "foreign")


def test_a_copy_reports_each_run(project: Project, tmp_path: Path) -> None:
    """The command names the runs that are not copied, counts all, and ends with the code of the first refusal."""
    folder = tmp_path / "kept"
    (folder / "runs" / "by_hand").mkdir(parents=True)
    ended = programs.control_room("runs", "import", folder, "--project", project.root, code=1)
    asked = programs.asked("runs", "import", folder, "--project", project.root, "none", "by_hand", code=4)

    assert "0 runs copied, 0 already there, 1 could not be copied" in ended.stdout
    assert "run by_hand has no start.json" in ended.stderr
    assert [(each["copied"], each["error"]["code"]) for each in asked] == [
        (False, "run_not_found"),
        (False, "transfer_refused"),
    ]
