"""What pages say and keep: wording, names of tabs, long texts, drafts, places."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration import served
from tests.integration.project import Project

pytestmark = pytest.mark.slow

LONG = "A description without an end. " * 500
"""As long as the API accepts."""


def test_a_long_description_is_cut_where_there_is_little_room(project: Project, page: Page) -> None:
    """Rows, headings and tab titles show the beginning of a long text; the page of the run shows the whole."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    run = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": LONG.strip()})
    page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": LONG.strip()})
    for address, row in (("/", ".of-runs li"), ("/runs", ".runs [data-row]"), ("/inbox", ".gate header")):
        page.open(address)
        box = page.tab.locator(row).first.bounding_box()
        assert box, address
        assert box["height"] < 200, address
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    heading = page.heading().bounding_box()
    page.tab.locator("summary", has_text="Whole text").click()

    expect(page.tab.locator(".page-title pre")).to_have_text(LONG.strip())
    assert len(page.tab.title()) < 200
    assert heading
    assert heading["height"] < 200


def test_a_tab_is_named_by_what_it_shows(page: Page) -> None:
    """The tab titles of a plan, an issue and a trigger contain their names."""
    plan = page.api("POST", "/api/sessions", {"intent": "Two looks", "tasks": []})
    issue = page.api("POST", "/api/issues", {"title": "The lamp"})
    trigger = page.api("POST", "/api/triggers", {"recipe_id": "quick", "schedule": {"every_seconds": 3600}})
    for address, name in (
        (f"/plans/{plan['session_id']}", "Two looks"),
        (f"/issues/{issue['issue_id']}", "The lamp"),
        (f"/triggers/{trigger['trigger_id']}", trigger["name"]),
        ("/cost", "Cost"),
    ):
        page.open(address)
        expect(page.tab).to_have_title(f"{name} · Control Room")
    page.open("/")
    expect(page.tab).to_have_title("Control Room")


def test_data_is_shown_as_it_is_written(project: Project, page: Page) -> None:
    """No capital letter is put before a code of an error, or an option of a question."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    page.open("/inbox").shows("Go on?")
    page.button("approve").click()
    shown = "all => all.map((each) => getComputedStyle(each, '::first-letter').textTransform)"
    choices = page.tab.locator("[data-decision], dialog[open] button")

    assert set(choices.evaluate_all(shown)) == {"none"}


def test_a_trigger_starts_one_run_for_a_double_click(page: Page) -> None:
    """A double click on “Start a run now” starts one run; a later click starts another."""
    trigger = page.api("POST", "/api/triggers", {"recipe_id": "quick", "schedule": {"every_seconds": 3600}})
    page.open(f"/triggers/{trigger['trigger_id']}").shows("every hour")
    history = page.tab.locator("section", has=page.tab.get_by_role("heading", name="History")).locator("li")
    page.button("Start a run now").click(click_count=2, delay=100)
    expect(history).to_have_count(1)
    page.button("Start a run now").click()
    expect(history).to_have_count(2)

    assert len(page.api("GET", "/api/runs")) == 2


def test_a_note_is_added_once(page: Page) -> None:
    """A double click adds one note, and the page reports no fault."""
    issue = page.api("POST", "/api/issues", {"title": "issue", "body": "look"})
    page.open(f"/issues/{issue['issue_id']}")
    page.tab.get_by_label("Add a note").fill("seen")
    page.button("Add").dblclick()
    page.shows("seen", within=".lines")
    expect(page.tab.get_by_role("alert")).to_have_count(0)

    assert len(page.api("GET", f"/api/issues/{issue['issue_id']}")["notes"]) == 1


def test_an_ordinary_run_is_no_conference(page: Page) -> None:
    """The address of a conference leads to the run's own page if the run is of another recipe."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "look"})
    page.tab.goto(f"/conferences/{run['run_id']}")
    page.tab.wait_for_url(f"**/runs/{run['run_id']}")

    page.shows("It is done.")
    expect(page.heading()).to_have_text("look")


def test_keys_lapse_and_can_be_switched_off(page: Page) -> None:
    """A place is named soon after `g`; the help switches single characters off, for later visits as well."""
    page.tab.clock.install()
    page.open("/runs")
    page.tab.keyboard.press("g")
    page.tab.clock.fast_forward("00:05")
    page.tab.keyboard.press("c")
    expect(page.heading()).to_have_text("Runs")
    page.tab.keyboard.press("?")
    page.tab.get_by_label("These keys work").uncheck()
    page.button("Close").click()
    page.tab.reload()
    page.heading().wait_for()
    page.tab.keyboard.press("?")
    page.tab.keyboard.press("g")
    page.tab.keyboard.press("c")
    expect(page.tab.locator("dialog[open]")).to_have_count(0)
    expect(page.heading()).to_have_text("Runs")
    page.button("Keys: ?").click()
    page.tab.get_by_label("These keys work").check()
    page.button("Close").click()
    page.tab.keyboard.press("g")
    page.tab.keyboard.press("c")

    expect(page.heading()).to_have_text("Cost")


def test_the_way_back_leads_to_the_place(page: Page) -> None:
    """Back from a run, the list is where it was left, far down as well, and the run's link has the focus."""
    for number in range(130):
        page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"look {number:03}"})
    page.open("/runs")
    link = page.tab.get_by_role("link", name="look 005", exact=True)
    while not link.is_visible():
        page.tab.mouse.wheel(0, 900)
    link.scroll_into_view_if_needed()
    place = page.tab.evaluate("scrollY")
    link.click()
    page.shows("It is done.")
    assert page.tab.evaluate("scrollY") == 0
    page.tab.go_back()

    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()
    assert abs(page.tab.evaluate("scrollY") - place) < 60


def test_an_ended_sign_in_says_so_and_keeps_what_was_written(chromium: Browser, project: Project) -> None:
    """When a key is revoked, the page says that the sign-in has ended, and the message is there after the next one."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    admin = {"Authorization": f"Bearer {'t' * 32}"}
    with served.in_a_thread(project, api_token="t" * 32) as address, chromium.new_context(base_url=address) as context:
        made = context.request.post("/api/keys", headers=admin, data={"name": "ada", "role": "approver"})
        context.request.post("/api/runs", headers=admin, data={"recipe_id": "ask-first"})
        page = Page(context).open("/sign-in")
        expect(page.tab.locator("main")).not_to_contain_text("has ended")
        page.tab.locator("#token").fill(made.json()["secret"])
        page.button("Sign in").click()
        page.shows("Go on?")
        page.tab.get_by_role("link", name="Inbox").first.click()
        page.tab.get_by_label("Message (optional)").fill("half of a thought")
        context.request.delete("/api/keys/ada", headers=admin)
        page.shows("Your sign-in has ended")
        page.tab.locator("#token").fill("t" * 32)
        page.button("Sign in").click()
        page.tab.wait_for_url("**/inbox")

        expect(page.tab.get_by_label("Message (optional)")).to_have_value("half of a thought")


def test_an_answered_question_leaves_an_empty_field(page: Page) -> None:
    """If another question follows the answer to a task's question, its field is empty."""
    task = {"description": "draft it", "recipe_id": "draft", "scoping_question": "Which harbour?"}
    plan = page.api("POST", "/api/sessions", {"tasks": [task]})
    page.open(f"/plans/{plan['session_id']}")
    page.tab.get_by_label("Which harbour?").fill("the northern one")
    page.button("Answer").click()
    page.shows("Arguments are set under Edit.")

    expect(page.tab.locator(".task form input")).to_have_value("")
