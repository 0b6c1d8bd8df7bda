"""Resumes that reach a step which runs another recipe: what its earlier run does then."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.integration import served
from tests.unit.dialects.amplifier.recipe_harness import later, staged

OWN = ".control-room/recipes/amplifier"
BEGIN = {"id": "begin", "type": "bash", "command": "echo begun"}
CHECK = {"id": "check", "type": "bash", "command": "test -e {{flag}}"}
SUB = {"id": "sub", "type": "recipe", "recipe": "child", "context": {"flag": "child.flag"}}


async def _begun(service: served.Served, parent: dict[str, Any], child: dict[str, Any]) -> str:
    for document in (parent, child):
        service.project.write(f"{OWN}/{document['name']}.yaml", json.dumps(document))
    run: dict[str, Any] = await service.run(parent["name"])
    assert run["status"] == "failed"
    return str(run["run_id"])


async def _resumed(service: served.Served, run_id: str, **body: Any) -> dict[str, Any]:
    answer = await service.http.post(f"/api/runs/{run_id}/resume", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = await service.until(run_id, "done", "failed")
    return found


async def _below(service: served.Served, run_id: str) -> list[tuple[str, list[str]]]:
    """Return the state of each run that a run has started, and the steps in its journal, the newest first."""
    found = (await service.http.get("/api/runs", params={"parent_run_id": run_id})).json()
    lines = [(await service.http.get(f"/api/runs/{run['run_id']}/steps")).json() for run in found]
    return [(run["status"], [line["key"] for line in of]) for run, of in zip(found, lines, strict=True)]


async def _first_below(service: served.Served, run_id: str) -> str:
    etag = ""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            params: dict[str, Any] = {"parent_run_id": run_id, "wait": 5 if etag else 0}
            answer = await service.http.get("/api/runs", params=params, headers={"If-None-Match": etag})
            if answer.status_code == 200:
                etag, found = answer.headers["etag"], answer.json()
                if found:
                    return str(found[0]["run_id"])


async def test_a_failed_run_that_is_reached_later_is_resumed(service: served.Served) -> None:
    """A resume from an earlier step resumes the failed run below when it reaches it, once, at its own failed step."""
    child = later({**BEGIN, "id": "first"}, CHECK, name="child", context={"flag": ""})
    run_id = await _begun(service, later(BEGIN, SUB, name="parent"), child)
    failed = await _resumed(service, run_id, **{"from": "begin"})
    again = await _below(service, run_id)
    service.project.write("child.flag", "")
    done = await _resumed(service, run_id, **{"from": "begin"})

    assert (failed["error"]["code"], done["status"]) == ("child_failed", "done")
    assert again == [("failed", ["first", "check", "check"])]
    assert await _below(service, run_id) == [("done", ["first", "check", "check", "check"])]


async def test_a_resume_from_a_done_run_executes_another_one(service: served.Served) -> None:
    """A resume performs a step that ran another recipe once more by a new run; a later resume keeps that one."""
    parent = later(SUB, {**CHECK, "id": "end", "command": "test -e end.flag"}, name="parent")
    run_id = await _begun(service, parent, later(BEGIN, name="child", context={"flag": ""}))
    before = await _below(service, run_id)
    failed = await _resumed(service, run_id, **{"from": "sub"})
    again = await _below(service, run_id)
    service.project.write("end.flag", "")
    done = await _resumed(service, run_id)

    assert (failed["error"]["key"], done["status"]) == ("end", "done")
    assert before == [("done", ["begin"])]
    assert again == await _below(service, run_id) == [("done", ["begin"])] * 2


async def test_a_run_without_its_result_is_executed_anew(service: served.Served) -> None:
    """A resume after a run below has ended without its result executes another one, of the mended recipe."""
    child = later(BEGIN, name="child", context={"flag": ""}, final_output="seen")
    child["steps"].append({**BEGIN, "id": "see", "condition": "{{flag}} == 'never'", "output": "seen"})
    run_id = await _begun(service, later({**SUB, "output": "made"}, name="parent"), child)
    child["steps"][1].pop("condition")
    service.project.write(f"{OWN}/child.yaml", json.dumps(child))
    done = await _resumed(service, run_id)

    assert done["status"] == "done", done["error"]
    assert await _below(service, run_id) == [("done", ["begin", "see"])] * 2


async def test_a_denied_run_that_is_reached_later_stays_denied(service: served.Served) -> None:
    """A denial in a run below counts again when a resume reaches that run."""
    stage = {"name": "look", "steps": [BEGIN], "approval": {"required": True, "prompt": "Well?"}}
    for document in (later(BEGIN, {**SUB, "context": {}}, name="parent"), staged(stage, name="child")):
        service.project.write(f"{OWN}/{document['name']}.yaml", json.dumps(document))
    run_id = await service.start("parent")
    await service.until(await _first_below(service, run_id), "waiting")
    (gate,) = (await service.http.get("/api/gates")).json()
    await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "deny"})
    await service.until(run_id, "failed")
    failed = await _resumed(service, run_id, **{"from": "begin"})

    assert (failed["error"]["code"], failed["error"]["key"]) == ("child_failed", "sub")
    assert [status for status, _ in await _below(service, run_id)] == ["failed"]


async def test_a_run_that_its_failed_parent_ended_names_it(service: served.Served) -> None:
    """A run that was cancelled because a sibling step failed explains this, and names the run to resume."""
    stage = {"name": "look", "steps": [BEGIN], "approval": {"required": True, "prompt": "Well?"}}
    fails = {"id": "fails", "type": "bash", "command": "until test -e fail.flag; do sleep 0.01; done; false"}
    both = {"id": "both", "parallel": True, "substeps": [{**SUB, "context": {}}, fails]}
    for document in (later(both, name="parent"), staged(stage, name="child")):
        service.project.write(f"{OWN}/{document['name']}.yaml", json.dumps(document))
    run_id = await service.start("parent")
    child = await _first_below(service, run_id)
    await service.until(child, "waiting")
    service.project.write("fail.flag", "")
    await service.until(run_id, "failed")
    await service.until(child, "cancelled")
    (cause,) = (await service.http.get(f"/api/runs/{child}/why")).json()["chain"]

    assert cause["text"] == f"It was cancelled, because run {run_id}, which started it, had failed"
    assert cause["act"] == f"control-room runs resume {run_id}"
