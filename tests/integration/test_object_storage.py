"""Blobs and logs in object storage, as services and commands use it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests import object_server
from tests.acceptance import processes, programs
from tests.integration import served
from tests.integration.project import DISCOVER, Project, agent_step

pytest.importorskip("obstore", reason="the extra objects is not installed")

URL = "s3://runs/of/project"
LARGE = " ".join(f"The lantern {number} was dark." for number in range(10_000))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[object_server.ObjectServer]:
    """Return a server to which the environment refers."""
    with object_server.serving() as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def large(project: Project) -> Project:
    """Return a project with a recipe whose draft is too large for a journal line."""
    project.say("*", text=LARGE)
    step = agent_step("write", "writer", "write", ["discovery"], "draft")
    project.add_recipe({"recipe_id": "large", "label": "L", "phase_a": [dict(DISCOVER)], "phase_b": [step], "dod": []})
    return project


def command(project: Project, *words: str, url: str | None = URL, code: int = 0) -> str:
    """Execute a command on a project, check that its output contains no secrets, and return the output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CONTROL_ROOM_")}
    if url is not None:
        environ["CONTROL_ROOM_BLOBS_URL"] = url
    done = programs.Ended(*processes.run("app", *words, environ=environ, folder=project.root))
    assert done.returncode == code, done.stdout + done.stderr
    assert object_server.SECRET not in done.stdout + done.stderr
    return done.stdout + done.stderr


async def test_a_run_keeps_its_blobs_and_logs_in_a_bucket(large: Project, server: object_server.ObjectServer) -> None:
    """A run is shown from objects, and a copy by export or backup is complete without the bucket."""
    async with served.in_process(large, blobs_url=URL) as service:
        run_id = (await service.run("large"))["run_id"]
        shown = await service.http.get(f"/api/runs/{run_id}/cache/draft")
        counted = await service.http.post("/api/runs/collect", json={})
        refused = await service.http.post("/api/runs/collect", json={"older_than_seconds": 60})
        oldest = await service.http.post("/api/runs/collect", json={"older_than_seconds": 2**53})
    blobs = [name for name in server.objects if f"/runs/{run_id}/blobs/" in name]
    command(large, "runs", "export", "--to", "copied")
    command(large, "backup", "copied.tar.gz")

    assert LARGE in json.dumps(shown.json())
    assert len(blobs) == len(list((large.root / "copied" / "runs" / run_id / "blobs").iterdir())) >= 1
    assert list((large.data / "runs" / run_id / "blobs").iterdir()) == []
    assert (counted.status_code, counted.json()["unnamed"], counted.json()["dry_run"]) == (200, 0, True)
    assert counted.json()["objects"] >= len(blobs)
    assert refused.status_code == 400
    assert (oldest.status_code, oldest.json()["unnamed"]) == (200, 0)

    server.objects.clear()
    copy = Project(large.root / "copy")
    (copy.data / "agents.json").unlink()
    for name in ("recipes", "prompts"):
        (copy.data / name).rename(copy.root / name)
    (copy.data / "replies.json").unlink()
    command(copy, "restore", str(large.root / "copied.tar.gz"), url=None)
    imported = Project(large.root / "imported")
    command(imported, "runs", "import", str(large.root / "copied"), url=None)

    assert json.loads(command(copy, "runs", "verify", run_id, "--json", url=None))["ok"]
    assert json.loads(command(imported, "runs", "verify", run_id, "--json", url=None))["ok"]
    assert "is empty" in command(large, "runs", "verify", run_id, code=5)


async def test_commands_need_the_bucket_of_the_store(large: Project, server: object_server.ObjectServer) -> None:
    """Commands read and verify runs in the bucket; without it they are refused with its name."""
    async with served.in_process(large, blobs_url=URL) as service:
        run_id = (await service.run("large"))["run_id"]
    verified = json.loads(command(large, "runs", "verify", run_id, "--json"))
    collected = json.loads(command(large, "runs", "collect", "--older-than", "1h", "--yes", "--json"))
    refused = [
        command(large, *words, url=None, code=5)
        for words in (("runs", "list"), ("run", "quick"), ("backup", "never.tar.gz"))
    ]
    young = command(large, "runs", "collect", "--older-than", "1m", code=2)

    assert verified["ok"]
    assert (collected["removed"], collected["dry_run"]) == (0, False)
    assert all(f"are in {URL}: set CONTROL_ROOM_BLOBS_URL" in said for said in refused)
    assert "at least 1h" in young


async def test_a_wrong_address_keeps_the_service_from_starting(large: Project) -> None:
    """The refusal names the setting, and does not repeat possible secrets of the address."""
    for url in ("ftp://key:word@host/x", "s3://key:word@runs/x"):
        said = command(large, "serve", "--blobs", url, code=5)
        assert "--blobs" in said
        assert "word" not in said
