"""After a power cut that took a row's last move, a run has ended all the same, for everybody and at once."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from app.storage.runs import disk_store
from tests.integration import project as projects
from tests.integration import served

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


async def made(project: projects.Project) -> tuple[str, str]:
    """Return a run at work, which takes the only capacity of the next service, and one whose row does not say that
    it is done.
    """
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        busy = await service.start("draft", args=ARRIVAL)
        await service.until(busy, step="draft")
        ended: str = (await service.run("quick"))["run_id"]
    with sqlite3.connect(project.data / "index.db") as index:
        index.execute("UPDATE runs SET status = 'running', completed_at = NULL WHERE run_id = ?", (ended,))
    index.close()
    return busy, ended


async def test_it_is_never_shown_as_unfinished(project: projects.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """List, detail, events and `why` agree before the service has opened it once more."""
    opening, later = asyncio.Event(), asyncio.Event()
    open_at_once = disk_store.DiskStore.open

    async def open_late(store: disk_store.DiskStore, run_id: str) -> Any:
        if run_id == ended:
            opening.set()
            await later.wait()
        return await open_at_once(store, run_id)

    busy, ended = await made(project)
    monkeypatch.setattr(disk_store.DiskStore, "open", open_late)
    async with served.in_process(project, max_running=1) as service:
        await asyncio.wait_for(opening.wait(), served.WAIT_SECONDS)
        rows = {run["run_id"]: run["status"] for run in (await service.http.get("/api/runs")).json()}
        shown, polled = await service.show(ended), await service.http.get(f"/api/runs/{ended}?wait=30")
        why, events = [await service.http.get(f"/api/runs/{ended}/{path}") for path in ("why", "events")]
        later.set()

        assert rows == {busy: "running", ended: "done"}
        assert shown["status"] == polled.json()["status"] == why.json()["status"] == "done"
        assert "run.ended" in events.text


async def test_it_is_completed_though_no_capacity_is_free(project: projects.Project) -> None:
    """It needs none, is not in the queue, and its row follows while another run takes all there is."""
    busy, ended = await made(project)
    async with served.in_process(project, max_running=1) as service:
        with sqlite3.connect(project.data / "index.db") as index:
            asked = "SELECT status FROM runs WHERE run_id = ?"
            async with asyncio.timeout(served.WAIT_SECONDS):
                while index.execute(asked, (ended,)).fetchone() != ("done",):
                    await served.moment()
        index.close()

        ready = (await service.http.get("/readyz")).json()
        assert (ready["running"], ready["queued"]) == (1, 0)
        assert (await service.show(busy))["status"] == "running"
