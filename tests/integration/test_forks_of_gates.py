"""Forks of runs with gates: answers are taken over, unless every run needs approvals of its own."""

from __future__ import annotations

import functools
import json

from app.engine import fork_replay
from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.amplifier import recipe_harness as flows


async def test_answers_are_taken_over_or_asked_again(project: Project) -> None:
    """Steps after a gate are taken over with its answer, unless the run needs approvals of its own."""
    project.say("*", text="The lantern was dark.")
    first = {"name": "one", "steps": [flows.step("a", agent="writer")]}
    gate = {"approval": {"required": True, "prompt": "Go on?"}}
    document = flows.staged(first | gate, {"name": "two", "steps": [flows.step("b", agent="writer")]})
    project.write(".control-room/recipes/amplifier/small.yaml", json.dumps(document))
    async with served.in_process(project) as service:
        source = await service.start("small")
        await service.until(source, "waiting")
        (asked,) = (await service.http.get(f"/api/gates?run_id={source}")).json()
        await service.http.post(f"/api/gates/{asked['gate_id']}", json={"decision": asked["options"][0]})
        ended = await service.until(source, "done", "failed")
        answer = (await service.http.post(f"/api/runs/{source}/fork", json={"from": "b"})).json()
        fork = await service.until(answer["run_id"], "done", "failed", "waiting")
        runs = service.app.state.services.runs  # type: ignore[union-attr]
        loaded = await runs._store.read(source)
        again = await fork_replay.replayed(
            loaded.start,
            fork_replay.living(loaded),
            runs._drivers["amplifier"],
            functools.partial(runs._store.read_blob, source),
            asks_again=True,
        )

    assert ended["status"] == fork["status"] == "done", (ended["error"], fork["error"])
    assert answer["taken_over"] == 2
    assert [record.key for record in again.kept] == ["a"]
    assert again.differs is not None
    assert "approvals of their own" in again.differs.message


async def test_changed_limits_are_those_of_forks_and_previews(project: Project) -> None:
    """A fork has the current limits of its source, not those of its start, and the preview of a resume uses them."""
    project.say("*", text="The lantern was dark.", usage={"input_tokens": 5, "output_tokens": 7, "cost_usd": 0.5})
    gate = {"approval": {"required": True, "prompt": "Go on?"}}
    first = {"name": "one", "steps": [flows.step("a", agent="writer")]}
    document = flows.staged(first | gate, {"name": "two", "steps": [flows.step("b", agent="writer")]})
    project.write(".control-room/recipes/amplifier/small.yaml", json.dumps(document))
    async with served.in_process(project) as service:
        source = await service.start("small", limits={"calls": 7, "tokens": 900})
        await service.until(source, "waiting")
        await service.http.patch(f"/api/runs/{source}/limits", json={"cost_usd": 5.0, "tokens": None})
        fork = (await service.http.post(f"/api/runs/{source}/fork", json={})).json()["run_id"]
        await service.http.post(f"/api/runs/{source}/cancel")
        await service.until(source, "cancelled")
        orders = [{"order": order} for order in ("fork", "resume")]
        previews = [(await service.http.post(f"/api/runs/{source}/preview", json=order)).json() for order in orders]

    start = json.loads((project.data / "runs" / fork / "start.json").read_text())
    assert start["limits"] == {"cost_usd": 5.0, "calls": 7}
    assert [preview["cost_usd_at_most"] for preview in previews] == [5.0, 4.5]
