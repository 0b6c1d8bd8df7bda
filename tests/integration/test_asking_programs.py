"""Programs of a run that ask the service for further runs over HTTP, without saying which run they work for."""

from __future__ import annotations

import json
import sys

from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.amplifier.recipe_harness import later, step

_ASKS = """
import json, sys, urllib.request
url, body = sys.argv[1] + "/api/runs", {"recipe_id": sys.argv[2], "exclusive_workspace": True}
asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
run_id = json.load(urllib.request.urlopen(asked))["run_id"]
while json.load(urllib.request.urlopen(f"{url}/{run_id}?wait=0.05"))["status"] != "done": pass
print(run_id)
"""


def _asking(project: Project, name: str, below: str, url: str) -> None:
    """Add a recipe whose command starts a run of another recipe in the same workspace, and waits for its end."""
    project.write("ask.py", _ASKS)
    command = f"{sys.executable} -I -S ask.py {url} {below}"
    document = later(step("ask", type="bash", command=command, output="asked"), name=name)
    project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(document))


async def test_a_run_does_not_wait_for_itself(project: Project) -> None:
    """A run that a program starts without naming its own is that one's child: it enters its workspace, and neither
    waits for the other.
    """
    async with served.on_a_port(project) as service:
        _asking(project, "top", "quick", str(service.http.base_url))
        shown = await service.run("top", exclusive_workspace=True)
        rows = (await service.http.get("/api/runs", params={"parent_run_id": shown["run_id"]})).json()

    assert shown["status"] == "done", shown
    assert [row["recipe_id"] for row in rows] == ["quick"]


_ORDERS = """
import json, sys, urllib.request
for line in open("orders.txt"):
    url, body = line.split(" ", 1)
    asked = urllib.request.Request(sys.argv[1] + url, body.encode(), {"Content-Type": "application/json"})
    print(json.load(urllib.request.urlopen(asked)).get("session_id", ""))
"""


async def test_what_a_program_starts_is_below_its_run(project: Project) -> None:
    """A plan that a program makes, a trigger that it fires and a webhook that it calls lead to runs below its own."""
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
