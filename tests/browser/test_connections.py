"""Connections of a browser, which has six for all of its pages: none waits where an order needs one."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.pages import Page
from tests.browser.test_details import HELD, follow
from tests.browser.test_pages import APPROVAL
from tests.integration.project import Project

pytestmark = pytest.mark.slow

CONNECTIONS = 6
"""Connections that a browser opens to one address by HTTP/1.1."""

HIDE = """hidden => {
    Object.defineProperty(document, "hidden", {configurable: true, value: hidden});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Tell a page that its tab is in the background, or is not: a browser without a window hides none."""

PROMPT_SECONDS = 5


def test_a_hidden_page_lets_its_log_go(project: Project, page: Page) -> None:
    """Pages in the background leave the connections to the visible one, and follow their log again once shown."""
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    run = page.api("POST", "/api/runs", {"recipe_id": "held"})
    behind = []
    for _ in range(CONNECTIONS):
        other = Page(page.tab.context).open(f"/runs/{run['run_id']}")
        follow(other, re.compile("write.*out"))
        expect(other.tab.locator(".log")).to_contain_text("first")
        other.tab.evaluate(HIDE, True)
        behind.append(other)
    begun = time.monotonic()
    page.open("/runs").shows("held")
    assert time.monotonic() - begun < PROMPT_SECONDS
    project.write("go", "")
    page.shows("done")
    expect(behind[0].tab.locator(".log")).not_to_contain_text("second")
    behind[0].tab.evaluate(HIDE, False)

    expect(behind[0].tab.locator(".log")).to_contain_text("second")
    assert [each for other in behind for each in other.complaints] == []


def test_an_order_is_prompt_where_no_events_arrive(project: Project, page: Page) -> None:
    """If a proxy refuses the stream of events, two visible pages poll without holding the connections of an answer."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    page.tab.context.route("**/api/events", lambda route: route.fulfill(status=404, json={}))
    page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    other = Page(page.tab.context).open("/")
    other.shows("Go on?")
    page.open("/").shows("Go on?")
    # Both pages have read everything once, and ask for changes.
    for tab in (other.tab, page.tab):
        with tab.expect_request(re.compile(r"/api/gates\?.*limit")):
            pass
    page.button("approve").click()
    begun = time.monotonic()
    page.tab.locator("dialog[open]").get_by_role("button", name="approve").click()
    expect(page.tab.locator("dialog[open]")).to_have_count(0)
    assert time.monotonic() - begun < PROMPT_SECONDS
    other.shows("Nothing waits for you.")
    page.complaints.clear()  # The browser reports the refusals as errors.
