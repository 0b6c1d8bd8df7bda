"""Graphs over HTTP: the recipe that a run froze, with the state of each node; large graphs are cut off."""

from __future__ import annotations

import json

from app.cli import graph_text
from app.domain import graphs
from tests.integration import held as holding
from tests.integration import project as projects
from tests.integration import served
from tests.integration.test_showing import ARRIVAL


async def test_a_graph_shows_how_far_a_run_is(service: served.Served, held: holding.Held) -> None:
    """While an agent is called, its step is running, earlier steps are done, and later ones not reached."""
    service.project.say("draft", text=projects.REPLY, delay_seconds=holding.DELAY_SECONDS)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    answer = await service.http.get(f"/api/runs/{run_id}/graph")
    nodes = {node["id"]: node for node in answer.json()["nodes"]}

    assert (nodes["discover"]["status"], nodes["discover"]["visits"]) == ("done", 1)
    assert (nodes["draft"]["status"], nodes["draft"]["key"]) == ("running", "draft")
    assert (nodes["polish"]["status"], nodes["polish"]["visits"]) == (None, 0)
    assert (nodes["draft"]["kind"], nodes["draft"]["phase"]) == ("agent", "b")
    assert answer.json()["truncated"] is None

    same = await service.http.get(f"/api/runs/{run_id}/graph", headers={"If-None-Match": answer.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")

    held.release()
    await service.until(run_id, "done")
    after = await service.http.get(f"/api/runs/{run_id}/graph", headers={"If-None-Match": answer.headers["etag"]})
    ended = {node["id"]: node["status"] for node in after.json()["nodes"]}

    assert after.status_code == 200
    assert set(ended.values()) == {"done"}


async def test_a_graph_is_that_of_the_frozen_recipe(service: served.Served) -> None:
    """A recipe that changes after a run began changes its own graph, but not that of the run."""
    run_id = (await service.run("quick"))["run_id"]
    before = (await service.http.get(f"/api/runs/{run_id}/graph")).json()
    changed = projects.quick()
    changed["phase_a"].append(projects.tool_step("later", "file_locator", "more", search_criteria="x"))
    service.project.add_recipe(changed)
    of_recipe = (await service.http.get("/api/recipes/quick/graph")).json()

    assert "later" in {node["id"] for node in of_recipe["nodes"]}
    assert {node["status"] for node in of_recipe["nodes"]} == {None}
    assert (await service.http.get(f"/api/runs/{run_id}/graph")).json() == before
    assert "later" not in {node["id"] for node in before["nodes"]}
    assert (await service.http.get("/api/recipes/quick")).json()["graph"] == of_recipe


async def test_the_graph_of_a_resumed_run_has_only_valid_steps(service: served.Served) -> None:
    """After a resume the nodes show only the valid steps, as in a run without the others."""
    run_id = (await service.run("picky", args={"scene_path": "a.md", "other_path": "b.md"}))["run_id"]
    failed = (await service.http.get(f"/api/runs/{run_id}/graph")).json()
    await service.http.post(f"/api/runs/{run_id}/resume", json={})
    await service.until(run_id, "failed")
    again = (await service.http.get(f"/api/runs/{run_id}/graph")).json()

    assert "failed" in {node["status"] for node in failed["nodes"]}
    assert again["nodes"] == failed["nodes"]


async def test_a_check_that_does_not_hold_has_failed(service: served.Served) -> None:
    """The detail shows that a check of the definition of done did not pass, and the graph shows it as failed."""
    demanding = projects.quick() | {"recipe_id": "demanding", "dod": [{"check": "file_exists", "path": "none.md"}]}
    service.project.add_recipe(demanding)
    run = await service.run("demanding")
    graph = (await service.http.get(f"/api/runs/{run['run_id']}/graph")).json()

    assert {step["key"]: step.get("holds") for step in run["steps"]} == {
        "discover": None,
        "dod[0]": False,
        "dod[0].issue": None,
    }
    assert {node["id"] for node in graph["nodes"] if node["status"] == "failed"} == {"dod[0]"}


async def test_an_unknown_graph_is_refused(service: served.Served) -> None:
    """Unknown runs and recipes are 404, and a recipe that cannot be parsed is refused with its flaws."""
    (service.project.root / ".control-room" / "recipes" / "broken.json").write_text("{", encoding="utf-8")
    unknown = await service.http.get("/api/runs/20260101T000000Z-abcdef/graph")
    nowhere = await service.http.get("/api/recipes/nothing/graph")
    broken = await service.http.get("/api/recipes/broken/graph")

    assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "recipe_not_found")
    assert (broken.status_code, broken.json()["code"]) == (400, "recipe_invalid")
    assert broken.json()["flaws"]


async def test_a_huge_graph_is_cut_off(service: served.Served) -> None:
    """A recipe with more nodes than an answer may contain shows the first ones and their total number."""
    inner = [{"name": f"S{number}", "command": ["true"]} for number in range(900)]
    loops = [{"name": f"L{number}", "for_each": {"items": ["x"], "steps": inner}} for number in range(3)]
    folder = service.project.root / ".control-room" / "recipes" / "orchestrate"
    folder.mkdir()
    (folder / "huge.yaml").write_text(json.dumps({"version": "1.1", "steps": loops}), encoding="utf-8")
    answer = await service.http.get("/api/recipes/huge/graph")
    found = answer.json()

    assert answer.status_code == 200, answer.text[:500]
    assert len(found["nodes"]) == graphs.MOST_NODES
    assert found["truncated"] == {"nodes": 2703, "edges": 2702}
    known = {node["id"] for node in found["nodes"]}
    assert {end for edge in found["edges"] for end in (edge["source"], edge["target"])} <= known
    assert f"of {found['truncated']['nodes']} nodes" in graph_text.graph(found)


async def test_the_text_of_a_graph_names_each_state(service: served.Served) -> None:
    """The text has a line for each node, with its state."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    found = (await service.http.get(f"/api/runs/{run_id}/graph")).json()
    lines = graph_text.graph(found).splitlines()

    assert len(lines) == len(found["nodes"])
    assert "done     draft: writer (agent)" in lines


def test_text_of_others_steers_no_terminal() -> None:
    """Control characters in labels and ids are made visible, and taken branches are drawn differently."""
    node = {"id": "a\x1b[2J", "label": "a\x1b[2J", "kind": "agent", "group": None, "status": None, "visits": 3}
    edge = {"source": "a\x1b[2J", "target": "b\nc", "label": "x\u202e", "kind": "outcome"}
    edges = [edge | {"taken": True}, edge | {"taken": False, "label": "y"}]
    text = graph_text.graph(json.loads(json.dumps({"nodes": [node], "edges": edges, "truncated": None})))

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) == 3
    assert "=> b" in text
    assert "y -> b" in text
    assert "x3" in text
