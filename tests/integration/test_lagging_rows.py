"""Runs whose row lost its last change in a power cut: all requests show them as ended at once."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from app import bootstrap, errors
from app.domain import runs
from app.services import requests, run_reader
from app.storage.index.sql import index as sql_index
from app.storage.runs import disk_store, folder_log
from tests.integration import project as projects
from tests.integration import served

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


async def made(project: projects.Project) -> tuple[str, str]:
    """Return a working run, and a finished run whose row shows another state.

    The working run takes the only capacity of the next service.
    """
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        busy = await service.start("draft", args=ARRIVAL)
        await service.until(busy, step="draft")
        ended: str = (await service.run("quick"))["run_id"]
    _revert_row(project, ended)
    return busy, ended


def _revert_row(project: projects.Project, run_id: str) -> None:
    with sqlite3.connect(project.data / "index.db") as index:
        index.execute("UPDATE runs SET status = 'running', completed_at = NULL WHERE run_id = ?", (run_id,))
    index.close()


async def test_a_done_run_is_never_shown_as_unfinished(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """List, detail, events and `why` show the run as done before the service has opened it again."""
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


async def test_a_lagging_row_is_updated_without_capacity(project: projects.Project) -> None:
    """The row is updated without capacity and without the queue, while another run takes all capacity."""
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


async def test_an_ending_is_shown_only_after_its_row_is_written(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The detail does not show the end of a run of another process before that process has written its row."""
    moving, later = asyncio.Event(), asyncio.Event()
    move = folder_log.FolderLog.move

    async def move_late(log: folder_log.FolderLog, moved: runs.Transition) -> None:
        if moved.to.finished:
            moving.set()
            await later.wait()
        await move(log, moved)

    monkeypatch.setattr(folder_log.FolderLog, "move", move_late)
    async with served.in_process(project) as service, bootstrap.build(served.chosen(project)) as beside:
        begun = await beside.runs.start(requests.StartRequest(recipe_id="quick", owner="process"))
        await asyncio.wait_for(moving.wait(), served.WAIT_SECONDS)
        asked = asyncio.create_task(service.show(begun.run_id))
        await asyncio.wait({asked}, timeout=0.3)
        was_told = asked.done() and asked.result()["status"]
        (before,) = (await service.http.get("/api/runs")).json()
        later.set()
        shown = await asked
        (after,) = (await service.http.get("/api/runs")).json()

    assert (was_told, before["status"]) == (False, "running")
    assert (shown["status"], after["status"]) == ("done", "done")


async def test_a_run_is_opened_after_its_row_was_corrected(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose row is being corrected is not refused as if another process wrote it."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
    correcting, later = asyncio.Event(), asyncio.Event()
    move = sql_index.SqlIndex.move

    async def move_late(index: sql_index.SqlIndex, moved: runs.Transition) -> bool:
        correcting.set()
        await later.wait()
        return await move(index, moved)

    async with bootstrap.build(served.chosen(project)) as application:
        monkeypatch.setattr(sql_index.SqlIndex, "move", move_late)
        damage = errors.JournalCorrupt("damaged", detail={})
        declaring = asyncio.create_task(application.store.rechecks.declare_failed(run_id, damage))
        await asyncio.wait_for(correcting.wait(), served.WAIT_SECONDS)
        opening = asyncio.create_task(application.store.open(run_id))
        await asyncio.wait({opening}, timeout=0.3)
        was_refused = opening.done()
        later.set()
        log = await opening
        await log.close()

        assert (was_refused, await declaring) == (False, True)


@pytest.mark.parametrize("asked", ["list", "detail", "events"])
async def test_the_row_of_a_process_that_died_before_it_is_written(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """List and detail show the end of a run at once if its process died before it wrote the row."""
    async with served.in_process(project) as service:
        async with bootstrap.build(served.chosen(project)) as beside:
            ended = (await beside.runs.start(requests.StartRequest(recipe_id="quick", owner="process"))).run_id
            await service.until(ended, "done")
        _revert_row(project, ended)
        # A wait for the row would not end.
        monkeypatch.setattr(run_reader, "ENDING_SECONDS", 1e9)
        if asked == "detail":
            assert (await asyncio.wait_for(service.show(ended), served.WAIT_SECONDS))["status"] == "done"
        if asked == "events":
            assert "run.ended" in (await service.http.get(f"/api/runs/{ended}/events")).text
        (row,) = (await service.http.get("/api/runs")).json()

    assert row["status"] == "done"
