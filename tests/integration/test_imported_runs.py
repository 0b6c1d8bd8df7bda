"""Imported runs that had not ended: they continue on request, and repeat no recorded step."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app import bootstrap, errors
from tests.integration import served
from tests.integration.project import Project

STEPS = {
    "child": [
        {"id": "first", "type": "bash", "command": "echo x >> first"},
        {"id": "second", "type": "bash", "command": "echo y >> second; test -e go || sleep 300"},
    ],
    "parent": [{"id": "below", "type": "recipe", "recipe": "child"}],
}


async def test_an_imported_parent_continues_its_child(project: Project, tmp_path: Path) -> None:
    """An imported parent finds the child that it had started; runs are not copied while their service runs."""
    for name, steps in STEPS.items():
        whole = {"schema": "1.7", "name": name, "description": name, "version": "1.0.0", "steps": steps}
        project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
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
