"""Orders reach what the page shows, ask before they spend or remove, and report when they were not answered."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration.project import Project

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


def test_a_budget_is_removed_after_a_question(page: Page) -> None:
    """`Remove` asks first and says that parked runs continue; only its confirmation sends them on."""
    page.api("PUT", "/api/budgets/tiny", {"recipe_id": "draft", "limits": {"calls": 0}})
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    run = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": args})["run_id"]
    page.open(f"/runs/{run}").shows("budget_exhausted")
    page.open("/cost")
    page.button("Remove").click()
    dialog = page.tab.locator("dialog[open]")
    expect(dialog).to_contain_text("runs that it has paused continue at once")
    dialog.get_by_role("button", name="Back").click()
    assert [budget["name"] for budget in page.api("GET", "/api/budgets")] == ["tiny"]
    page.button("Remove").click()
    dialog.get_by_role("button", name="Remove").click()

    page.shows("No budgets yet.")
    page.open(f"/runs/{run}").shows("It is done.")


def test_a_blocked_task_starts_after_a_question(project: Project, page: Page) -> None:
    """`Start now` names the task and asks before it starts ahead of the tasks that it comes after."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    first = {"id": 1, "description": "ask", "recipe_id": "ask-first"}
    second = {"id": 2, "description": "look around", "recipe_id": "quick", "deps": [1]}
    path = f"/api/sessions/{page.api('POST', '/api/sessions', {'tasks': [first, second]})['session_id']}"
    for order in ("approve", "start"):
        page.api("POST", f"{path}/{order}")
    page.open(path.replace("/api/sessions", "/plans"))
    page.button("Start now").click()
    dialog = page.tab.locator("dialog[open]")
    expect(dialog).to_contain_text("2. look around")
    assert page.api("GET", path)["tasks"][1]["status"] == "blocked"
    dialog.get_by_role("button", name="Start now").click()

    expect(page.tab.locator("#task-2 .status").first).to_have_text("done")


def test_no_question_moves_under_the_pointer(project: Project, page: Page) -> None:
    """While the pointer is on a question, a new one comes below it, and its place stays if it is answered elsewhere."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "the first"})
    page.open("/inbox")
    page.button("approve").hover()
    place = page.button("approve").bounding_box()
    assert place
    under = "([x, y]) => document.elementFromPoint(x, y).closest('[data-gate]')?.dataset.gate"
    point = [place["x"] + place["width"] / 2, place["y"] + place["height"] / 2]
    first = page.tab.evaluate(under, point)
    page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "the second"})
    cards = page.tab.locator(".gate")
    expect(cards.locator(".row-link")).to_have_text(["the first", "the second"])
    assert page.tab.evaluate(under, point) == first
    page.api("POST", f"/api/gates/{first}", {"decision": "approve"})
    page.shows("Just answered")
    assert page.tab.evaluate(under, point) == first
    page.tab.mouse.move(5, 5)

    expect(cards.locator(".row-link")).to_have_text(["the second"])


def test_an_order_without_an_answer_is_reported(page: Page) -> None:
    """An order whose connection broke stays reported when the service is back: in a form, a dialog and for a button."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})["run_id"]

    def cut(address: str) -> None:
        page.tab.route(address, lambda route: route.fallback() if route.request.method == "GET" else route.abort())

    cut("**/api/runs**")
    cut("**/api/runs/**")
    dialog = page.tab.locator("dialog[open]")
    lost = page.tab.get_by_text("The connection to the service is lost")
    for address, orders in {"/start?recipe=quick": ["Start"], f"/runs/{run}": ["Pin", "Delete"]}.items():
        page.open(address)
        for order in orders:
            page.button(order).click()
            if order == "Delete":
                dialog.get_by_role("button", name=order).click()
            expect(lost).to_be_visible()
            # It is over once the page has asked again.
            expect(lost).to_have_count(0)
            shown = dialog if order == "Delete" else page.tab.locator("main")
            expect(shown.get_by_role("alert")).to_contain_text("The service did not answer")
    page.complaints.clear()  # The browser reports broken requests as errors.


def test_the_question_that_waits_longest_is_first(project: Project, page: Page) -> None:
    """Home and Inbox list questions by the time for which they wait, the longest first."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    for name in ("first", "second", "third"):
        run = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": name})["run_id"]
        while page.api("GET", f"/api/runs/{run}?wait=10")["status"] != "waiting":
            pass
    for address in ("/", "/inbox"):
        page.open(address)

        expect(page.tab.locator(".gate .row-link")).to_have_text(["first", "second", "third"])


def test_a_double_click_is_one_order(page: Page) -> None:
    """The second click of a double click neither meets a conflict with the first one nor takes it back."""
    issue = page.api("POST", "/api/issues", {"title": "The lamp"})["issue_id"]
    body = {"recipe_id": "quick", "args": {}, "schedule": {"every_seconds": 3600}}
    trigger = page.api("POST", "/api/triggers", body)["trigger_id"]
    buttons = {f"issues/{issue}": ("Close issue", "Reopen issue"), f"triggers/{trigger}": ("Pause", "Resume")}
    for address, (name, opposite) in buttons.items():
        before = page.api("GET", f"/api/{address}")["revision"]
        page.open(f"/{address}")
        page.button(name).dblclick(delay=100)
        expect(page.button(opposite)).to_be_visible()
        page.button(opposite).dblclick(delay=100)
        expect(page.button(name)).to_be_visible()

        expect(page.tab.get_by_role("alert")).to_have_count(0)
        assert page.api("GET", f"/api/{address}")["revision"] == before + 2


def test_one_order_follows_another_at_once(page: Page) -> None:
    """A task moves two places by two quick clicks: the second order knows the revision that the first one made."""
    tasks = [{"description": name, "recipe_id": "quick"} for name in ("one", "two", "three")]
    plan = page.api("POST", "/api/sessions", {"tasks": tasks})["session_id"]
    page.open(f"/plans/{plan}")
    down = page.tab.get_by_role("button", name="Move task 1 down")
    expect(page.tab.locator(".task strong").first).to_have_text("1. one")
    # The page's own polls are not answered: it has only the answers of the orders.
    page.tab.route(f"**/api/sessions/{plan}**", lambda route: route.request.method == "GET" or route.continue_())
    down.click()
    expect(page.tab.locator(".task strong").first).to_have_text("2. two")
    down.click()
    expect(page.tab.locator(".task strong").nth(1)).to_have_text("3. three")

    expect(page.tab.get_by_role("alert")).to_have_count(0)
    assert [task["id"] for task in page.api("GET", f"/api/sessions/{plan}")["tasks"]] == [2, 3, 1]
