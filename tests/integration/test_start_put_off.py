"""A delayed start: the service names a file or server that it cannot reach, tries again, and keeps running."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.integration import project as projects
from tests.integration import served
from tests.integration.read_faults import ReadFaults

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ReadFaults:
    """Return the switch for system calls that fail."""
    return ReadFaults(monkeypatch)


async def left_running(project: projects.Project) -> str:
    """Leave an unfinished run and its commit log, as a kill of the service would."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        log = project.data / "commits" / "1.log"
        content = log.read_bytes()
    log.write_bytes(content)
    project.say("draft", text=projects.REPLY)
    return run_id


async def until_ready(service: served.Served) -> dict[str, Any]:
    """Wait until the service accepts runs."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            answer = await service.http.get("/readyz")
            if answer.status_code == 200:
                shown: dict[str, Any] = answer.json()
                return shown
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("file", ["commits", "commits/1.log"])
async def test_a_commit_log_that_cannot_be_read_puts_the_start_off(
    project: projects.Project, faults: ReadFaults, caplog: pytest.LogCaptureFixture, file: str, code: int
) -> None:
    """The process lives, other requests are a 503 that names the file, and the unfinished run continues afterwards."""
    run_id = await left_running(project)
    faults.refuse(f"/{file}", code, ("open", "listdir"))
    async with served.in_process(project) as service:
        alive = await service.http.get("/healthz")
        refused = [await service.http.get(path) for path in ("/readyz", "/api/runs", f"/api/runs/{run_id}")]
        refused.append(await service.http.post("/api/runs", json={"recipe_id": "quick"}))

        assert alive.status_code == 200
        assert {answer.status_code for answer in refused} == {503}
        assert {answer.json()["code"] for answer in refused} == {"unreadable"}
        assert {answer.json()["facts"]["path"] for answer in refused} == {file}
        assert {answer.json()["facts"]["errno"] for answer in refused} == {errno.errorcode[code]}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert any(file in record.message for record in caplog.records if record.levelno == logging.WARNING)

        faults.lift()

        assert (await until_ready(service))["status"] == "ready"
        assert (await service.until(run_id, "done", "failed"))["status"] == "done"


@pytest.mark.parametrize("file", ["layout.json", "data_directory_id", "runs/.trash"])
async def test_any_other_file_of_the_start_that_fails_puts_it_off(
    project: projects.Project, faults: ReadFaults, file: str
) -> None:
    """A failing disk below the data directory does not end the service either."""
    async with served.in_process(project):
        pass
    faults.refuse(f"/{file}", errno.EIO)
    async with served.in_process(project) as service:
        answer = await service.http.get("/readyz")
        if answer.status_code == 503:
            assert answer.json()["code"] in {"starting", "unreadable"}
            assert "Input/output error" in answer.json()["detail"]

        faults.lift()

        assert (await until_ready(service))["status"] == "ready"


@pytest.mark.parametrize("file", [".control-room/agents.json", ".amplifier/agents/helper.md"])
async def test_agents_that_cannot_be_read_put_the_start_off(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """If a file of agents cannot be read, the start waits for it, and neither rejects nor ignores it."""
    project.write(".amplifier/agents/helper.md", "---\nname: helper\nbackend: said\n---\nYou help.")
    refused, read = [file], Path.open

    def opened(path: Path, *args: Any, **named: Any) -> Any:
        if any(str(path).endswith(each) for each in refused):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return read(path, *args, **named)

    monkeypatch.setattr(Path, "open", opened)
    async with served.in_process(project) as service:
        alive, answer = await service.http.get("/healthz"), await service.http.get("/readyz")

        assert alive.status_code == 200
        assert (answer.status_code, answer.json()["code"]) == (503, "starting")
        assert f"{file} cannot be used: EMFILE; it is tried again" in answer.json()["detail"]

        refused.clear()

        assert (await until_ready(service))["status"] == "ready"


async def test_a_database_that_is_away_puts_the_start_off(project: projects.Project) -> None:
    """The answer names Postgres without its password, and a stop of the waiting service ends it at once."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        url = f"postgresql://u:secret@127.0.0.1:{port}/d"
        async with served.in_process(project, database_url=url) as service:
            alive = await service.http.get("/healthz")
            answer = await service.http.get("/readyz")

    assert alive.status_code == 200
    assert (answer.status_code, answer.json()["code"]) == (503, "starting")
    assert f"postgresql://u:***@127.0.0.1:{port}/d cannot be reached" in answer.json()["detail"]
    assert "secret" not in answer.text
