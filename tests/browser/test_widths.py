"""Pages in windows of every width, between those that the pictures show."""

from __future__ import annotations

import pytest

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration.project import Project

pytestmark = pytest.mark.slow

WIDTHS = (1280, 1024, 985, 900, 853, 800, 768, 761, 700, 360)
"""Widths in pixels; 853 are 1280 at a zoom of 150 per cent."""


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(page.tab.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_lists_of_runs_fit_windows_of_every_width(project: Project, page: Page) -> None:
    """Home and Inbox show running, parked and failed runs without a horizontal scrollbar at any width."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    scene = "Story/Scenes/SCN-the-arrival.md"
    page.api("PUT", "/api/budgets/tiny", {"recipe_id": "draft", "limits": {"calls": 0}})
    page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": scene}, "description": "d" * 60})
    page.api("POST", "/api/runs", {"recipe_id": "picky", "args": {"scene_path": scene, "other_path": scene}})
    page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    for address, lists in (("/", 3), ("/inbox", 1)):
        page.open(address).shows("Go on?")
        page.tab.locator(".of-runs").nth(lists - 1).wait_for()

        too_wide = {}
        for width in WIDTHS:
            page.tab.set_viewport_size({"width": width, "height": 900})
            too_wide[width] = overflow(page)
        assert not any(pixels > 0 for pixels in too_wide.values()), (address, too_wide)


def test_long_names_and_states_fit_a_narrow_window(project: Project, page: Page) -> None:
    """At 360 pixels the choice of a log with a long name fits, and the state of a plan is one word on one line."""
    step = "s" * 50
    head = 'name: long\ndescription: Long\nversion: "1.0.0"\nschema: "1.7"\n'
    recipe = f'{head}steps: [{{id: {step}, type: bash, command: "echo hi"}}]\n'
    project.write(".control-room/recipes/amplifier/long.yaml", recipe)
    run = page.api("POST", "/api/runs", {"recipe_id": "long"})
    plan = page.api("POST", "/api/sessions", {"intent": "Look", "tasks": [{"description": "l", "recipe_id": "quick"}]})
    page.tab.set_viewport_size({"width": 360, "height": 800})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    chooser = page.tab.get_by_role("combobox", name="Log")
    chooser.select_option(index=1)
    page.tab.locator(".log").wait_for()
    assert overflow(page) <= 0
    page.open(f"/plans/{plan['session_id']}").shows("It waits for your approval")
    word = page.tab.locator(".lead .status > span").first.bounding_box()

    assert word
    assert word["height"] < 30
    assert overflow(page) <= 0
