"""Tests of the bundled recipes: the seven of the table, complete, sound, and tested on the example project."""

from __future__ import annotations

import json

import pytest

from app.dialects.control_room import prompts as templates
from app.domain.states import RunState
from app.services import prompts
from tests import example_project
from tests.unit.dialects import bench, example

PROMPTS = example.ROOT / "recipes" / "prompts"
FINDINGS = set(example.TABLE) - {"creative_draft_scene", "analytical_prose"}
"""Recipes that find issues in the example project."""


@pytest.fixture
def project(tmp_path):
    """Return a copy of the example project."""
    return example_project.copy(tmp_path / "project")


def test_the_seven_recipes_of_the_table():
    """Ids, tools and agents are those of the table."""
    found = {
        path.stem: (
            [step["tool"] for step in example.document(path.stem)["phase_a"]],
            [step["agent_archetype"] for step in example.document(path.stem)["phase_b"]],
        )
        for path in example.RECIPES.glob("*.json")
    }

    assert found == example.TABLE
    assert all(example.document(name)["recipe_id"] == name for name in example.TABLE)


@pytest.mark.parametrize("tier", [None, "t1", "t3", "t5"])
@pytest.mark.parametrize("recipe_id", sorted(example.TABLE))
def test_a_recipe_is_sound_for_agents_of_every_tier(recipe_id, tier):
    """Parser and check find no flaw with the variants of any tier."""
    source = (example.RECIPES / f"{recipe_id}.json").read_text(encoding="utf-8")

    assert bench.DIALECT.flaws(source, recipe_id, example.bundled(tier)) == []


def test_the_agents():
    """Each archetype has an agent with a role contract, of the middle tier, on the local model."""
    agents = example.bundled().agents

    assert [agent.archetype for agent in agents] == [
        "planner",
        "writer",
        "editor",
        "continuity",
        "critic",
        "librarian",
        "chief",
        "architect",
        "security",
        "performance",
        "explorer",
        "analyzer",
        "fixer",
        "reviewer",
        "reporter",
    ]
    assert all(agent.role and agent.backend == "local" for agent in agents)
    assert {agent.archetype for agent in agents if agent.tier != "t3"} == {"chief"}


def test_every_template_is_used_and_every_file_is_listed():
    """Every template is used by a recipe, and every file is listed."""
    registry = prompts.load([PROMPTS])
    asked = {step["prompt_type"] for name in example.TABLE for step in example.document(name)["phase_b"]}
    listed = json.loads((PROMPTS / "prompts.json").read_text(encoding="utf-8"))
    files = {path for entry in listed["pipeline_templates"].values() for path in entry["variants"].values()}

    assert set(registry.templates) == asked
    assert files == {
        f"templates/{path.name}" for path in (example.ROOT / "recipes" / "prompts" / "templates").iterdir()
    }
    assert all({"t3", "t5"} <= set(template.variants) for template in registry.templates.values())


@pytest.mark.parametrize("recipe_id", sorted(example.TABLE))
def test_prompts_name_every_input_slot(recipe_id):
    """A prompt names every input slot of its step, since the agent sees no other."""
    registry = prompts.load([PROMPTS])
    for step in example.document(recipe_id)["phase_b"]:
        for tier, text in registry.templates[step["prompt_type"]].variants.items():
            named = {reference.root for reference in templates.named(text)}

            assert named <= set(step["input_slots"]), (step["step_id"], tier)
            assert named == set(step["input_slots"]) or tier == "t1", (step["step_id"], tier)


@pytest.mark.parametrize("recipe_id", sorted(example.TABLE))
async def test_a_recipe_works_on_the_example_project(recipe_id, project):
    """Every recipe runs from real tools to the definition of done, with prompts short enough for a small model."""
    pipeline = example.pipeline(recipe_id, project)

    assert await pipeline.run() is RunState.DONE, pipeline.error
    lines = pipeline.lines()
    assert [line["tool"] for line in lines if line["phase"] == "a"] == example.TABLE[recipe_id][0]
    asked = [line for line in lines if line["phase"] == "b" and line["agent_archetype"]]
    assert [line["agent_archetype"] for line in asked] == example.TABLE[recipe_id][1]
    assert pipeline.disk.files["run.json"]["total_steps"] == sum(map(len, example.TABLE[recipe_id]))
    sent = [pipeline.prompt(line["key"]) for line in asked]
    assert all("{{" not in text for text in sent)
    assert max(map(len, sent)) < 5000
    assert any(line["key"] == "finding[0]" for line in lines) is (recipe_id in FINDINGS)


@pytest.mark.parametrize("tier", ["t1", "t5"])
@pytest.mark.parametrize("recipe_id", sorted(example.TABLE))
async def test_a_recipe_works_with_agents_of_other_tiers(recipe_id, tier, project):
    """Micro-steps and rich prompts run to the end too."""
    pipeline = example.pipeline(recipe_id, project, tier)

    assert await pipeline.run() is RunState.DONE, pipeline.error
    assert any(".triage" in line["key"] for line in pipeline.lines()) is (tier == "t1")


async def test_a_draft_is_written_and_no_scene_is_touched(project):
    """The edited draft is written to a file named after the run; a second run writes another file."""
    before = {path: path.read_bytes() for path in project.rglob("*.md")}
    pipeline = example.pipeline("creative_draft_scene", project)
    pipeline.tables.replies["polish"] = "Dusk came early.\n"

    assert await pipeline.run() is RunState.DONE
    draft = project / "Drafts" / "20260210T143000Z-abcdef.md"
    assert draft.read_text(encoding="utf-8") == "Dusk came early.\n"
    assert {path: path.read_bytes() for path in project.rglob("*.md") if path != draft} == before
    assert pipeline.disk.recorded()[-2:] == ["commit.edited_draft", "dod[3]"]


async def test_a_scene_that_is_not_written_yet_can_be_drafted(project):
    """The beats come from the outline by the scene's title, and the facts from the canon."""
    pipeline = example.pipeline("creative_draft_scene", project, scene_path="Story/Scenes/SCN-low-water.md")

    assert await pipeline.run() is RunState.DONE
    assert "Mira" in pipeline.prompt("brief")
    assert "sealed letter" in pipeline.prompt("brief")


async def test_the_planted_contradiction_reaches_the_agents(project):
    """The prompts and the issues contain the tools' findings in the example."""
    pipeline = example.pipeline("structural_canon", project)
    await pipeline.run()

    assert "green" in pipeline.prompt("compare")
    assert "grey" in pipeline.prompt("compare")
    assert any(
        "green" in json.dumps(pipeline.asked(line["key"]).facts)
        for line in pipeline.lines()
        if "finding" in line["key"]
    )


async def test_without_the_outline_the_draft_fails_with_the_missing_file(project):
    """The run fails with the tool's error, whose detail names the file."""
    (project / "Story" / "SCN-outline.md").unlink()
    pipeline = example.pipeline("creative_draft_scene", project)

    assert await pipeline.run() is RunState.FAILED
    assert (pipeline.error["code"], pipeline.error["key"]) == ("file_not_found", "analyze_outline")
