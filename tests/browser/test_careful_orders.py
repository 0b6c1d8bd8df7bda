"""Orders reach what the page shows, ask before they spend or remove, and report when they were not answered."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.pages import Page

pytestmark = pytest.mark.slow


def test_an_order_for_many_reaches_only_runs_in_the_list(page: Page) -> None:
    """A filter takes hidden runs out of the selection, and the dialog names the runs that the order concerns."""
    kept = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "the good one"})["run_id"]
    args = dict.fromkeys(("scene_path", "other_path"), "Story/Scenes/SCN-the-arrival.md")
    bad = {"recipe_id": "picky", "description": "the bad one", "args": args}
    gone = page.api("POST", "/api/runs", bad)["run_id"]
    page.open("/runs")
    page.tab.get_by_label("Select the good one").check()
    page.tab.get_by_label("Status").select_option("failed")
    expect(page.tab.get_by_label("Select the good one")).to_have_count(0)
    expect(page.tab.get_by_role("region", name="Selected runs")).to_have_count(0)
    page.tab.get_by_label("Select the bad one").check()
    page.button("Delete").click()
    dialog = page.tab.locator("dialog[open]")
    expect(dialog.get_by_role("heading")).to_have_text("Delete 1 run?")
    expect(dialog.get_by_role("listitem")).to_have_text([f"{gone} the bad one"])
    dialog.get_by_role("button", name="Delete 1").click()
    expect(dialog).to_have_count(0)

    assert [run["run_id"] for run in page.api("GET", "/api/runs")] == [kept]
