"""One smoke test for each page, in a real browser, against a real service with scripted agents that all tests share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL, PAGES
from tests.integration import served
from tests.integration.project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return the project that all smoke tests share."""
    project = Project(tmp_path_factory.mktemp("smokes") / "project")
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    return project


@pytest.fixture(scope="module")
def site(project: Project) -> Iterator[str]:
    """Return the address of the service that all smoke tests share."""
    with served.in_a_thread(project) as address:
        yield address


def test_every_page_opens(page: Page) -> None:
    """A page opens by its address without an error in the console, and the accessibility checker finds no violation."""
    page.tab.goto("/")
    page.load_axe()
    for path, heading in PAGES.items():
        page.tab.evaluate(
            "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path
        )

        expect(page.heading()).to_have_text(heading)
        expect(page.tab.locator("nav.rail")).to_be_visible()
        assert page.violations() == [], path


def test_a_run_is_started_from_the_form_and_watched(page: Page) -> None:
    """The form of a recipe starts a run; the run's page shows each step as it ends, and the output."""
    page.open("/start")
    page.tab.get_by_role("link", name="quick", exact=True).click()
    page.tab.locator("#start").click()

    page.tab.wait_for_url("**/runs/*")
    page.shows("It is done.")
    expect(page.tab.locator(".steps [data-row]").first).to_contain_text("done")
    expect(page.tab.locator("svg .node-done").first).to_be_visible()


def test_a_gate_is_answered_in_one_tab_and_seen_in_another(page: Page) -> None:
    """A question waits in the inbox; its answer needs confirmation, and every other tab shows the result."""
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    other = Page(page.tab.context).open(f"/runs/{run['run_id']}")
    other.shows("It waits for an answer")
    page.open("/inbox").shows("Go on?")
    page.tab.get_by_label("Message (optional)").fill("well done")
    page.button("approve").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="approve").click()

    page.shows("Nothing waits for you.")
    other.shows("It is done.")
    assert other.complaints == []


def test_a_failed_run_shows_its_reason_and_can_be_resumed(project: Project, page: Page) -> None:
    """The page of a failed run names the reason; once the reason is removed, a confirmed resume completes the run."""
    scene = "Story/Scenes/SCN-the-arrival.md"
    run = page.api("POST", "/api/runs", {"recipe_id": "picky", "args": {"scene_path": scene, "other_path": scene}})
    page.open(f"/runs/{run['run_id']}").shows(re.compile("Why it failed.+SCN-never"))
    check = page.tab.locator(".steps [data-row]", has_text="dod[0]")
    expect(check.first).to_contain_text("failed")
    expect(page.tab.locator("svg .node-failed")).to_contain_text("dod[0]")
    project.write("Story/Scenes/SCN-never.md", "Never.")
    page.button("Resume").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Resume").click()

    page.shows("It is done.")


@pytest.mark.slow
def test_the_list_is_there_after_two_requests(page: Page) -> None:
    """The first rows of the list need one request, beside the stream that keeps the list up to date."""
    page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.tab.add_init_script(
        "new MutationObserver((_, all) => document.querySelector('.runs [data-row]') && (all.disconnect(),"
        " window.asked = performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)"
        ".filter((path) => path.startsWith('/api/')))).observe(document, {childList: true, subtree: true})"
    )
    sent: list[str] = []
    page.tab.on("request", lambda request: sent.append(request.url))
    page.open("/runs")
    # The policy of the pages prevents Playwright from evaluating an expression while it waits.
    expect(page.tab.locator(".runs [data-row]").first).to_be_visible()
    asked = [url for url in sent if "/api/" in url]

    assert set(page.tab.evaluate("window.asked")) <= {"/api/runs", "/api/events"}
    assert len({url.split("?")[0] for url in asked}) == 2


@pytest.mark.slow
def test_an_unknown_price_is_never_zero(project: Project, page: Page) -> None:
    """The page of costs adds up the reported costs, and shows the others as unknown."""
    project.say("draft", text="It is dark.", usage={"input_tokens": 700, "output_tokens": 50, "cost_usd": 0.25})
    project.say("polish", text="It was dark.", usage={"input_tokens": 90, "output_tokens": 10, "cost_usd": None})
    scene = "Story/Scenes/SCN-the-arrival.md"
    run = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": scene}})
    page.open(f"/runs/{run['run_id']}?step=draft").shows("It is done.")
    page.shows(re.compile("Tokens750Cost.0.25"), within=".drawer")
    page.open("/cost?by=recipe")
    expect(page.tab.locator("tbody tr")).to_have_text(re.compile(r"draft\D*1\D*2\D*790\D*60\D*≥ \$0\.25unknown1"))
    page.shows("Calls2")
    page.open("/cost?by=agent")

    expect(page.tab.locator("tbody tr").first).to_contain_text("$0.25")
    expect(page.tab.locator("tbody tr").last).to_contain_text("unknown")
    expect(page.tab.locator("svg.chart")).to_contain_text("unknown")


def test_a_plan_goes_from_tasks_to_done(page: Page) -> None:
    """A plan is approved and started on its page, which links to its runs."""
    tasks = [
        {"description": "look around", "recipe_id": "quick"},
        {"description": "look again", "recipe_id": "quick", "deps": [1]},
    ]
    plan = page.api("POST", "/api/sessions", {"intent": "Two looks", "tasks": tasks})
    page.open(f"/plans/{plan['session_id']}")
    page.button("Approve").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="approve").click()
    page.button("Start").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="start").click()

    page.shows("2 of 2 tasks done.")
    page.tab.get_by_role("link", name="run", exact=True).first.click()
    page.shows("It is done.")


@pytest.mark.slow
def test_hostile_texts_are_texts(page: Page) -> None:
    """A page shows markup, escape codes and right-to-left marks of a description as plain text."""
    hostile = "<img src=x onerror=alert(1)><b>bold</b> \u202egnirts \x07 {{x}}"
    run = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": hostile})
    page.open(f"/runs/{run['run_id']}").shows("<b>bold</b>")
    page.open("/runs").shows("<img src=x onerror=alert(1)>")

    assert page.tab.locator("main img, main b").count() == 0


def test_a_token_is_exchanged_for_a_sign_in(chromium: Browser, tmp_path: Path) -> None:
    """A refused page asks for the token, returns to the requested page, and offers to sign out."""
    with (
        served.in_a_thread(Project(tmp_path / "project"), api_token="the-token-of-this-service") as address,
        chromium.new_context(base_url=address) as context,
    ):
        page = Page(context).open("/recipes")
        page.tab.wait_for_url("**/sign-in?**")
        page.tab.locator("#token").fill("wrong")
        page.button("Sign in").click()
        expect(page.tab.get_by_role("alert")).to_contain_text(
            "neither the token of the service nor the secret of a key"
        )
        page.tab.locator("#token").fill("the-token-of-this-service")
        page.button("Sign in").click()
        page.tab.wait_for_url("**/recipes")
        page.shows("quick")
        page.button("Sign out").click()

        page.tab.wait_for_url("**/sign-in?**")
