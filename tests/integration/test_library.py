"""Recipes, the router, tools and agents over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration import project as projects
from tests.integration import served


async def test_recipes_are_listed(service: served.Served) -> None:
    """Every recipe is listed with its task patterns and its validity."""
    listed = {entry["recipe_id"]: entry for entry in (await service.http.get("/api/recipes")).json()}
    draft = listed["draft"]

    assert {"quick", "draft", "picky", "unguarded"} <= set(listed)
    assert (draft["label"], draft["dialect"], draft["layer"]) == ("Draft a scene", "control_room", "project")
    assert (draft["task_patterns"], draft["total_steps"]) == (["sketch scene", "jot down"], 4)
    assert (draft["valid"], draft["flaws"]) == (True, [])


async def test_bundled_recipes_can_be_started(service: served.Served) -> None:
    """The bundled recipes are listed, and none of them has a fault of its own."""
    listed = (await service.http.get("/api/recipes")).json()
    bundled = {entry["recipe_id"]: entry for entry in listed if entry["layer"] == "bundled"}

    assert {
        "creative_draft_scene",
        "analytical_consistency",
        "analytical_prose",
        "analytical_foreshadow",
        "analytical_scene_validate",
        "structural_canon",
        "structural_outline",
    } <= set(bundled)


async def test_a_recipe_is_shown_with_schema_and_graph(service: served.Served) -> None:
    """A recipe is shown with the schema of its arguments, its document, and a graph of nodes and edges."""
    shown = (await service.http.get("/api/recipes/draft")).json()
    nodes = {node["id"] for node in shown["graph"]["nodes"]}

    assert shown["args_schema"]["required"] == ["scene_path"]
    assert shown["document"]["recipe_id"] == "draft"
    assert {"discover", "analyze", "draft", "polish"} <= nodes
    assert all({edge["source"], edge["target"]} <= nodes for edge in shown["graph"]["edges"])


async def test_an_unknown_recipe_is_not_found(service: served.Served) -> None:
    """A recipe that does not exist is a 404 with the nearest names."""
    answer = await service.http.get("/api/recipes/drafts")

    assert (answer.status_code, answer.json()["code"]) == (404, "recipe_not_found")
    assert "draft" in answer.json()["facts"]["nearest"]


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_good_recipe_is_found_valid(service: served.Served, as_text: bool) -> None:
    """A recipe is validated as an object or as the text of its file, and is not stored."""
    whole = projects.draft("elsewhere")
    answer = await service.http.post("/api/recipes/validate", json={"recipe": json.dumps(whole) if as_text else whole})
    gone = await service.http.get("/api/recipes/elsewhere")

    assert answer.status_code == 200
    assert (answer.json()["valid"], answer.json()["recipe_id"], answer.json()["flaws"]) == (True, "elsewhere", [])
    assert answer.json()["args_schema"]["required"] == ["scene_path"]
    assert gone.status_code == 404


async def test_every_fault_of_a_recipe_is_reported_with_its_place(service: served.Served) -> None:
    """A recipe is answered with every fault and its place: repeated steps, unknown tools, roles and prompts."""
    broken = projects.draft("broken")
    broken["phase_a"] = [projects.DISCOVER, projects.DISCOVER | {"tool": "file_locater"}]
    broken["phase_b"][0] |= {"agent_archetype": "poet", "prompt_type": "rhyme", "input_slots": ["nothing"]}
    answer = (await service.http.post("/api/recipes/validate", json={"recipe": broken})).json()
    places = {flaw["path"] for flaw in answer["flaws"]}

    assert answer["valid"] is False
    assert {"$.phase_a[1].step_id", "$.phase_b[0].input_slots[0]"} <= places


async def test_names_unknown_to_the_project_are_reported(service: served.Served) -> None:
    """A recipe that parses is checked against the project's tools, agents and prompts."""
    broken = projects.draft("broken")
    broken["phase_b"][0] |= {"agent_archetype": "chief", "prompt_type": "rhyme"}
    broken["phase_a"][1]["tool"] = "prose_analyser"
    answer = (await service.http.post("/api/recipes/validate", json={"recipe": broken})).json()
    places = {flaw["path"] for flaw in answer["flaws"]}

    assert {"$.phase_a[1].tool", "$.phase_b[0].prompt_type"} <= places


async def test_a_syntax_error_is_reported_with_its_line(service: served.Served) -> None:
    """A text with a syntax error is answered with the line of the error."""
    answer = (await service.http.post("/api/recipes/validate", json={"recipe": '{\n "recipe_id": \n}'})).json()

    assert (answer["valid"], answer["recipe_id"], answer["args_schema"]) == (False, None, None)
    assert answer["flaws"][0]["line"] == 3


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"recipe": {}, "dialect": "yaml"}, "unknown_dialect"),
        ({"dialect": "control_room"}, "request_invalid"),
        ({"recipe": 3}, "request_invalid"),
        ({"recipe": {}, "file": "x"}, "request_invalid"),
    ],
)
async def test_a_wrong_validation_is_refused(service: served.Served, body: Any, code: str) -> None:
    """A request without a recipe, or of an unknown language, is refused with its place."""
    answer = await service.http.post("/api/recipes/validate", json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["flaws"][0]["path"].startswith("$.")


async def test_a_task_is_routed(service: served.Served) -> None:
    """The router answers with a recipe, the arguments it found and the reason, or that no recipe fits."""
    found = (await service.http.post("/api/route", json={"description": "jot down scene two"})).json()
    nothing = await service.http.post("/api/route", json={"description": "fix the plumbing"})

    assert (found["recipe_id"], found["routable"]) == ("draft", True)
    assert set(found) == {"recipe_id", "initial_args", "routable", "reason", "questions", "candidates"}
    assert [each["recipe_id"] for each in found["candidates"]] == ["draft"]
    assert nothing.status_code == 200
    assert (nothing.json()["recipe_id"], nothing.json()["routable"]) == (None, False)
    assert nothing.json()["reason"]


async def test_tools_are_listed_with_their_arguments(service: served.Served) -> None:
    """Every tool of the specification is listed with the JSON Schema of its arguments."""
    tools = {tool["name"]: tool for tool in (await service.http.get("/api/tools")).json()}

    assert {
        "file_locator",
        "outline_analyzer",
        "canon_checker",
        "consistency_checker",
        "prose_analyzer",
        "stakes_mapper",
        "reader_experience_simulator",
        "scene_draft_validator",
        "task_router",
    } <= set(tools)
    assert "search_criteria" in tools["file_locator"]["args_schema"]["properties"]
    assert tools["file_locator"]["description"]


@pytest.mark.model
async def test_a_working_agent_is_listed_with_its_run_and_step(service: served.Served) -> None:
    """An agent that works on a prompt is `processing`, with its run and step; the others are idle."""
    service.project.say("draft", hang=True)
    run_id = await service.start("unguarded")
    await service.until(run_id, step="draft")
    agents = {agent["id"]: agent for agent in (await service.http.get("/api/agents")).json()}
    await service.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")
    afterwards = {agent["id"]: agent for agent in (await service.http.get("/api/agents")).json()}

    assert (agents["writer-1"]["state"], agents["writer-1"]["run"]) == ("processing", run_id)
    assert agents["writer-1"]["key"] == "draft"
    assert (agents["editor-1"]["state"], agents["editor-1"]["run"]) == ("idle", None)
    assert agents["writer-1"]["role"] == "The writer."
    assert afterwards["writer-1"]["state"] == "idle"
    assert {agent["fault"] for agent in afterwards.values()} == {None}


async def test_files_that_an_argument_could_name_are_listed(service: served.Served) -> None:
    """The visible files of the working folder are listed by path; a folder outside the project is refused."""
    service.project.write("Story/Notes/Übersicht.md", "notes")
    service.project.write("Story/.hidden/secret.md", "no")
    every = (await service.http.get("/api/files")).json()
    some = (await service.http.get("/api/files", params={"q": "übersicht"})).json()
    below = (await service.http.get("/api/files", params={"working_dir": "Story/Notes"})).json()
    outside = await service.http.get("/api/files", params={"working_dir": "/etc"})
    missing = await service.http.get("/api/files", params={"working_dir": "Story/none"})

    assert some == {"files": ["Story/Notes/Übersicht.md"], "truncated": False}
    assert below == {"files": ["Übersicht.md"], "truncated": False}
    assert set(some["files"]) < set(every["files"])
    assert not [path for path in every["files"] if "secret" in path or path.startswith(".control-room")]
    assert (outside.status_code, outside.json()["code"]) == (400, "working_dir_refused")
    assert (missing.status_code, missing.json()["code"]) == (400, "working_dir_missing")
