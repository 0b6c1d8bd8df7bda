"""Large pages: 5,000 steps, 2,000 runs; and pictures of every page in every form."""

from __future__ import annotations

import asyncio
import os
import re
from concurrent import futures
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bench import crowds
from tests.browser import pages
from tests.browser.test_pages import APPROVAL, PAGES, UNKNOWN
from tests.integration import served
from tests.integration.project import Project

pytestmark = pytest.mark.slow

MANY = """\
name: many
description: Do much
version: "1.0.0"
steps:
  - {id: list, type: bash, parse_json: true, output: items, command: "echo [$(seq -s, 1 5000)]"}
  - {id: each, foreach: "{{items}}", as: item, max_iterations: 6000, type: bash, command: "true"}
schema: "1.7"
"""


@pytest.mark.timeout(900)
def test_five_thousand_steps(project: Project, page: pages.Page) -> None:
    """A run of 5,000 steps opens at once, and few rows are in the page at any time while a person scrolls."""
    project.write(".control-room/recipes/amplifier/many.yaml", MANY)
    run = page.api("POST", "/api/runs", {"recipe_id": "many"})
    while page.api("GET", f"/api/runs/{run['run_id']}?wait=20")["status"] == "running":
        pass
    page.open(f"/runs/{run['run_id']}")
    rows = page.tab.locator(".steps [data-row]")
    expect(rows.first).to_contain_text("list")
    table = page.tab.locator(".steps")
    for place, key in ((0.5, r"each\[2[45]\d\d\]"), (1, r"each\[4999\]"), (0, "list")):
        table.evaluate("(table, place) => { table.scrollTop = place * table.scrollHeight }", place)
        expect(rows.filter(has_text=re.compile(key)).first).to_be_visible()
        assert rows.count() < 80
    heights = table.evaluate("table => [...table.querySelectorAll('.virtual .row')].map((row) => row.offsetHeight)")

    assert len(set(heights)) == 1
    rows.first.locator("a").click()
    page.tab.locator(".drawer .attempt").first.wait_for()


@pytest.mark.timeout(900)
def test_a_step_repaints_its_own_row(project: Project, page: pages.Page) -> None:
    """While steps begin and end, the rows of other steps do not change."""
    held = 'name: held\nversion: "1.0.0"\ndescription: Hold\nsteps:\n'
    held += "".join(f'  - {{id: s{number}, type: bash, command: "true"}}\n' for number in range(20))
    held += '  - {id: hold, type: bash, command: "until [ -e go ]; do sleep 0.05; done"}\nschema: "1.7"\n'
    project.write(".control-room/recipes/amplifier/held.yaml", held)
    # All rows are in view: the others are not in the page.
    page.tab.set_viewport_size({"width": 1280, "height": 2000})
    run = page.api("POST", "/api/runs", {"recipe_id": "held"})
    page.open(f"/runs/{run['run_id']}").shows("It works on hold.")
    page.tab.evaluate("""() => {
        window.touched = new Set();
        const rows = [...document.querySelectorAll('.steps [data-row]')].filter((row) => !/hold/.test(row.textContent));
        const seen = new MutationObserver((all) => all.forEach((each) => touched.add(each.target.textContent)));
        const changes = {childList: true, subtree: true, characterData: true};
        rows.forEach((row) => seen.observe(row.querySelector('.name'), changes));
        window.watched = rows.length;
    }""")
    project.write("go", "")
    page.shows("It is done.")

    assert page.tab.evaluate("[watched, touched.size]") == [20, 0]


def test_two_thousand_runs(chromium: Browser, tmp_path: Path) -> None:
    """A list of 2,000 runs loads while a person scrolls, keeps few rows in the page, and takes one order for many."""
    # The browser's loop runs in this thread.
    with futures.ThreadPoolExecutor() as aside:
        made = aside.submit(lambda: asyncio.run(crowds.make(tmp_path / "crowd", finished=2000, whole=False)))
        project = Project(made.result())
    with served.in_a_thread(project) as address, chromium.new_context(base_url=address) as context:
        page = pages.Page(context)
        for number in range(3):
            page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"look {number}"})
        page.open("/runs")
        rows = page.tab.locator(".runs [data-row]")
        expect(rows.first).to_contain_text("look 2")
        table, known = page.tab.locator(".runs"), "0"
        while int(known) < 2004:
            # The page loads further runs when the end of the list is near.
            expect(table).not_to_have_attribute("aria-rowcount", known)
            known = table.get_attribute("aria-rowcount") or ""
            page.tab.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        expect(rows.locator("a[href$='-000000']")).to_be_visible()
        assert rows.count() < 80
        page.tab.evaluate("scrollTo(0, 0)")
        for number in (2, 1):
            box = page.tab.get_by_label(f"Select look {number}")
            expect(box.locator("xpath=ancestor::*[@role='row']")).to_contain_text("done")
            box.check()
        page.button("Delete").click()
        page.tab.locator("dialog[open]").get_by_role("button", name="Delete 2").click()

        expect(rows.first).to_contain_text("look 0")
        assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.timeout(600)
def test_every_page_in_every_form(chromium: Browser, project: Project, site: str, tmp_path: Path, scheme: str) -> None:
    """No page is wider than its window or breaks an accessibility rule; 320 pixels are 1280 at 400 per cent.

    The test saves the pictures in the folder that `SCREENSHOTS` names.
    """
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    with chromium.new_context(
        base_url=site,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": 1280, "height": 900},
        reduced_motion="reduce",
    ) as context:
        page = pages.Page(context)
        scene = "Story/Scenes/SCN-the-arrival.md"
        failed = page.api(
            "POST", "/api/runs", {"recipe_id": "picky", "args": {"scene_path": scene, "other_path": scene}}
        )
        page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
        plan = page.api(
            "POST", "/api/sessions", {"intent": "Look", "tasks": [{"description": "look", "recipe_id": "quick"}]}
        )
        issue = page.api("POST", "/api/issues", {"title": "issue", "body": "look"})
        trigger = page.api("POST", "/api/triggers", {"recipe_id": "quick", "schedule": {"every_seconds": 3600}})
        conference = page.api("POST", "/api/conferences", {"message": "Does it hold up?"})
        page.open(f"/runs/{failed['run_id']}").shows("Why it failed")
        page.open("/inbox").shows("Go on?")
        addresses = [
            *(each for each in PAGES if each != UNKNOWN),
            f"/runs/{failed['run_id']}",
            f"/plans/{plan['session_id']}",
            f"/issues/{issue['issue_id']}",
            f"/triggers/{trigger['trigger_id']}",
            f"/conferences/{conference['run_id']}",
            f"/runs/{failed['run_id']}?step=analyze",
        ]
        for address in addresses:
            page.open(address)
            page.load_axe()
            page.tab.wait_for_load_state("load")
            shown = re.sub(r"\W+", "-", address).strip("-") or "home"
            # The page is opened once for all widths: a change of the width redraws only the parts that depend on it.
            for width, name in ((1280, "wide"), (360, "narrow"), (320, "zoomed")):
                page.tab.set_viewport_size({"width": width, "height": 900})
                assert page.violations() == [], (address, width)
                assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), (address, width)
                page.tab.screenshot(path=folder / f"{shown}-{scheme}-{name}.png", full_page=True)
            page.tab.set_viewport_size({"width": 1280, "height": 900})
        assert page.complaints == []
