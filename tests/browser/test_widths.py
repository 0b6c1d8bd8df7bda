"""Pages in windows of every width, between those that the pictures show."""

from __future__ import annotations

from typing import Literal

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
    """Home and Inbox show parked, failed and finished runs without a horizontal scrollbar at any width."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    scene = "Story/Scenes/SCN-the-arrival.md"
    page.api("PUT", "/api/budgets/tiny", {"recipe_id": "draft", "limits": {"calls": 0}})
    page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": scene}, "description": "d" * 60})
    page.api("POST", "/api/runs", {"recipe_id": "picky", "args": {"scene_path": scene, "other_path": scene}})
    page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    page.api("POST", "/api/runs", {"recipe_id": "quick"})
    for address, lists in (("/", 3), ("/inbox", 1)):
        page.open(address).shows("Go on?")
        page.tab.locator(".of-runs").nth(lists - 1).wait_for()

        too_wide = {}
        for width in WIDTHS:
            page.tab.set_viewport_size({"width": width, "height": 900})
            too_wide[width] = overflow(page)
        assert not any(pixels > 0 for pixels in too_wide.values()), (address, too_wide)


def test_a_state_with_a_note_stays_in_its_column(page: Page) -> None:
    """In lists of runs, no state covers the name of its run, whatever the note beside it and the width."""
    scene = "Story/Scenes/SCN-the-arrival.md"
    run = page.api("POST", "/api/runs", {"recipe_id": "picky", "args": {"scene_path": scene, "other_path": scene}})
    page.api("PATCH", f"/api/runs/{run['run_id']}", {"pinned": True})
    page.open("/runs").shows("pinned")
    for width in (1440, *WIDTHS):
        page.tab.set_viewport_size({"width": width, "height": 900})
        state, name = (page.tab.locator(f".runs [data-row] {part}").bounding_box() for part in (".status", ".name a"))
        assert state
        assert name
        apart = state["x"] + state["width"] <= name["x"] or state["y"] + state["height"] <= name["y"] + 1
        assert apart, (width, state, name)


LONGEST = """cell => {
  cell.firstElementChild.textContent = "23 h 59 min";
  return cell.scrollWidth - cell.clientWidth;
}"""
"""Write the longest duration that is not a day into a cell, and return by how many pixels it is too wide."""


def test_durations_end_at_one_edge(page: Page) -> None:
    """The longest duration of a run fits its column at every width."""
    page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open("/runs").shows("quick")
    for width in (1440, *WIDTHS):
        page.tab.set_viewport_size({"width": width, "height": 900})

        assert page.tab.locator(".runs [data-row] .took").evaluate(LONGEST) <= 0, width


def test_the_reason_of_a_failure_begins_below_the_name_of_its_run(page: Page) -> None:
    """At 390 pixels the lists of the home page have one left edge."""
    page.tab.set_viewport_size({"width": 390, "height": 844})
    page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": "Story/none.md"}})
    page.open("/").shows("File not found")
    edges = [page.tab.locator(f".of-runs li {part}").first.bounding_box() for part in (".row-link", ".wrong-text")]

    assert edges[0]
    assert edges[1]
    assert abs(edges[0]["x"] - edges[1]["x"]) < 2


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


def test_lists_are_tidy_in_a_narrow_window(page: Page) -> None:
    """At 390 pixels a checkbox is inside the card of its issue, and the title of a plan has its own whole line."""
    page.api("POST", "/api/issues", {"title": "The lamp is lit twice"})
    tasks = [{"description": "look", "recipe_id": "draft"}]
    page.api("POST", "/api/sessions", {"intent": "Write scenes 21 and 22, and look at the whole book", "tasks": tasks})
    page.tab.set_viewport_size({"width": 390, "height": 844})
    page.open("/issues")
    card, box = (page.tab.locator(name).bounding_box() for name in ("tbody tr", "td.check input"))
    page.open("/inbox").shows("1 question")
    status, title = (page.tab.locator(f".lines li > {name}").bounding_box() for name in (".status", ".row-link"))

    assert card and box and status and title  # noqa: PT018
    assert card["y"] + 8 < box["y"] < box["y"] + box["height"] < card["y"] + 44
    # What can be touched is 13 pixels larger than the text.
    assert title["y"] + 13 >= status["y"] + status["height"]
    assert title["width"] > 300


def test_figures_fill_whole_rows(page: Page) -> None:
    """The four figures of the home page are in rows of equal length at every width."""
    page.open("/").shows("Spent today")
    for width in WIDTHS:
        page.tab.set_viewport_size({"width": width, "height": 900})
        tops = page.tab.eval_on_selector_all(".figures > div", "all => all.map(each => each.offsetTop)")

        assert len({tops.count(top) for top in tops}) == 1, width


CONTRAST = """() => {
  const shade = text => {
    const parts = text.match(/[0-9.]+/g).map(each => each / 255);
    const [r, g, b] = parts.map(each => each <= 0.04 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const fields = [...document.querySelectorAll('main :is(input:not([type=checkbox]), textarea, select)')];
  return fields.filter(each => each.offsetParent).map(each => {
    const style = getComputedStyle(each);
    const [one, other] = [style.borderTopColor, style.backgroundColor].map(shade);
    return Math.max(one, other) / Math.min(one, other);
  });
}"""
"""Contrast of each field's edge with its inside."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fields_have_an_edge_that_can_be_seen(page: Page, scheme: Literal["light", "dark"]) -> None:
    """The edge of a field has the contrast of 3 to 1 that WCAG 1.4.11 demands, in both colour schemes."""
    page.tab.emulate_media(color_scheme=scheme)
    page.open("/start?recipe=draft")
    page.tab.locator("#arg-scene_path").wait_for()
    found = page.tab.evaluate(CONTRAST)

    assert found
    assert min(found) >= 3
