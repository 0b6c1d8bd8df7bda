"""Concurrency keys on Temporal: real servers, services and workers, on folders and on Postgres."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration import temporal_server

temporal_server.require()

from app import bootstrap  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration import served  # noqa: E402
from tests.integration.test_temporal_engine import ASKING, WORK, chosen  # noqa: E402
from tests.integration.test_temporal_kills import Workers  # noqa: E402
from tests.integration.test_temporal_machines import Machines, databases, machines  # noqa: E402, F401
from tests.integration.test_temporal_service import only_item  # noqa: E402

KEY = {"key": "book-one"}
RECIPES = {
    "mark": [{"id": "mark", "type": "bash", "command": "echo {{name}} >> marks"}],
    "long": [
        {"id": "begin", "type": "bash", "command": "echo {{name}} >> begun; while [ ! -e go ]; do sleep 0.05; done"},
        {"id": "end", "type": "bash", "command": "echo {{name}} >> ended"},
    ],
}


def equipped(project: projects.Project) -> projects.Project:
    """Give a project the recipes of these tests."""
    for name, steps in RECIPES.items():
        whole: dict[str, Any] = {
            "schema": "1.7",
            "name": name,
            "description": name,
            "version": "1.0.0",
            "context": {"name": ""},
        }
        whole |= {"steps": steps}
        project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
    project.write(".control-room/recipes/amplifier/asking.yaml", json.dumps({**ASKING, "context": {"name": ""}}))
    return project


def keyed(name: str, policy: str = "queue", limit: int = 1, **body: Any) -> dict[str, Any]:
    """Return the body of a start with the key of these tests."""
    return {"args": {"name": name}, "concurrency": KEY | {"policy": policy, "limit": limit}, **body}


async def waiting(service: served.Served, run_id: str) -> dict[str, Any]:
    """Wait until the list shows that a run waits for its key, and return its answer."""

    async def waits() -> bool:
        rows = (await service.http.get("/api/runs", params={"status": "pending"})).json()
        return [row["reason"] for row in rows if row["run_id"] == run_id] == ["concurrency"]

    await temporal_server.until(waits)
    return await service.show(run_id)


@pytest.fixture
def project(tmp_path: Path) -> projects.Project:
    """Create a project."""
    return equipped(projects.Project(tmp_path / "project"))


@pytest.fixture
async def service(project: projects.Project, temporal: temporal_server.DevServer) -> AsyncIterator[served.Served]:
    """Serve the project on folders, with a worker in this process."""
    await temporal_server.connected(temporal.address)
    given = {"engine": "temporal", "temporal": temporal.address}
    async with (
        served.on_a_port(project, **given) as serving,
        bootstrap.build(chosen(project, temporal.address), WORK),
    ):
        yield serving


async def test_runs_of_a_key_take_turns(service: served.Served):
    """A holder that waits for a person, or is paused, excludes all runs of its key except its own child.

    Waiting runs begin by priority and age, and a run that is cancelled while it waits performs no step.
    """
    first = await service.start("asking", **keyed("first"))
    await service.until(first, "waiting")
    second = await service.start("mark", **keyed("second"))
    third = await service.start("mark", **keyed("third"))
    urgent = await service.start("mark", **keyed("urgent", priority=5))
    await service.run("mark", args={"name": "beside"})
    for run_id in (second, third, urgent):
        shown = await waiting(service, run_id)
        assert (shown["status"], shown["reason"], shown["holder"]) == ("pending", "concurrency", first)
    why = (await service.http.get(f"/api/runs/{third}/why")).json()
    assert [(cause["run_id"], cause["kind"]) for cause in why["chain"]] == [(third, "concurrency"), (first, "gate")]
    assert f"Its concurrency key book-one is held by run {first}; its limit is 1" in why["chain"][0]["text"]

    await service.http.post(f"/api/runs/{first}/pause")
    await service.until(first, "paused")
    child = await service.run("mark", **keyed("child", parent_run_id=first))
    assert child["status"] == "done"
    await service.http.post(f"/api/runs/{second}/cancel")
    assert (await service.until(second, "cancelled"))["steps"] == []
    assert (await service.show(third))["reason"] == "concurrency"

    await service.http.post(f"/api/runs/{first}/unpause")
    await service.until(first, "waiting")
    gate = await only_item(service, "/api/gates")
    await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
    for run_id in (first, third, urgent):
        assert (await service.until(run_id, "done", "failed"))["status"] == "done"
    marks = (service.project.root / "marks").read_text().split()
    assert marks == ["beside", "child", "urgent", "third"]


@pytest.mark.parametrize("policy", ["cancel_waiting", "cancel_running"])
async def test_a_newer_run_cancels_earlier_ones(service: served.Served, policy: str):
    """`cancel_waiting` keeps runs that have begun, `cancel_running` does not; cancelled runs name the newer run."""
    first = await service.start("long", **keyed("first"))
    await service.until(first, step="begin")
    second = await service.start("mark", **keyed("second"))
    await waiting(service, second)
    third = await service.start("mark", **keyed("third", policy))
    cancelled = [first, second] if policy == "cancel_running" else [second]
    for run_id in cancelled:
        ending = (await service.until(run_id, "cancelled"))["ending"]
        assert ending["superseded_by"] == {"run_id": third, "key": "book-one"}
    if policy == "cancel_waiting":
        assert (await waiting(service, third))["holder"] == first
    service.project.write("go", "")

    assert (await service.until(third, "done", "failed"))["status"] == "done"
    assert (await service.show(first))["status"] == ("cancelled" if policy == "cancel_running" else "done")
    assert (service.project.root / "marks").read_text().split() == ["third"]


@pytest.mark.slow
async def test_runs_of_agent_recipes_wait_for_key_and_workspace(service: served.Served):
    """A run that waits for its key does not occupy the workspace it needs too, and each run ends in its turn."""
    alone: dict[str, Any] = {"exclusive_workspace": True}
    first = await service.start("long", **keyed("first"))
    await service.until(first, step="begin")
    second = await service.start("mark", **keyed("second", **alone))
    await waiting(service, second)
    beside = await service.run("mark", args={"name": "beside"}, **alone)
    assert beside["status"] == "done"
    service.project.write("go", "")

    assert (await service.until(second, "done", "failed"))["status"] == "done"


@pytest.mark.slow
async def test_kills_and_a_lost_server_let_no_second_run_begin(project: projects.Project, tmp_path: Path):
    """Runs of a key take turns even if their worker is killed and the server then loses its data."""
    own = temporal_server.DevServer(tmp_path)
    own.start()
    workers = Workers(project, own.address)
    try:
        await temporal_server.connected(own.address)
        async with served.on_a_port(project, engine="temporal", temporal=own.address) as service:
            killed = await workers.begin()
            first = await service.start("long", **keyed("first"))
            await service.until(first, step="begin")
            others = [await service.start("long", **keyed(name)) for name in ("second", "third")]
            for run_id in others:
                await waiting(service, run_id)
            killed.kill()
            await workers.begin()
            own.wipe()
            own.start()
            await temporal_server.connected(own.address)
            fourth = await service.start("mark", **keyed("fourth"))
            assert (await waiting(service, fourth))["holder"] == first
            service.project.write("go", "")
            for run_id in (first, *others, fourth):
                assert (await service.until(run_id, "done", "failed"))["status"] == "done"
    finally:
        workers.kill_all()
        own.stop()

    begun = dict.fromkeys((project.root / "begun").read_text().split())
    assert list(begun) == (project.root / "ended").read_text().split() == ["first", "second", "third"]


@pytest.mark.slow
async def test_services_and_workers_of_several_machines_share_keys(machines: Machines):  # noqa: F811
    """Of concurrent starts at two services one creates a run, and a killed service leaves complete orders.

    Two workers never execute two runs of a key at once.
    """
    equipped(machines.project)
    await temporal_server.connected(machines.address)
    shared: dict[str, Any] = {"workspaces": "shared"}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        one, two = [
            await enter(served.on_a_port(machines.project, **machines.given(name, **shared))) for name in ("", "b")
        ]
        await asyncio.gather(*(machines.work(name, CONTROL_ROOM_WORKSPACES="shared") for name in ("c", "d")))
        body = {"recipe_id": "long", **keyed("first", "reject")}
        answers = await asyncio.gather(
            *(each.http.post("/api/runs", json=body) for each in (one, two, one, two, one, two))
        )
        assert sorted(answer.status_code for answer in answers) == [201, *[409] * 5]
        [first] = [answer.json()["run_id"] for answer in answers if answer.status_code == 201]
        refused = [answer.json() for answer in answers if answer.status_code == 409]
        assert {(each["code"], each["facts"]["run_id"]) for each in refused} == {("concurrency_limit", first)}
        await two.until(first, step="begin")
        waits = [await each.start("long", **keyed(name)) for each, name in ((one, "second"), (two, "third"))]
        for run_id in waits:
            await waiting(one, run_id)

        killed = await machines.serve("e", CONTROL_ROOM_WORKSPACES="shared")
        newest = await _started_at(machines, killed, {"recipe_id": "mark", **keyed("last", "cancel_waiting")})
        for run_id in waits:
            ending = (await one.until(run_id, "cancelled"))["ending"]
            assert ending["superseded_by"]["run_id"] == newest
        assert (await waiting(two, newest))["holder"] == first
        one.project.write("go", "")
        for run_id in (first, newest):
            assert (await two.until(run_id, "done", "failed"))["status"] == "done"

    assert (machines.project.root / "begun").read_text().split() == ["first"]


async def _started_at(machines: Machines, process: Any, body: dict[str, Any]) -> str:  # noqa: F811
    """Start a run at a service in a process of its own, and kill the process as soon as it has answered."""
    port = machines.ports[process.pid]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        answer = await client.post("/api/runs", json=body)
    process.kill()
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])
