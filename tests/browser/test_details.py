"""Details of pages: choices, requests, logs, narrow windows, reduced motion."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests import ports
from tests.agent_programs.fake_model.asked import Asked
from tests.agent_programs.fake_model.replies import Reply
from tests.agent_programs.fake_model.server import FakeModel
from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration import served
from tests.integration.project import REPLY, Project, draft, quick
from tests.integration.read_faults import ReadFaults

pytestmark = pytest.mark.slow

HELD = """\
name: held
description: Write, and wait for a file
version: "1.0.0"
steps:
  - {id: write, type: bash, command: "echo first; until [ -e go ]; do sleep 0.05; done; echo second", timeout: 600}
schema: "1.7"
"""

MEGABYTES = 100

TAIL_CHARACTERS = 200_000
"""Number of characters from the end of a log that a page shows."""


def held(project: Project, page: Page) -> Path:
    """Start a run that writes and waits, open its page, follow the log, and return the log's file."""
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    run = page.api("POST", "/api/runs", {"recipe_id": "held"})
    page.open(f"/runs/{run['run_id']}").shows("It works on write.")
    name = follow(page, re.compile("write.*out"))
    expect(page.tab.locator(".log")).to_have_text("first\n", use_inner_text=True)
    return project.data / "runs" / run["run_id"] / "logs" / name


def follow(page: Page, name: re.Pattern[str]) -> str:
    """Choose a log on the page of a run, as soon as the page offers it, and return its name."""
    chooser = page.tab.get_by_role("combobox", name="Log")
    option = chooser.locator("option", has_text=name)
    # An option of a closed list is attached to the page, but not visible.
    option.wait_for(state="attached")
    label = option.text_content() or ""
    chooser.select_option(label=label)
    return label


def test_a_person_chooses_among_the_fitting_recipes(project: Project, page: Page) -> None:
    """The page offers each recipe that fits a description; the choice opens its form with the description."""
    project.add_recipe({**quick("other"), "task_patterns": ["look"]})
    page.open("/start")
    page.tab.get_by_label("Describe the task").fill("look around the harbour")
    page.button("Find a recipe").click()
    page.shows("2 recipes fit.")
    offered = page.tab.locator("ol [data-row]")
    expect(offered).to_contain_text([re.compile("quick.*11 characters"), re.compile("other.*4 characters")])
    offered.last.get_by_role("button").click()
    expect(page.tab.get_by_role("heading", name="other")).to_be_visible()
    expect(page.tab.get_by_label("Description of this run")).to_have_value("look around the harbour")
    page.open("/start")
    page.tab.get_by_label("Describe the task").fill("zzz")
    page.button("Find a recipe").click()

    page.shows("Choose a recipe below.")


def test_issues_are_closed_together(page: Page) -> None:
    """All open issues are selected and closed with one confirmation; the list then shows them as closed."""
    for number in range(3):
        page.api("POST", "/api/issues", {"title": f"issue {number}", "body": "look"})
    page.open("/issues")
    boxes = page.tab.get_by_role("checkbox")
    expect(boxes).to_have_count(3)
    page.button("Select all 3").click()
    boxes.last.uncheck()
    page.shows("2 issues selected")
    page.button("Select all 3").click()
    page.tab.get_by_role("region", name="Selected issues").get_by_role("button", name="Close").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Close 3").click()
    page.shows("No open issues.")
    page.tab.get_by_label("Status").select_option("closed")
    expect(page.tab.locator("tbody tr")).to_have_count(3)

    assert {issue["status"] for issue in page.api("GET", "/api/issues?status=closed")} == {"closed"}


def test_the_drawer_shows_what_an_open_step_asks(project: Project, page: Page) -> None:
    """The drawer of a running step shows its prompt, agent and backend; later it reads the prompt from the log."""
    project.say("draft", hang=True)
    scene = "Story/Scenes/SCN-the-arrival.md"
    run = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": scene}})
    page.open(f"/runs/{run['run_id']}").shows("It works on draft.")
    page.tab.get_by_role("link", name="draft", exact=True).last.click()
    drawer = page.tab.locator(".drawer")
    expect(drawer.get_by_role("heading", name="Prompt")).to_be_visible()
    expect(drawer.locator("pre")).to_contain_text("Write it.")
    expect(drawer).to_contain_text("said")
    page.api("POST", f"/api/runs/{run['run_id']}/cancel")
    page.shows("It was cancelled.")


def test_a_written_file_is_an_output(project: Project, page: Page) -> None:
    """The outputs of a run begin with the file that it wrote."""
    scene = "Story/Scenes/SCN-the-arrival.md"
    project.add_recipe({**draft("filed"), "outputs": [{"slot": "edited_draft", "path": "Drafts/one.md"}]})
    run = page.api("POST", "/api/runs", {"recipe_id": "filed", "args": {"scene_path": scene}})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    outputs = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Outputs"))

    expect(outputs.locator("li").first).to_contain_text(re.compile(r"File\s+Drafts/one\.md \("))
    outputs.locator("li").first.get_by_text("File").click()
    expect(outputs.locator("li").first.locator("pre")).to_contain_text("the lantern was dark")


def test_the_output_file_of_a_command_is_an_output(project: Project, page: Page) -> None:
    """A file that a command of an Orchestrate recipe wrote, also in a loop, is listed by path and opens in the page."""
    each = '{name: Each, command: [echo, "of ${item}"], output_file: "artifacts/${item}.txt"}'
    steps = f"steps:\n  - name: Loop\n    for_each: {{items: [a, b], steps: [{each}]}}\n"
    project.write(".control-room/recipes/orchestrate/filing.yaml", f'version: "1.1"\nname: filing\n{steps}')
    run = page.api("POST", "/api/runs", {"recipe_id": "filing"})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    result = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Result"))
    expect(result.locator("li")).to_contain_text(["artifacts/a.txt", "artifacts/b.txt"])
    outputs = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Outputs"))
    files = outputs.locator("li", has_text="artifacts/")
    expect(files).to_contain_text(["artifacts/a.txt", "artifacts/b.txt"])
    files.last.get_by_text("File").click()

    expect(files.last.locator("pre")).to_contain_text("of b")
    assert (project.root / "artifacts" / "b.txt").read_text() == "of b\n"


def test_a_step_in_the_queue_of_its_backend_shows_its_place(
    chromium: Browser, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """List and drawer show a step as queued, with its place, while its backend answers another run's prompt."""
    monkeypatch.setenv("FAKE_KEY", "secret-of-the-fake")
    answers = threading.Event()

    def answer(_asked: Asked) -> Reply:
        assert answers.wait(60)
        return Reply(text=REPLY)

    with FakeModel(answer) as model:
        served_by = {"type": "openai", "base_url": f"{model.address}/v1", "api_key_env": "FAKE_KEY", "max_parallel": 1}
        agents = json.loads((project.data / "agents.json").read_text())
        agents["backends"]["said"] = served_by | {"models": dict.fromkeys(("haiku", "sonnet", "opus"), "fake")}
        project.write(".control-room/agents.json", json.dumps(agents))
        with (
            served.in_a_thread(project) as address,
            chromium.new_context(base_url=address) as context,
        ):
            waiting = Page(context)
            first = waiting.api("POST", "/api/runs", {"recipe_id": "unguarded"})
            assert model.wait(len)
            second = waiting.api("POST", "/api/runs", {"recipe_id": "unguarded"})
            waiting.open(f"/runs/{second['run_id']}").shows("It is queued with draft.")
            row = waiting.tab.locator(".steps [data-row]").last
            expect(row).to_contain_text("queued · 1 of 1")
            row.locator("a").click()
            waiting.shows("Waits forsaid", within=".drawer")
            # Only an open step has a request.
            waiting.shows("Prompt", within=".drawer")
            answers.set()

            waiting.shows("It is done.")
            assert waiting.api("GET", f"/api/runs/{first['run_id']}")["status"] == "done"
            assert waiting.complaints == []


def test_the_engine_of_a_service_on_temporal_is_named(page: Page) -> None:
    """With runs on Temporal, the home page and the page of a run name the engine; the embedded engine is not named."""

    def on_temporal(route: Route) -> None:
        answer = route.fetch()
        body = answer.text().replace('"embedded"', '"temporal"')  # Empty if the page has not changed.
        route.fulfill(response=answer, body=body)

    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open("/").shows("/project, ")
    page.tab.route("**/api/stats*", on_temporal)

    page.open("/").shows("/project on Temporal, ")
    page.open(f"/runs/{run['run_id']}").shows("Enginetemporal")


def test_the_machine_of_a_placed_run_is_named(page: Page) -> None:
    """The page of a run that is placed on a worker names its machine; that of another run names none."""

    def placed(route: Route) -> None:
        answer = route.fetch()
        where = '{"placed": {"worker": "w_1a2b3c", "host": "render-3"}, '
        # Empty if the run has not changed.
        route.fulfill(response=answer, body=answer.text().replace("{", where, 1))

    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})["run_id"]
    page.open(f"/runs/{run}").shows("It is done.")
    expect(page.tab.locator("dt", has_text="Machine")).to_have_count(0)
    page.tab.route(f"**/api/runs/{run}", placed)

    page.open(f"/runs/{run}").shows("Machinerender-3 worker w_1a2b3c")


def test_an_unreadable_run_is_shown_with_its_fault(
    chromium: Browser, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """List and page show an unreadable run's last state, file, error and next try, and later the run itself."""
    with served.in_a_thread(project) as address, chromium.new_context(base_url=address) as context:
        page = Page(context)
        run_id = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "look"})["run_id"]
        page.open(f"/runs/{run_id}").shows("It is done.")
    faults = ReadFaults(monkeypatch)
    faults.refuse(f"{run_id}/start.json", errno.EIO)
    with served.in_a_thread(project) as address, chromium.new_context(base_url=address) as context:
        page = Page(context)
        page.open(f"/runs/{run_id}").shows(
            re.compile(r"start\.json cannot be read now \(EIO\)\..*Next try: (in \d|now)")
        )
        page.shows("done")
        page.load_axe()
        assert page.violations() == []
        page.open("/runs")
        expect(page.tab.locator(".runs [data-row]")).to_contain_text("done · unreadable")
        page.open(f"/runs/{run_id}").shows("cannot be read now")
        faults.lift()

        expect(page.tab.locator(".fault")).to_have_count(0)
        page.shows("It is done.")


def test_orders_and_their_runs_link_to_each_other(project: Project, page: Page) -> None:
    """The page of a run or a plan links to the orders that concern only it, and these link back to the run."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "look"})
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    page.api("POST", f"/api/runs/{run['run_id']}/cancel")
    task = {"description": "look", "recipe_id": "quick"}
    plan = page.api("POST", "/api/sessions", {"intent": "Look", "tasks": [task]})
    lines = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Changes")).locator("li")
    page.open(f"/plans/{plan['session_id']}")
    page.tab.get_by_role("link", name="who did what").click()
    page.shows(f"answered what, of {plan['session_id']}")
    page.open(f"/runs/{run['run_id']}")
    page.tab.get_by_role("link", name="who did what").click()

    expect(lines).to_have_count(2)
    expect(lines.first).to_contain_text("run.cancel")
    expect(lines.last).to_contain_text("run.started")
    lines.last.get_by_role("link").click()
    page.tab.wait_for_url(f"**/runs/{run['run_id']}")


def test_runs_are_filtered_by_time_and_recipes_by_text(page: Page) -> None:
    """The filter by age is in the address and in the request; the page itself searches recipes."""
    page.api("POST", "/api/runs", {"recipe_id": "quick"})
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    page.open("/runs")
    expect(page.tab.locator(".runs [data-row]")).to_have_count(1)
    page.tab.get_by_label("Created").select_option("7")
    page.tab.wait_for_url("**/runs?days=7")
    expect(page.tab.locator(".runs [data-row]")).to_have_count(1)
    page.tab.get_by_label("Status").select_option("failed")
    page.shows("No run matches.")
    assert any("created_after=" in url and "status=failed" in url for url in asked)
    page.open("/recipes")
    expect(page.tab.locator("tbody tr").nth(5)).to_be_visible()
    page.tab.get_by_label("Search").fill("picky")

    expect(page.tab.locator("tbody tr")).to_have_count(1)


def test_tables_become_cards_in_a_narrow_window(page: Page) -> None:
    """In a window of 400 pixels each row is a card that names its values, and no part is wider than the window."""
    page.tab.set_viewport_size({"width": 400, "height": 900})
    page.api("POST", "/api/issues", {"title": "issue " + "of many words " * 10, "body": "look"})
    for path in ("/issues", "/recipes", "/agents"):
        page.open(path)
        row = page.tab.locator("tbody tr").first
        expect(row).to_be_visible()
        named = row.locator("td[data-label=Status]")
        boxes = [cell.bounding_box() for cell in (row.locator("td.wide"), named)]
        tops = [box["y"] for box in boxes if box]

        assert len(tops) == 2, path
        assert tops[0] < tops[1], path
        assert named.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Status"'
        assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


REACH = """() => [...document.querySelectorAll('a, button, input, select, textarea, summary')].filter((each) =>
    each.offsetParent && !each.closest('p, .hidden, .skip, .facts a, details:not([open]) > :not(summary)')
).map((each) => {
    each.scrollIntoView({block: 'center'});
    const {x, y, width, height} = each.getBoundingClientRect();
    const reacts = (by) => {
        const hit = document.elementFromPoint(x + Math.min(width / 2, 20), y + height / 2 + by);
        return hit && (each.contains(hit) || (hit.tagName === 'LABEL' && hit.contains(each)));
    };
    let [up, down] = [0, 0];
    while (up < 44 && reacts(-up - 1)) up += 1;
    while (down < 44 && reacts(down + 1)) down += 1;
    return [up + down + 1, each.outerHTML];
}).filter(([high]) => high < 43)"""
"""Returns elements that react to a pointer on under 44 pixels of height (43 if rounded), except text and its links."""


@pytest.mark.parametrize(("width", "height"), [(400, 900), (1280, 900), (1280, 600)])
def test_every_control_has_a_touch_target_of_44_pixels(project: Project, page: Page, width: int, height: int) -> None:
    """In every window, low ones too, buttons, fields and rows react on 44 pixels, even if they are drawn smaller."""
    page.tab.set_viewport_size({"width": width, "height": height})
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    page.api("POST", "/api/issues", {"title": "issue", "body": "look"})
    page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "ask"})
    scene = "Story/Scenes/SCN-the-arrival.md"
    run = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": scene}, "description": "look"})
    task = {"description": "look", "recipe_id": "quick"}
    plan = page.api("POST", "/api/sessions", {"intent": "Look", "tasks": [task]})
    found = {}
    for path, shown in {
        "/inbox": "Go on?",
        "/runs": "look",
        "/start?recipe=draft": "What it will do",
        "/issues": "issue",
        "/recipes": "draft",
        f"/plans/{plan['session_id']}": "1. look",
        f"/runs/{run['run_id']}": "It is done.",
    }.items():
        page.open(path).shows(shown)
        page.tab.locator("main :is(.row-link, button):visible").first.wait_for()
        found[path] = page.tab.evaluate(REACH)
    around = page.button("Verify").evaluate(
        """button => {
            button.scrollIntoView({block: "center"});
            const {x, y, width, height} = button.getBoundingClientRect();
            return [-21, 21].map((by) => document.elementFromPoint(x + width / 2, y + height / 2 + by) === button);
        }"""
    )
    high = page.tab.locator("main button:not(.small), nav a:not(.brand)").evaluate_all(
        "all => all.filter((each) => each.offsetHeight < 44).map((each) => each.outerHTML)"
    )

    assert {path: small for path, small in found.items() if small} == {}
    assert high == []
    assert around == [True, True]


def test_a_followed_log_begins_anew(project: Project, page: Page) -> None:
    """If a shorter log replaces the followed one, the page shows it from its start."""
    log = held(project, page)
    log.write_text("new\n", encoding="utf-8")
    expect(page.tab.locator(".log")).to_have_text("new\n", use_inner_text=True)
    project.write("go", "")

    page.shows("It is done.")


def test_a_followed_log_may_vanish(project: Project, page: Page) -> None:
    """If a followed log is deleted, the page keeps the text that it has read and continues to update."""
    log = held(project, page)
    log.unlink()
    project.write("go", "")
    page.shows("It is done.")

    expect(page.tab.locator(".log")).to_contain_text("first")


def test_a_large_log_opens_at_its_end(project: Project, page: Page) -> None:
    """The page requests and keeps only the end of a log of 100 MB."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    log = project.data / "runs" / run["run_id"] / "logs" / "large.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        os.truncate(file.fileno(), MEGABYTES * 2**20)
        file.seek(0, os.SEEK_END)
        file.write(b"a line of the end\n" * 20_000 + b"the last line\n")
    page.open(f"/runs/{run['run_id']}")
    follow(page, re.compile("large"))
    shown = page.tab.locator(".log")
    expect(shown).to_contain_text("the last line")
    expect(page.tab.locator(".log")).to_be_in_viewport()

    text = shown.text_content() or ""
    assert "\0" not in text
    assert len(text) <= TAIL_CHARACTERS
    assert shown.evaluate("log => log.scrollTop + log.clientHeight >= log.scrollHeight - 2")


@pytest.mark.parametrize(("motion", "turns"), [("reduce", "none"), ("no-preference", "turn")])
def test_little_motion_is_respected(chromium: Browser, project: Project, motion: str, turns: str) -> None:
    """The icon of a running run does not turn for a person who prefers reduced motion."""
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    with (
        served.in_a_thread(project) as address,
        chromium.new_context(base_url=address, reduced_motion="reduce" if motion == "reduce" else None) as context,
    ):
        page = Page(context)
        page.api("POST", "/api/runs", {"recipe_id": "held"})
        page.open("/runs")
        sign = page.tab.locator(".icon-running").first
        sign.wait_for()
        name = sign.evaluate("sign => getComputedStyle(sign).animationName")
        project.write("go", "")
        expect(page.tab.locator(".status-done")).to_have_count(1)

    assert name == turns


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dialogs_drawers_and_faults_are_accessible(chromium: Browser, project: Project, site: str, scheme: str) -> None:
    """Dialogs, drawers and faults satisfy the accessibility rules in both colour schemes."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    scene = "Story/Scenes/SCN-the-arrival.md"
    with chromium.new_context(
        base_url=site, color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce"
    ) as context:
        page = Page(context)
        failed = page.api(
            "POST", "/api/runs", {"recipe_id": "picky", "args": {"scene_path": scene, "other_path": scene}}
        )
        waiting = page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
        page.api("POST", "/api/notifications/endpoints", {"name": "told", "url": "https://example.org/hook"})
        issue = page.api("POST", "/api/issues", {"title": "issue", "body": "look"})
        trigger = page.api("POST", "/api/triggers", {"recipe_id": "quick", "schedule": {"every_seconds": 3600}})
        plan = page.api(
            "POST", "/api/sessions", {"intent": "Look", "tasks": [{"description": "look", "recipe_id": "quick"}]}
        )
        dialog = page.tab.locator("dialog[open]")

        def check(what: str) -> None:
            page.load_axe()
            assert page.violations() == [], what

        def opened(path: str, *buttons: str) -> None:
            page.open(path)
            for name in buttons:
                page.button(name).first.click()
                dialog.wait_for()
                check(f"{path} {name}")
                page.tab.keyboard.press("Escape")
                expect(dialog).to_have_count(0)

        run_path = f"/runs/{failed['run_id']}"
        page.open(run_path).shows("Why it failed")
        opened(run_path, "Resume", "Fork", "Delete", "Add labels")
        page.tab.get_by_role("link", name="analyze", exact=True).first.click()
        page.tab.locator(".drawer .attempt").wait_for()
        check("drawer")
        page.open("/inbox").shows("Go on?")
        opened("/inbox", "approve", "deny")
        opened(f"/runs/{waiting['run_id']}", "Pause", "Cancel", "Set limits")
        opened("/cost", "Add a budget")
        opened(f"/plans/{plan['session_id']}", "Approve", "Delete", "Remove")
        for name in ("Edit", "Add a task"):
            page.button(name).click()
            page.button("Back").wait_for()
            check(f"plan: {name}")
            page.button("Back").click()
        opened(f"/triggers/{trigger['trigger_id']}", "Remove")
        opened("/notifications", "Remove")
        page.open("/issues")
        page.tab.get_by_role("checkbox").first.check()
        page.button("Close").click()
        dialog.wait_for()
        check("bulk bar of issues")
        page.open("/runs")
        page.tab.get_by_role("checkbox").first.check()
        page.button("Label").click()
        dialog.wait_for()
        check("bulk bar of runs")
        for path in (
            f"/issues/{issue['issue_id']}",
            f"/triggers/{trigger['trigger_id']}",
            "/runs/20260101T000000Z-none00",
        ):
            page.open(path)
            expect(page.tab.locator("main :is(dl, .fault)").first).to_be_visible()
            check(path)
        page.open(f"/triggers/{trigger['trigger_id']}").shows("It starts quick every hour.")
        page.open("/start?recipe=draft")
        page.tab.locator("#start").click()
        page.tab.locator(".wrong-text").first.wait_for()
        check("wrong form")
        page.tab.keyboard.press("Escape")
        page.tab.locator("h1").focus()
        page.tab.keyboard.press("?")
        dialog.wait_for()
        check("help")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_dialogs_of_keys_are_accessible(chromium: Browser, project: Project, site: str, scheme: str) -> None:
    """The panel with a new secret, and the dialogs that rotate or revoke a key, satisfy the accessibility rules."""
    with chromium.new_context(
        base_url=site, color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce"
    ) as context:
        page = Page(context).open("/access")
        page.tab.get_by_label("Name").fill("ada")
        page.button("Add a key").click()
        page.shows("The secret of ada")
        page.load_axe()
        assert page.violations() == []
        page.button("I have kept it").click()
        for name in ("Rotate", "Revoke"):
            page.button(name).click()
            page.tab.locator("dialog[open]").wait_for()
            assert page.violations() == [], name
            page.tab.keyboard.press("Escape")
            expect(page.tab.locator("dialog[open]")).to_have_count(0)


def test_the_costs_of_two_recipes_are_compared(project: Project, page: Page) -> None:
    """Reported and estimated prices appear side by side: in the chart, the table, the list, and on the run's page."""
    prices = {"version": "v1", "models": {"*": {"input_per_million_usd": 1000, "output_per_million_usd": 5000}}}
    page.api("PUT", "/api/prices", prices)
    project.add_recipe({**draft("told"), "label": "Told"})
    project.add_recipe({**draft("guessed"), "label": "Guessed"})
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    for recipe_id, cost_usd in (("told", 0.25), ("guessed", None)):
        usage = {"input_tokens": 100, "output_tokens": 10, "cost_usd": cost_usd}
        project.say("draft", text="It is dark.", usage=usage)
        project.say("polish", text="It was dark.", usage=usage | {"cost_usd": None})
        run = page.api("POST", "/api/runs", {"recipe_id": recipe_id, "args": args})
        page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.shows("Cost≈ $0.30")
    page.open("/cost")
    cells = page.tab.locator("tbody tr")

    expect(cells).to_have_count(2)
    expect(cells.filter(has_text="guessed").locator("td")).to_have_text(
        ["guessed", "1", "2", "200", "20", "unknown", "≈ $0.30", "≈ $0.30", "2"]
    )
    expect(cells.filter(has_text="told").locator("td")).to_have_text(
        ["told", "1", "2", "200", "20", "≥ $0.25", "≈ $0.15", "$0.25 + ≈ $0.15", "1"]
    )
    expect(page.tab.locator(".legend")).to_have_text("reported estimated")
    assert page.tab.locator("svg.chart .chart-part-1").count() == 2
    page.open("/runs").shows("≥ $0.25")
    page.shows("≈ $0.30")
    page.open("/").shows("Spent today≥ $0.25")


def test_text_of_twice_the_size_is_not_cut(page: Page) -> None:
    """If the browser's text size is 200 per cent, rows grow with the text, and no page is wider than the window."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "look around"})
    sizes = page.tab.context.new_cdp_session(page.tab)
    sizes.send("Page.enable")
    sizes.send("Page.setFontSizes", {"fontSizes": {"standard": 32, "fixed": 26}})
    for path, row in (("/runs", ".runs [data-row]"), (f"/runs/{run['run_id']}", ".steps [data-row]")):
        page.open(path)
        shown = page.tab.locator(row).first
        expect(shown.locator(".name")).to_be_visible()
        heights = shown.evaluate("row => [row.clientHeight, row.querySelector('.name').getBoundingClientRect().height]")

        assert page.tab.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)") == 30
        assert heights[1] <= heights[0], path
        assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_failing_endpoint_shows_its_reason_and_next_try(project: Project, chromium: Browser) -> None:
    """The page reports that a test of an unreachable webhook failed, and shows a message's tries and its next try."""
    with (
        served.in_a_thread(project, notify_allowed=("127.0.0.1",)) as address,
        chromium.new_context(base_url=address) as context,
    ):
        page = Page(context)
        target = f"http://127.0.0.1:{ports.free_port()}/hook"
        page.api("POST", "/api/notifications/endpoints", {"url": target, "kinds": ["done"]})
        page.api("POST", "/api/runs", {"recipe_id": "quick"})
        page.open("/notifications").shows(
            re.compile(r"1 message to be sent.*1 message not delivered yet: .+ next try in")
        )
        page.button("Send a test").click()
        page.shows("The test was not delivered.")
        page.button("Give up").click()
        expect(page.tab.locator("#announcements")).to_contain_text("They are not tried again")

        page.shows("1 could not be delivered.")
        page.tab.set_viewport_size({"width": 390, "height": 844})
        assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_endpoint_shows_its_program_and_each_address(project: Project, page: Page) -> None:
    """The page shows the program of an endpoint with another name, and separates several e-mail addresses."""
    page.api("POST", "/api/notifications/endpoints", {"name": "desk", "argv": ["notify-send", "Control Room"]})
    page.api("POST", "/api/notifications/endpoints", {"name": "office", "to": ["a@example.org", "b@example.org"]})
    page.open("/notifications").shows("command notify-send Control Room")
    page.shows("email a@example.org, b@example.org")


def test_a_page_shows_an_open_gate_and_a_replaced_run(project: Project, page: Page) -> None:
    """A run at its only gate is not shown as complete; a run that a newer one cancelled links to the newer one."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    key: dict[str, Any] = {"key": "book", "limit": 1}
    older = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "concurrency": key})["run_id"]
    page.open(f"/runs/{older}").shows("1/1 + gate")
    page.shows("Go on?")
    key["policy"] = "cancel_running"
    newer = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "concurrency": key})["run_id"]

    page.shows(f"Run {newer} of the same concurrency key cancelled it.")
    page.shows("concurrency key book")
    page.tab.get_by_role("link", name=newer, exact=True).click()
    page.shows("Go on?")
    page.complaints.clear()  # The browser reports an error if the page requests the gate of the cancelled run too late.


def test_changes_are_filtered_and_older_ones_are_shown(project: Project, page: Page) -> None:
    """The list of changes filters by action, names the known actions for an unknown one, and loads older changes."""
    for number in range(101):
        page.api("POST", "/api/issues", {"title": f"note {number}", "severity": "hint"})
    page.open("/access")
    lines = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Changes")).locator("li")
    expect(lines).to_have_count(100)
    page.button("Show more").click()
    expect(lines).to_have_count(101)
    expect(page.button("Show more")).to_have_count(0)
    page.tab.get_by_label("Action").fill("key.added")
    page.tab.get_by_label("Action").press("Tab")

    page.shows("No changes yet.")


def test_all_shown_runs_are_chosen_at_once(page: Page) -> None:
    """One click adds every loaded row to the selection."""
    for number in range(3):
        page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"look {number}"})
    page.open("/runs")
    page.tab.get_by_label("Select look 1").check()
    page.button("Select all 3 shown").click()

    expect(page.tab.get_by_role("region", name="Selected runs")).to_contain_text("3 runs selected")
    expect(page.button("Select all 3 shown")).to_have_count(0)


def test_the_way_out_is_in_view(project: Project, chromium: Browser) -> None:
    """A signed-in person sees `Sign out` without scrolling, in a window 900 pixels high and in a narrow one."""
    with (
        served.in_a_thread(project, api_token="t" * 32) as address,
        chromium.new_context(base_url=address, viewport={"width": 1280, "height": 900}) as context,
    ):
        page = Page(context).open("/sign-in")
        page.tab.locator("#token").fill("t" * 32)
        page.tab.get_by_label("Your name (optional)").fill("ada")
        page.button("Sign in").click()
        page.shows("ada · admin", within="nav")
        expect(page.button("Sign out")).to_be_in_viewport(ratio=1)
        page.tab.set_viewport_size({"width": 390, "height": 844})

        expect(page.button("Sign out")).to_be_in_viewport(ratio=1)


def test_a_failed_task_is_retried_or_started_again(project: Project, page: Page) -> None:
    """`Retry` keeps the run of a task and checks it again; `Start again` starts a new run."""
    dod = [{"check": "file_exists", "path": "found.md"}]
    tasks = [{"description": "look around", "recipe_id": "quick", "dod": dod}]
    plan = page.api("POST", "/api/sessions", {"tasks": tasks})
    path = f"/api/sessions/{plan['session_id']}"
    for order in ("approve", "start"):
        page.api("POST", f"{path}/{order}")
    page.open(f"/plans/{plan['session_id']}").shows("task_dod_failed")
    failed = page.api("GET", path)
    page.button("Start again").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Start again").click()
    expect(page.tab.locator(f"a[href='/runs/{failed['tasks'][0]['run_id']}']")).to_have_count(0)
    page.shows("task_dod_failed")
    again = page.api("GET", path)
    project.write("found.md", "Here it is.")
    page.button("Retry").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Retry").click()
    page.shows("1 of 1 task done.")
    done = page.api("GET", path)

    assert [each["tasks"][0]["attempt"] for each in (failed, again, done)] == [1, 2, 2]
    assert done["tasks"][0]["run_id"] == again["tasks"][0]["run_id"]


def test_a_viewer_is_offered_no_orders(project: Project, chromium: Browser) -> None:
    """The pages show runs, plans and questions to a viewer, without the buttons that the service would refuse."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    token = {"Authorization": f"Bearer {'t' * 32}"}
    with served.in_a_thread(project, api_token="t" * 32) as address, chromium.new_context(base_url=address) as context:
        made = context.request.post("/api/keys", headers=token, data={"name": "ada", "role": "viewer"})
        run = context.request.post("/api/runs", headers=token, data={"recipe_id": "ask-first"}).json()
        page = Page(context).open("/sign-in")
        page.tab.locator("#token").fill(made.json()["secret"])
        page.button("Sign in").click()
        page.shows("ada · viewer", within="nav")
        expect(page.tab.get_by_role("link", name="Start a run")).to_have_count(0)
        page.open(f"/runs/{run['run_id']}").shows("Go on?")
        offered = page.tab.get_by_role("main").get_by_role("button").all_inner_texts()

        assert not {"approve", "deny", "Cancel", "Pause", "Delete", "Pin", "Add labels", "Set limits"} & set(offered)

        page.open("/plans").shows("No plans")
        expect(page.button("Make a plan")).to_have_count(0)


def test_a_form_changes_only_the_edited_fields(project: Project, page: Page) -> None:
    """Arguments in the form of a task answer the service's question about them; the form shows the dod and keeps it."""
    task = {"description": "draft it", "recipe_id": "draft", "dod": "It is there."}
    plan = page.api("POST", "/api/sessions", {"tasks": [task]})
    page.open(f"/plans/{plan['session_id']}").shows("Done when: It is there.")
    page.shows("Arguments are set under Edit.")
    page.button("Edit").click()
    page.tab.get_by_label("Arguments, as JSON").fill('{"scene_path": "Story/Scenes/SCN-the-arrival.md"}')
    page.button("Save").click()
    page.shows("pending")
    (saved,) = page.api("GET", f"/api/sessions/{plan['session_id']}")["tasks"]

    assert (saved["scoping_question"], saved["asked_by"], saved["dod"]) == (None, None, "It is there.")
