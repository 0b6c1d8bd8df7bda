"""Tasks that a person does over several pages, and what may interrupt them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import service
from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration import served
from tests.integration.project import Project

pytestmark = pytest.mark.slow

HELD = """\
name: held
description: Wait for a file
version: "1.0.0"
steps:
  - {id: before, type: bash, command: "echo ready"}
  - {id: hold, type: bash, command: "until [ -e go ]; do sleep 0.05; done", timeout: 300}
  - {id: after, type: bash, command: "echo over"}
schema: "1.7"
"""

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \u202egnirts\u202c \x1b[31mred \x07 {{x}} ${y}"

SHOUTING = """\
name: shouting
description: Print what no terminal should see
version: "1.0.0"
steps:
  - id: markup
    type: bash
    command: "printf '<b>bold</b><img src=x onerror=alert(3)> \\\\033[31mred\\\\033[0m \\\\342\\\\200\\\\256rtl'"
  - id: long
    type: bash
    command: "head -c 1048576 /dev/zero | tr '\\\\0' x"
stages: []
schema: "1.7"
""".replace("stages: []\n", "")


def test_a_page_survives_a_killed_service(chromium: Browser, project: Project) -> None:
    """A banner reports that the service is away; after a restart the page continues, and no row is drawn again."""
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    with service.serving(project) as running, chromium.new_context(base_url=running.address) as context:
        page = Page(context)
        page.tab.clock.install()
        run = page.api("POST", "/api/runs", {"recipe_id": "held"})
        page.open(f"/runs/{run['run_id']}").shows("It works on hold.")
        first = page.tab.locator(".steps [data-row]").first
        expect(first).to_contain_text("before")
        first.evaluate("row => { row.dataset.same = 'yes' }")
        place = first.bounding_box()
        running.kill()
        page.shows("The connection to the service is lost", within=".banner")
        assert first.bounding_box() == place
        expect(first).to_contain_text("done")
        # The page cannot know what happens meanwhile, so it stops its clocks.
        took = page.tab.locator(".steps [data-row] .right").last
        stood = took.text_content()
        page.tab.clock.fast_forward("10:00")
        page.shows("this page shows how things stood at", within=".banner")
        assert took.text_content() == stood
        running.start()

        expect(page.tab.locator(".banner")).to_have_count(0)
        page.shows("It works on hold.")
        project.write("go", "")
        page.shows("It is done.")
        expect(page.tab.locator(".steps [data-row]")).to_have_count(3)
        expect(first).to_have_attribute("data-same", "yes")


def test_a_page_opened_while_the_service_is_away_comes_with_it(chromium: Browser, project: Project) -> None:
    """A page whose files cannot be read reports this in words, and appears once the service is back."""
    with service.serving(project) as running, chromium.new_context(base_url=running.address) as context:
        page = Page(context).open("/")
        running.kill()
        page.shows("The connection to the service is lost", within=".banner")
        page.tab.get_by_role("link", name="Cost", exact=True).click()
        page.shows("The service cannot be reached")
        page.shows("It may be stopped or starting again.")
        running.start()

        expect(page.heading()).to_have_text("Cost")
        expect(page.tab.locator(".banner")).to_have_count(0)


def test_a_parked_run_names_the_limit_that_it_met(project: Project, page: Page) -> None:
    """A person raises a time limit on the run's page; the page of a run that a budget parked names the budget."""
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    late = page.api("POST", "/api/runs", {"recipe_id": "held", "limits": {"wall_seconds": 1}})
    page.open(f"/runs/{late['run_id']}").shows("time_limit")
    page.shows("It is paused again at once while the limit is reached.")
    project.write("go", "")
    page.button("Raise the limit").click()
    page.tab.locator("dialog[open]").get_by_label("At most seconds since the start").fill("600")
    page.tab.locator("dialog[open]").get_by_role("button", name="Save").click()
    page.shows("It is done.")
    page.api("PUT", "/api/budgets/tiny", {"recipe_id": "draft", "limits": {"calls": 0}})
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    parked = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": args})

    page.open(f"/runs/{parked['run_id']}").shows("Raise the budget tiny under Cost")


def test_a_gate_is_denied(project: Project, page: Page) -> None:
    """A denial needs confirmation and ends the run, and the run's page shows its reason."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    page.open(f"/runs/{run['run_id']}").shows("Go on?")
    page.tab.get_by_label("Message (optional)").fill("not like this")
    page.button("deny").click()
    expect(page.tab.locator("dialog[open]")).to_contain_text(
        f"Step approval:look of ask-first, run {run['run_id']}, asked "
    )
    page.tab.locator("dialog[open]").get_by_role("button", name="Back").click()
    expect(page.tab.locator("[data-gate]")).to_have_count(1)
    page.button("deny").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="deny").click()

    page.shows("It was denied")
    expect(page.tab.locator(".lead")).to_have_text("denied")
    expect(page.tab.locator("[data-gate]")).to_have_count(0)
    expect(page.tab.locator(".steps [data-row]", has_text="approval:look")).to_contain_text("denied")
    expect(page.tab.locator("svg .node", has_text="denied")).to_have_count(1)
    expect(page.button("Resume")).to_have_count(0)
    page.button("Fork").click()
    expect(page.tab.locator("dialog[open]").get_by_label("From step")).to_have_value("approval:look")
    page.tab.locator("dialog[open]").get_by_label("From step").fill("count")
    expect(page.tab.locator("dialog[open]")).to_contain_text("Performed next: count")
    expect(page.tab.locator("dialog[open]").get_by_role("button", name="Fork")).to_be_enabled()

    page.open(f"/runs/{run['run_id']}?step=approval:look")
    expect(page.tab.locator(".attempt")).to_contain_text("denied · attempt 1")
    failed = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": "none.md"}})
    page.open(f"/runs/{failed['run_id']}").shows("file_not_found")
    page.open("/")
    section = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Failed in the last 24 hours"))

    ended = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Recently finished"))

    expect(ended.locator("li", has_text="Approval denied")).to_contain_text("denied")
    expect(section.locator("a[href^='/runs/2']")).to_have_count(1)
    expect(section).to_contain_text("File not found")


def test_approval_search_run_and_step_are_reached_by_keyboard(project: Project, page: Page) -> None:
    """A person reaches an approval, a search, a run and a step from the home page without a pointer."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    for number in range(3):
        page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"look {number}"})
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    page.open("/")
    press = page.tab.keyboard.press
    press("g")
    press("i")
    page.shows("Go on?")
    press("a")
    page.tab.locator("dialog[open]").wait_for()
    press("Tab")
    press("Enter")
    page.shows("Nothing waits for you.")
    press("g")
    press("r")
    expect(page.heading()).to_have_text("Runs")
    press("/")
    page.tab.keyboard.type("look 1")
    expect(page.tab.locator(".runs [data-row]")).to_have_count(1)
    press("Enter")
    press("Enter")
    page.tab.wait_for_url("**/runs/2*")
    page.shows("look 1")
    expect(page.tab.locator(".steps [data-row]")).to_have_count(1)
    press("j")
    press("Enter")
    page.tab.locator(".drawer").wait_for()
    press("Escape")
    expect(page.tab.locator(".drawer")).to_have_count(0)
    expect(page.tab.locator(".steps .row-link").first).to_be_focused()
    press("?")
    page.tab.locator("dialog[open]").wait_for()
    press("Escape")
    expect(page.tab.locator("dialog[open]")).to_have_count(0)
    press("g")
    press("p")
    expect(page.heading()).to_have_text("Plans")

    assert page.api("GET", f"/api/runs/{run['run_id']}?wait=20")["status"] == "done"


def test_rows_are_walked_through(page: Page) -> None:
    """`j` and `k` move from row to row, and the row with the focus stays in view."""
    for number in range(60):
        page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"look {number:02}"})
    page.open("/runs")
    expect(page.tab.locator(".runs .row-link").first).to_have_text("look 59")
    for _ in range(50):
        page.tab.keyboard.press("j")
    expect(page.tab.locator(".row-link:focus")).to_have_text("look 10")
    expect(page.tab.locator(".row-link:focus")).to_be_in_viewport()
    page.tab.keyboard.press("k")

    expect(page.tab.locator(".row-link:focus")).to_have_text("look 11")


def test_hostile_texts_stay_texts_everywhere(project: Project, page: Page) -> None:
    """Every page shows markup, escape codes, right-to-left marks and a line of 1 MB as plain text."""
    project.write(".control-room/recipes/amplifier/shouting.yaml", SHOUTING)
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL.replace("Go on?", "<b>Go</b> on?"))
    page.tab.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    labels = {"kind": HOSTILE[:60].replace("\x1b", "").replace("\x07", "").replace("\u202e", "").replace("\u202c", "")}
    run = page.api("POST", "/api/runs", {"recipe_id": "shouting", "description": HOSTILE, "labels": labels})
    page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": HOSTILE})
    page.api("POST", "/api/issues", {"title": "<b>title</b>", "body": HOSTILE})
    plan = page.api("POST", "/api/sessions", {"intent": HOSTILE, "tasks": [{"description": HOSTILE}]})
    issue = page.api("GET", "/api/issues?limit=1")[0]["issue_id"]
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.tab.get_by_role("combobox").select_option(index=1)
    page.tab.locator(".log").wait_for()
    for address in (
        f"/runs/{run['run_id']}?step=markup",
        f"/runs/{run['run_id']}?step=long",
        "/",
        "/inbox",
        "/runs",
        "/issues",
        f"/issues/{issue}",
        "/plans",
        f"/plans/{plan['session_id']}",
    ):
        page.open(address)
        expect(page.tab.locator("#content")).to_contain_text(re.compile("<|xxx"))
        assert page.tab.locator("#content :is(img, b, script)").count() == 0, address
        assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), address


def test_an_expired_sign_in_asks_again(chromium: Browser, project: Project) -> None:
    """When a sign-in has expired, the page asks for the token and returns to the requested page."""
    token = "the-token-of-this-service"
    with (
        served.in_a_thread(project, api_token=token) as address,
        chromium.new_context(base_url=address) as context,
    ):
        page = Page(context).open("/sign-in")
        page.tab.locator("#token").fill(token)
        page.button("Sign in").click()
        page.shows("Waiting for you")
        context.clear_cookies()
        page.tab.goto("/recipes")
        page.tab.wait_for_url("**/sign-in?**")
        page.tab.locator("#token").fill(token)
        page.button("Sign in").click()

        page.tab.wait_for_url("**/recipes")
        page.shows("quick")


def test_another_origin_is_kept_out(chromium: Browser, project: Project) -> None:
    """A page of another port can neither read the API nor give orders."""
    with (
        served.in_a_thread(project) as address,
        served.in_a_thread(Project(project.root / "other")) as other,
        chromium.new_context(base_url=other) as context,
    ):
        page = Page(context).open("/")
        send = """async ([address, method]) => {
            const body = method === "POST" ? JSON.stringify({recipe_id: "quick"}) : undefined;
            const sent = await fetch(address + "/api/runs", {method, body, mode: "no-cors"}).catch((error) => error);
            return sent instanceof Error ? "refused" : sent.type;
        }"""
        answers = [page.tab.evaluate(send, [address, method]) for method in ("GET", "POST")]
        listed = chromium.new_context(base_url=address).request.get("/api/runs").json()

    assert set(answers) <= {"refused", "opaque"}
    assert listed == []


def test_a_plan_is_edited_on_its_page(page: Page) -> None:
    """A person adds, edits, moves and removes tasks; a moved task keeps the focus, so that it can be moved further."""
    tasks = [{"description": f"look {number}", "recipe_id": "quick"} for number in (1, 2, 3)]
    plan = page.api("POST", "/api/sessions", {"intent": "Looks", "tasks": tasks})
    path = f"/api/sessions/{plan['session_id']}"
    page.open(f"/plans/{plan['session_id']}")
    page.button("Move task 1 down").focus()
    for place in (1, 2):
        page.tab.keyboard.press("Enter")
        expect(page.tab.locator(".task").nth(place)).to_contain_text("1. look 1")
        expect(page.tab.locator(".task").nth(place).locator("[data-move]:focus")).to_have_count(1)
    page.button("Add a task").click()
    page.tab.get_by_label("Description").fill("look again")
    page.tab.get_by_label("After tasks").fill("1")
    page.button("Add").click()
    page.tab.locator("#task-4").wait_for()
    page.tab.locator("#task-2").get_by_role("button", name="Edit").click()
    page.tab.get_by_label("Description").fill("look elsewhere")
    page.button("Save").click()
    page.shows("2. look elsewhere")
    page.tab.locator("#task-3").get_by_role("button", name="Remove").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Remove").click()
    expect(page.tab.locator(".task")).to_have_count(3)

    found = page.api("GET", path)["tasks"]
    assert [(task["id"], task["deps"]) for task in found] == [(2, []), (1, []), (4, [1])]
