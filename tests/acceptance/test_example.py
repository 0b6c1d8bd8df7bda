"""The example project, served over HTTP, with agents from a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance import programs, scripted_example

ARCHETYPES = ("planner", "writer", "editor", "continuity", "critic", "librarian")
REPLIES = {
    "brief": "Scene 21: Kael reaches Gull Rock at dusk.",
    "draft": "# The Arrival\n\nKael stepped off the boat.",
    "polish": "# The Arrival\n\nKael stepped from the boat onto the wet stone.",
    "continuity": '{"pass": true, "findings": []}',
    "critique": "The reader wants to know who lit the lamp.",
    "*": "Nothing to add.",
}
TASKS = {
    "creative_draft_scene": {
        "scene_path": "Story/Scenes/SCN-the-arrival.md",
        "canon_paths": ["Compendium/Characters/CHAR-kael.md"],
    },
    "analytical_prose": {"scene_path": "Story/Scenes/SCN-the-arrival.md"},
}


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Copy the example project and give it scripted agents."""
    return scripted_example.make(tmp_path / "example", ARCHETYPES, REPLIES, "test")


def test_scene_is_drafted_over_http(project: programs.Project):
    """The recipe of the specification runs its tools and agents to its definition of done, and writes the scene."""
    with programs.service(project) as service, service.http() as http:
        run_id = service.start_run(recipe_id="creative_draft_scene", args=TASKS["creative_draft_scene"])
        run = service.wait(run_id)
        text = http.get(f"/api/runs/{run_id}/cache/edited_draft").json()["text"]
        pointer = http.get(f"/api/runs/{run_id}/cache/canon_context").json()
        receipt = http.get(f"/api/audit/receipts/{pointer['receipt_id']}").json()

    assert run["status"] == "done", run["error"]
    assert list(dict.fromkeys(step["step_id"] for step in run["steps"]))[:8] == [
        "discover",
        "analyze_outline",
        "check_canon",
        "brief",
        "draft",
        "polish",
        "continuity",
        "critique",
    ]
    assert text == REPLIES["polish"]
    assert receipt["tool"] == "canon_checker"
    assert (project.path / "Drafts" / f"{run_id}.md").read_text().strip() == REPLIES["polish"]


def test_description_alone_finds_its_recipe(project: programs.Project):
    """A task without a recipe is routed by its description, and its path becomes the argument."""
    with programs.service(project) as service:
        run_id = service.start_run(
            recipe_id=None, args={}, description="prose review of Story/Scenes/SCN-the-arrival.md, please"
        )
        run = service.wait(run_id)

    assert run["recipe_id"] == "analytical_prose"
    assert run["task"]["initial_args"]["scene_path"] == "Story/Scenes/SCN-the-arrival.md"
    assert run["status"] == "done", run["error"]


def test_a_contradiction_is_proven(project: programs.Project):
    """The example's own recipe accepts only a quote from the scene, and a resume asks the agent again."""
    quote, scene = "Kael's green eyes searched the tower", "Story/Scenes/SCN-the-arrival.md"
    invented, proven = (f'His eyes change.\nEvidence: "{words}" ({scene})' for words in ("Kael's blue eyes", quote))
    with programs.service(project) as service, service.http() as http:
        project.write("replies.json", {"judge": invented})
        run_id = service.start_run(recipe_id="proven_contradictions", args={})
        rejected = service.wait(run_id)
        project.write("replies.json", {"judge": proven})
        http.post(f"/api/runs/{run_id}/resume")
        run = service.wait(run_id)
        steps = {line["key"]: line for line in http.get(f"/api/runs/{run_id}/steps").json()}

    assert (rejected["status"], rejected["error"]["code"]) == ("failed", "quote_not_found")
    assert rejected["error"]["detail"]["evidence"]["found"] == "Kael's"
    assert run["status"] == "done", run["error"]
    assert steps["judge.evidence"]["output"]["path"] == scene
