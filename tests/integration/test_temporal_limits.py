"""Limits of runs on Temporal: no worker lets a run exceed them, and a raised limit continues the run."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap, settings  # noqa: E402
from app.services import budgets, run_reader  # noqa: E402
from app.temporal import messages, slices, worker  # noqa: E402
from app.worker import shared_ledger  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration import served  # noqa: E402
from tests.integration.test_budgets import DRAFT, USAGE  # noqa: E402
from tests.integration.test_temporal_engine import WORK, chosen  # noqa: E402
from tests.integration.test_temporal_machines import Machines, databases, machines  # noqa: E402, F401

BLOCKED = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done"
RECIPES: dict[str, Any] = {
    "long": [{"id": f"s{number}", "type": "bash", "command": "true"} for number in range(3)]
    + [{"id": "block", "type": "bash", "command": BLOCKED}],
    "above": [{"id": "below", "type": "recipe", "recipe": "middle"}],
    "middle": [{"id": "below", "type": "recipe", "recipe": "long"}],
}


class Served:
    """Two services of a project, and the settings of two workers."""

    def __init__(self, one: served.Served, two: served.Served, workers: list[settings.Settings]) -> None:
        self.one = one
        self.two = two
        self.workers = workers


EACH_SLOWLY = pytest.mark.parametrize(
    "both", ["folders", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
async def both(
    request: pytest.FixtureRequest,
    machines: Machines,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Served]:
    """Serve a project with two workers: on folders of one machine, or on Postgres for several."""
    monkeypatch.setattr(budgets, "LOOK_SECONDS", 1.0)
    monkeypatch.setattr(run_reader, "COUNTED_SECONDS", 0.0)
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.0)
    machines.project.say("*", text=projects.REPLY, usage=USAGE)
    for name, steps in RECIPES.items():
        whole = {"schema": "1.7", "name": name, "description": name, "version": "1.0.0", "steps": steps}
        machines.project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
    await temporal_server.connected(machines.address)
    async with AsyncExitStack() as stack:
        if getattr(request, "param", "folders") == "folders":
            given = {"engine": "temporal", "temporal": machines.address}
            one = two = await stack.enter_async_context(served.in_process(machines.project, **given))
            workers = [chosen(machines.project, machines.address)] * 2
        else:
            one = await stack.enter_async_context(
                served.on_a_port(machines.project, **machines.given("one", workspaces="shared"))
            )
            two = await stack.enter_async_context(
                served.on_a_port(machines.project, **machines.given("two", workspaces="shared"))
            )
            workers = [machines.chosen(name, workspaces="shared") for name in "ab"]
        for each in workers:
            await stack.enter_async_context(bootstrap.build(each, WORK))
        yield Served(one, two, workers)


@EACH_SLOWLY
async def test_two_workers_keep_one_limit(both: Served) -> None:
    """Runs below a run keep within its calls on all workers; after a raise each continues to its end."""
    one, two = both.one, both.two
    parent = await one.start("asking", limits={"calls": 3})
    await one.until(parent, "waiting")
    below = [await one.start(**DRAFT, parent_run_id=parent) for _ in range(4)]
    shown = [await two.until(run_id, "paused", "done", "failed") for run_id in below]
    [paused, *_] = [run for run in shown if run["status"] == "paused"]
    stands = (await two.show(parent))["budget"]
    raised = await two.http.patch(f"/api/runs/{parent}/limits", json={"calls": 8})
    after = [await one.until(run_id, "done", "failed") for run_id in below]

    assert stands["used"]["calls"] == 3
    assert stands["left"] == {"calls": 0}
    detail = paused["error"]["detail"]
    assert (paused["reason"], paused["error"]["code"]) == ("budget_exhausted",) * 2
    assert (detail["budget"], detail["limit"]) == ({"kind": "run", "run_id": parent}, "calls")
    assert (detail["needed"]["calls"], detail["left"]) == (1, {"calls": 0})
    assert raised.json()["budget"]["limits"] == {"calls": 8}
    assert {run["status"] for run in after} == {"done"}
    assert (await one.show(parent))["budget"]["used"]["calls"] == 8


async def pids(both: Served, count: int) -> list[int]:
    """Wait until the blocking step has begun this number of times, and return its processes."""
    file = both.one.project.root / "pids"

    async def are_there() -> bool:
        return file.exists() and len(file.read_text().splitlines()) >= count

    await temporal_server.until(are_there)
    return [int(line) for line in file.read_text().split()]


async def is_gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def limit(service: served.Served, run_id: str, **limits: float | None) -> dict[str, Any]:
    """Change the limits of a run."""
    answer = await service.http.patch(f"/api/runs/{run_id}/limits", json=limits)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def replayed(both: Served, run_id: str) -> None:
    """Replay the histories of all workflows of a run."""
    client = await Client.connect(str(both.workers[0].engine.temporal))
    workflow_id = messages.workflow_id(run_id)
    async with bootstrap.build(both.workers[0], bootstrap.OpenMode(look_only=True)) as reader:
        replayer = worker.replayer(slices.Contents(reader.store))
        async for each in client.list_workflows(f"WorkflowId = '{workflow_id}'"):
            handle = client.get_workflow_handle(workflow_id, run_id=each.run_id)
            await replayer.replay_workflow(await handle.fetch_history())


@EACH_SLOWLY
@pytest.mark.parametrize("name", [pytest.param("wall_seconds", marks=pytest.mark.slow), "active_seconds"])
async def test_a_time_limit_cuts_a_step_in_flight_off(both: Served, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit interrupts a step in a further workflow, too; a raise repeats the step, and its time counts."""
    monkeypatch.setattr(messages, "STEPS_OF_A_HISTORY", 2)
    run_id = await both.one.start("long", limits={name: 3600})
    [pid] = await pids(both, 1)
    await limit(both.two, run_id, **{name: 1})
    paused = await both.one.until(run_id, "paused", "done", "failed")
    await temporal_server.until(functools.partial(is_gone, pid))
    detail = paused["error"]["detail"]
    raised = await limit(both.one, run_id, **{name: 3600})
    await pids(both, 2)
    both.one.project.write("go", "")
    done = await both.two.until(run_id, "done", "failed", "paused")
    await replayed(both, run_id)

    assert (paused["status"], paused["reason"], paused["error"]["code"]) == ("paused", "time_limit", "time_limit")
    assert (detail["run_id"], detail["limit"], detail["limit_seconds"]) == (run_id, name, 1)
    assert detail["used_seconds"] >= 1
    assert raised["budget"]["limits"] == {name: 3600}
    assert (done["status"], done["steps"][-1]["attempt"]) == ("done", 2)


@pytest.mark.slow
async def test_a_limit_of_active_time_is_reached_by_itself(both: Served) -> None:
    """A step is interrupted when the active time of its run reaches the limit."""
    run_id = await both.one.start("long", limits={"active_seconds": 1})
    paused = await both.one.until(run_id, "paused", "done", "failed")

    assert (paused["reason"], paused["error"]["detail"]["limit"]) == ("time_limit", "active_seconds")


async def test_a_limit_of_wall_time_reaches_a_run_that_waits(both: Served) -> None:
    """A run that waits at its gate pauses at its time limit, and asks again when the limit is raised."""
    run_id = await both.one.start("asking", limits={"wall_seconds": 1})
    paused = await both.two.until(run_id, "paused", "done", "failed")
    await limit(both.two, run_id, wall_seconds=None)
    waits = await both.one.until(run_id, "waiting", "done", "failed")

    assert (paused["reason"], waits["status"]) == ("time_limit", "waiting")


@pytest.mark.slow
async def test_runs_below_stop_with_the_run_that_has_taken_its_time(both: Served) -> None:
    """At any depth, runs below name the run that reached its limit, and continue when the limit is raised."""
    run_id = await both.one.start("above", limits={"wall_seconds": 3600})
    [pid] = await pids(both, 1)
    await limit(both.two, run_id, wall_seconds=1)
    await both.one.until(run_id, "paused", "done", "failed")
    await temporal_server.until(functools.partial(is_gone, pid))
    listed = {run["run_id"]: run for run in (await both.one.http.get("/api/runs")).json()}
    paused = [await both.two.until(each, "paused", "done", "failed") for each in listed]
    both.one.project.write("go", "")
    await limit(both.one, run_id, wall_seconds=3600)
    done = [await both.one.until(each, "done", "failed") for each in listed]

    assert len(paused) == 3
    assert {run["reason"] for run in paused} == {"time_limit"}
    assert {run["error"]["detail"]["run_id"] for run in paused} == {run_id}
    assert {run["status"] for run in done} == {"done"}
