"""Lists that are longer than what a page shows at first."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration.project import Project

pytestmark = pytest.mark.slow

MANY = 102
"""More than a list shows at first."""


def test_a_list_says_that_there_is_more(project: Project, page: Page) -> None:
    """Inbox, Plans and Issues count what they show as a part, and show the rest on request, to the last one."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    tasks = [{"description": "look", "recipe_id": "quick"}]
    for number in range(MANY):
        page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": f"run {number:03}"})
        page.api("POST", "/api/sessions", {"intent": f"plan {number:03}", "tasks": tasks})
        page.api("POST", "/api/issues", {"title": f"issue {number:03}"})
    # The plans that wait are the oldest ones.
    made = page.api("POST", "/api/sessions", {"intent": "no question", "tasks": tasks})
    page.api("POST", f"/api/sessions/{made['session_id']}/approve")
    page.open("/inbox")
    for title, rows, last in (
        ("Questions", "[data-gate]", f"run {MANY - 1:03}"),
        ("Plans", "li[data-row]", "plan 000"),
    ):
        section = page.tab.locator("section", has=page.tab.get_by_role("heading", name=title))
        expect(section.get_by_role("heading", name=title)).to_have_text(f"{title} 100+")
        expect(section).not_to_contain_text(last)
        section.get_by_role("button", name="Show more").click()
        expect(section.locator(rows)).to_have_count(MANY)
        expect(section.get_by_role("heading", name=title)).to_have_text(f"{title} {MANY}")
        expect(section).to_contain_text(last)
    expect(page.tab.locator("main")).not_to_contain_text("no question")
    for address, oldest in (("/plans", "plan 000"), ("/issues", "issue 000")):
        page.open(address)
        expect(page.tab.locator("tbody tr")).to_have_count(100)
        page.button("Show more").click()
        page.shows(oldest)
