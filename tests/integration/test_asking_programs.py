"""Programs of a run that start further runs over HTTP without naming the run that they belong to."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.amplifier.recipe_harness import later, step

_ASKS = """
import json, sys, urllib.request
url, body = sys.argv[1] + "/api/runs", open("ask.json", "rb").read()
asked = urllib.request.Request(url + sys.argv[2], body, {"Content-Type": "application/json"})
run_id = json.load(urllib.request.urlopen(asked))["run_id"]
while json.load(urllib.request.urlopen(f"{url}/{run_id}?wait=0.05"))["status"] != "done": pass
print(run_id)
"""


def _asking(project: Project, name: str, url: str, body: dict[str, Any], address: str = "") -> None:
    """Add a recipe whose command starts a run in the same workspace, and waits for its end."""
    project.write("ask.py", _ASKS)
    project.write("ask.json", json.dumps(body))
    command = f"{sys.executable} -I -S ask.py {url} '{address}'"
    document = later(step("ask", type="bash", command=command, output="asked"), name=name)
    project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(document))


async def test_a_run_does_not_wait_for_itself(project: Project) -> None:
    """A run that a program starts is a child of the program's run, even without naming it.

    The child enters the workspace of its parent, and neither waits for the other.
    """
    async with served.on_a_port(project) as service:
        _asking(project, "top", str(service.http.base_url), {"recipe_id": "quick", "exclusive_workspace": True})
        shown = await service.run("top", exclusive_workspace=True)
        rows = (await service.http.get("/api/runs", params={"parent_run_id": shown["run_id"]})).json()

    assert shown["status"] == "done", shown
    assert [row["recipe_id"] for row in rows] == ["quick"]


async def test_a_fork_that_a_program_makes_is_below_its_run(project: Project) -> None:
    """A fork that a program makes is a child of the program's run, enters its workspace, and completes."""
    async with served.on_a_port(project) as service:
        source = await service.run("unguarded", exclusive_workspace=True)
        _asking(project, "top", str(service.http.base_url), {"from": "draft"}, f"/{source['run_id']}/fork")
        shown = await service.run("top", exclusive_workspace=True)
        (fork,) = (await service.http.get("/api/runs", params={"parent_run_id": shown["run_id"]})).json()

    assert shown["status"] == "done", shown
    assert (fork["recipe_id"], fork["status"], source["parent_run_id"]) == ("unguarded", "done", None)


async def test_a_fork_below_a_run_spends_and_ends_with_it(project: Project) -> None:
    """A fork with a parent counts in the parent's limits, is bound by the depth, and ends with the parent's cancel."""
    document = later(step("wait", type="bash", command="while [ ! -e go ]; do sleep 0.05; done"), name="top")
    project.write(".control-room/recipes/amplifier/top.yaml", json.dumps(document))
    async with served.in_process(project, max_depth=1) as service:
        source = (await service.run("unguarded"))["run_id"]
        top = await service.start("top", limits={"calls": 1})

        async def fork(**body: Any) -> dict[str, Any]:
            answer = await service.http.post(f"/api/runs/{source}/fork", json={"from": "draft"} | body)
            return {"status": answer.status_code} | dict(answer.json())

        first = await service.until((await fork(parent_run_id=top))["run_id"], "done", "failed")
        second = await service.until((await fork(parent_run_id=top))["run_id"], "paused", "done", "failed")
        deep = await fork(parent_run_id=first["run_id"])
        above = await fork(parent_run_id="20200101T000000Z-gone00", runs_above=2)
        unknown = await fork(parent_run_id="20200101T000000Z-gone00")
        preview = {"order": "fork", "from": "draft", "parent_run_id": first["run_id"]}
        told = (await service.http.post(f"/api/runs/{source}/preview", json=preview)).json()
        await service.http.post(f"/api/runs/{top}/cancel")
        ended = await service.until(second["run_id"], "cancelled")
        alone = await service.until((await fork())["run_id"], "done")

    assert [each["status"] for each in (first, second, ended)] == ["done", "paused", "cancelled"]
    assert (first["parent_run_id"], alone["parent_run_id"]) == (top, None)
    assert second["error"]["code"] == "budget_exhausted", second["error"]
    assert [(each["status"], each["code"]) for each in (deep, above, unknown)] == [
        (400, "depth_exceeded"),
        (400, "depth_exceeded"),
        (400, "unknown_parent"),
    ]
    assert (told["ok"], told["problems"][0]["code"]) == (False, "too_deep")


_ORDERS = """
import json, sys, urllib.request
for line in open("orders.txt"):
    url, body = line.split(" ", 1)
    asked = urllib.request.Request(sys.argv[1] + url, body.encode(), {"Content-Type": "application/json"})
    print(json.load(urllib.request.urlopen(asked)).get("session_id", ""))
"""


async def test_runs_of_a_program_are_below_its_run(project: Project) -> None:
    """A program's plan, trigger and webhook call lead to runs below the program's run."""
    async with served.on_a_port(project) as service:
        url = str(service.http.base_url)
        hook = (await service.http.post("/api/triggers", json={"recipe_id": "quick", "webhook": {}})).json()
        plan = json.dumps({"tasks": [{"description": "again", "recipe_id": "quick"}]})
        fire = f"/api/triggers/{hook['trigger_id']}/fire"
        project.write("orders.txt", f"/api/sessions {plan}\n{fire} {{}}\n{hook['address']} {{}}\n")
        project.write("orders.py", _ORDERS)
        command = f"{sys.executable} -I -S orders.py {url}"
        document = later(step("ask", type="bash", command=command, output="asked"), name="top")
        project.write(".control-room/recipes/amplifier/top.yaml", json.dumps(document))
        shown = await service.run("top")
        rows = (await service.http.get("/api/runs", params={"parent_run_id": shown["run_id"]})).json()
        plans = (await service.http.get("/api/sessions")).json()
        made = (await service.http.get(f"/api/sessions/{plans[0]['session_id']}")).json()
        named = await service.http.post(fire, json={"parent_run_id": shown["run_id"]})
        unknown = await service.http.post(fire, json={"parent_run_id": "20200101T000000Z-gone00"})
        below = (await service.show(named.json()["run_id"]))["parent_run_id"]

    assert shown["status"] == "done", shown
    assert [row["recipe_id"] for row in rows] == ["quick"] * 2
    assert (made["parent_run_id"], below) == (shown["run_id"], shown["run_id"])
    assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown_parent")
