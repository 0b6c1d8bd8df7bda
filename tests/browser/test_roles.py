"""What the pages offer to a key whose role may do little."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration import served
from tests.integration.project import Project

pytestmark = pytest.mark.slow

ADMIN = {"Authorization": f"Bearer {'t' * 32}"}


@pytest.fixture
def site(project: Project) -> Iterator[str]:
    """Start a service that asks every caller for a token, and return its address."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    with served.in_a_thread(project, api_token="t" * 32) as address:
        yield address


def signed_in(page: Page, role: str) -> Page:
    """Sign in a page with a new key of a role."""
    made = page.tab.context.request.post("/api/keys", headers=ADMIN, data={"name": "ada", "role": role})
    page.open("/sign-in")
    page.tab.locator("#token").fill(made.json()["secret"])
    page.button("Sign in").click()
    page.shows(f"ada · {role}", within="nav")
    page.complaints.clear()  # The browser reports what was refused before the sign-in.
    return page


@pytest.mark.parametrize("role", ["viewer", "runner"])
def test_a_key_of_the_decision_does_nothing_for_a_role_that_cannot_decide(page: Page, role: str) -> None:
    """`a` opens no dialog for a role that may not answer, and a question has no field for a message."""
    page.tab.context.request.post("/api/runs", headers=ADMIN, data={"recipe_id": "ask-first"})
    signed_in(page, role).open("/inbox").shows("Go on?")
    page.shows(f"ada · {role}", within="nav")
    page.tab.keyboard.press("a")

    expect(page.tab.locator("dialog[open]")).to_have_count(0)
    expect(page.tab.get_by_label("Message (optional)")).to_be_hidden()
    for name in ("Access", "Notifications"):
        expect(page.tab.get_by_role("link", name=name)).to_have_count(0)


def test_a_viewer_reads_whole_sentences(page: Page) -> None:
    """Home, lists without rows and the form of a recipe say nothing of orders that a viewer cannot give."""
    signed_in(page, "viewer").shows("Nothing is running.")
    for address in ("/", "/runs", "/runs?q=none", "/plans", "/conferences", "/cost"):
        page.open(address)
        expect(page.tab.locator("main :is(.muted, .empty)").first).to_be_visible()
        page.shows("ada · viewer", within="nav")

        shown = page.tab.locator("main").inner_text()
        assert re.search(r"or from a terminal|, or\b|\bor \.", shown) is None, address
    page.open("/start?recipe=quick").shows("your role cannot start a run")
    expect(page.tab.locator(".refusal")).to_be_visible()


def test_a_form_asks_for_nothing_that_the_role_may_not_read(page: Page) -> None:
    """The form of a viewer reads no list of files and offers none; that of a runner offers them."""
    asked: list[str] = []
    signed_in(page, "viewer")
    page.tab.on("request", lambda request: asked.append(request.url))
    page.open("/start?recipe=draft").shows("What it will do")
    page.shows("ada · viewer", within="nav")
    expect(page.tab.locator("#arg-scene_path")).not_to_have_attribute("placeholder", re.compile("find a file"))
    assert [url for url in asked if "/api/files" in url] == []
    assert page.complaints == []
    page.button("Sign out").click()
    page.tab.context.request.delete("/api/keys/ada", headers=ADMIN)
    signed_in(page, "runner").open("/start?recipe=draft")

    expect(page.tab.locator("#arg-scene_path")).to_have_attribute("placeholder", re.compile("find a file"))


def test_a_key_counts_to_the_end_of_its_last_day(chromium: Browser, site: str) -> None:
    """The end date of a key is a day of the person who chooses it, and belongs to the key's life."""
    with chromium.new_context(base_url=site, timezone_id="America/Los_Angeles") as context:
        page = Page(context).open("/sign-in")
        page.tab.locator("#token").fill("t" * 32)
        page.button("Sign in").click()
        page.shows("Waiting for you")
        page.open("/access")
        page.tab.get_by_label("Name").fill("bob")
        page.tab.get_by_label("Last day").fill("2099-11-30")
        page.button("Add a key").click()
        page.shows("The secret of bob")
        (key,) = context.request.get("/api/keys", headers=ADMIN).json()

    assert key["expires_at"] == "2099-12-01T08:00:00.000Z"
