"""Parts of pages that need an agent, a fault or a setting of their own: plans, conferences, recipes, theme, copies."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.pages import Page
from tests.integration import conferring, served
from tests.integration import project as projects
from tests.integration.project import Project

pytestmark = pytest.mark.slow

CHIEF = {"id": "chief-001", "archetype": "chief", "tier": "t3", "backend": "said", "role": "The chief."}


def test_a_plan_goes_from_an_intent_to_done(chromium: Browser, project: Project) -> None:
    """The chief splits an intent into tasks; a person answers a question on the page, and the plan completes."""
    agents = json.loads((project.data / "agents.json").read_text(encoding="utf-8"))
    project.write(".control-room/agents.json", json.dumps(agents | {"agents": [*agents["agents"], CHIEF]}))
    first = {"id": 1, "description": "look around", "deps": [], "dod": "Seen", "scoping_question": "Which harbour?"}
    second = {"id": 2, "description": "look around again", "deps": [1], "dod": "Seen"}
    project.say("chief", text=json.dumps({"tasks": [first, second]}))
    with served.in_a_thread(project) as address, chromium.new_context(base_url=address) as context:
        page = Page(context).open("/plans")
        page.tab.get_by_label("What is to be done?").fill("Two looks at the harbour")
        page.button("Make a plan").click()
        page.tab.wait_for_url("**/plans/sp_*")
        page.shows("Which harbour?")
        # Tests of reviews cover definitions of done in words.
        page.api("PATCH", page.tab.url.replace("/plans/", "/api/sessions/"), {"review": "off"})
        page.tab.get_by_label("Which harbour?").fill("the northern one")
        page.button("Answer").click()
        expect(page.tab.get_by_label("Which harbour?")).to_have_count(0)
        page.button("Approve").click()
        page.tab.locator("dialog[open]").get_by_role("button", name="approve").click()
        page.button("Start").click()
        page.tab.locator("dialog[open]").get_by_role("button", name="start").click()
        page.shows("2 of 2 tasks done.")

        expect(page.tab.locator("svg .node-done")).to_have_count(2)
        assert page.complaints == []


def test_a_conference_shows_evidence_and_opinions_side_by_side(chromium: Browser, project: Project) -> None:
    """A conference asks all agents one question; each opinion has its verdict, and the evidence its receipt."""
    conferring.prepare(project)
    with served.in_a_thread(project) as address, chromium.new_context(base_url=address) as context:
        page = Page(context).open("/conferences")
        page.tab.get_by_label("What is the question?").fill("Does the arrival hold up?")
        page.button("Ask").click()
        page.tab.wait_for_url("**/conferences/2*")
        opinions = page.tab.locator("article.opinion")
        expect(opinions.filter(has_text="accepted")).to_have_count(3)
        expect(opinions.first).to_contain_text("It is early.")
        places = [box["y"] for each in opinions.all() if (box := each.bounding_box())]
        page.shows("prose_analyzer")
        page.tab.locator("summary", has_text="rcpt_").click()
        expect(page.tab.locator("details[open] pre").first).to_contain_text("scene_path")

        assert len(set(places)) < len(places)
        assert page.complaints == []


def test_a_broken_recipe_shows_its_line_and_missing_programs(project: Project, page: Page) -> None:
    """The list shows file and line of a broken recipe, and how to install a missing program."""
    project.write(".control-room/recipes/amplifier/broken.yaml", 'name: broken\nversion: "1.0.0"\nsteps: 3\n')
    page.open("/recipes")
    row = page.tab.locator("tbody tr", has_text="broken")
    expect(row).to_contain_text("invalid")
    expect(row).to_contain_text("broken.yaml:3")
    page.shows("Not ready:")
    page.shows("Install it")

    row = page.tab.locator("tbody tr", has_text="implement-and-review").first
    expect(row).to_contain_text("not ready")


def test_the_journal_of_a_run_is_verified_on_request(page: Page) -> None:
    """The badge shows whether the files of a run are valid."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.button("Verify").click()

    page.shows(re.compile(r"Journal\s*valid"))


def test_runs_that_a_run_started_are_listed(project: Project, page: Page) -> None:
    """The page of a run lists its children, and their pages lead back."""
    head = 'description: Start.\nversion: "1.0.0"\nschema: "1.7"\n'
    inner = "name: inner\n" + head + 'steps: [{id: count, type: bash, command: "true"}]\n'
    outer = "name: outer\n" + head + "steps: [{id: inner, type: recipe, recipe: inner, context: {}}]\n"
    project.write(".control-room/recipes/amplifier/inner.yaml", inner)
    project.write(".control-room/recipes/amplifier/outer.yaml", outer)
    run = page.api("POST", "/api/runs", {"recipe_id": "outer"})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.shows("Started by this run")
    page.tab.locator(".runs .row-link").click()
    page.tab.get_by_role("link", name=run["run_id"]).click()

    page.tab.wait_for_url(f"**/runs/{run['run_id']}")


def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    """The switch changes between system, light and dark; a reload keeps the choice."""
    page.open("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.tab.evaluate(ground)
    for name in ("system", "light"):
        page.tab.get_by_role("button", name=f"Theme: {name}").click()
    dark = page.tab.evaluate(ground)
    page.tab.reload()
    page.tab.get_by_role("button", name="Theme: dark").wait_for()

    assert page.tab.evaluate(ground) == dark != light


def test_ids_are_copied(page: Page) -> None:
    """The button beside an id copies it to the clipboard."""
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open(f"/runs/{run['run_id']}")
    page.tab.get_by_role("button", name=f"Copy {run['run_id']}").click()
    page.tab.locator(".id .icon-done").wait_for()

    assert page.tab.evaluate("navigator.clipboard.readText()") == run["run_id"]


def test_resume_names_the_step_whose_evidence_was_rejected(chromium: Browser, project: Project) -> None:
    """A run stops at a reply without the evidence that its step demands, and `Resume` names that step."""
    recipe = projects.draft("proven")
    recipe["phase_b"][0]["evidence"] = True
    project.add_recipe(recipe)
    agents = json.loads((project.data / "agents.json").read_text(encoding="utf-8"))
    for agent in agents["agents"]:
        agent["evidence"] = "any"
    project.write(".control-room/agents.json", json.dumps(agents))
    project.say("draft", text="It is dark.")
    with served.in_a_thread(project) as address, chromium.new_context(base_url=address) as context:
        page = Page(context).open("/runs")
        body = {"recipe_id": "proven", "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}}
        page.open(f"/runs/{page.api('POST', '/api/runs', body)['run_id']}")
        page.shows("This run continues at draft.")
        page.shows("The step draft runs again; if it calls an agent, that call is paid for again.")
        page.button("Resume").click()

        expect(page.tab.locator("dialog[open]")).to_contain_text("Performed next: draft draft.evidence")
        assert page.complaints == []
