"""What pages show is what is there: characters that steer or hide text, and figures that stay true as time passes."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from app import printable
from tests.browser.pages import Page
from tests.browser.test_details import HELD
from tests.browser.test_pages import APPROVAL
from tests.integration import served
from tests.integration.project import Project, quick

pytestmark = pytest.mark.slow

TURNED = "Delete \u202etxt.lanruoj\u202c and hid\u200bden \u2066x"
"""A question that a browser would draw as another one."""

WRITTEN = r"Delete \u202etxt.lanruoj\u202c and hid\u200bden \u2066x"
"""The same, as a person must see it."""


def test_a_question_hides_no_character(project: Project, page: Page) -> None:
    """Direction marks and unseen characters of a question are written out: in its card, its dialog and the drawer."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL.replace("Go on?", TURNED))
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": TURNED})["run_id"]
    page.open("/inbox")
    card = page.tab.locator(".gate")
    expect(card.locator(".shown")).to_have_text(WRITTEN)
    expect(card.locator(".row-link")).to_have_text(WRITTEN)
    page.button("approve").click()
    expect(page.tab.locator("dialog[open]")).to_contain_text(WRITTEN)
    page.open("/runs")
    expect(page.tab.get_by_title(WRITTEN)).to_have_text(WRITTEN)
    page.open(f"/runs/{run}")
    expect(page.heading()).to_have_text(WRITTEN)
    page.tab.locator(".steps .row-link").last.click()
    expect(page.tab.locator(".drawer")).not_to_contain_text("\u202e")


def test_the_pages_write_out_what_the_terminal_does(page: Page) -> None:
    """Each character that commands write out is written out by the pages, too; letters of other scripts are not."""
    signs = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0080))]
    assigned = [sign for sign in signs if unicodedata.category(sign) != "Cn"]
    steering = {sign for sign in assigned if printable.visible(sign) != sign}
    page.open("/inbox")
    script = 'signs => import("/ui/js/lib/base.js").then(({visible}) => signs.filter(sign => visible(sign) !== sign))'
    written = set(page.tab.evaluate(script, assigned))

    assert steering - written == set()
    assert all(unicodedata.category(sign)[0] in "CLM" for sign in written - steering), written - steering
    assert not written & set("\n\t\u200d\u200c\ufe0fשلא")


def test_a_whole_log_is_saved_with_a_sign_in(chromium: Browser, project: Project) -> None:
    """A signed-in person saves a whole log, which a link in another tab could not read."""
    token = "the-token-of-this-service"
    with served.in_a_thread(project, api_token=token) as address, chromium.new_context(base_url=address) as context:
        page = Page(context).open("/start?recipe=draft")
        page.tab.locator("#token").fill(token)
        page.button("Sign in").click()
        page.tab.locator("#arg-scene_path").fill("Story/Scenes/SCN-the-arrival.md")
        page.tab.locator("#start").click()
        page.shows("It is done.")
        page.tab.get_by_role("combobox", name="Log").select_option("draft.1.prompt.md")
        with page.tab.expect_download() as saved:
            page.tab.get_by_role("link", name="Save whole log").click()

        assert saved.value.suggested_filename == "draft.1.prompt.md"
        assert "Write it." in saved.value.path().read_text()


def test_a_choice_without_a_default_is_not_made_by_the_page(project: Project, page: Page) -> None:
    """A required choice shows that it is still to be made, and a run starts with the value that the form shows."""
    properties = {"tone": {"enum": ["warm", "cold"]}}
    project.add_recipe({**quick("toned"), "args_schema": {"properties": properties, "required": ["tone"]}})
    page.open("/start?recipe=toned")
    tone = page.tab.get_by_label("Tone (required)")
    expect(tone.locator("option:checked")).to_have_text("choose…")
    page.tab.locator("#start").click()
    page.shows("This argument is required.")
    tone.select_option("warm")
    page.tab.locator("#start").click()
    page.shows("It is done.")

    run = page.tab.url.rpartition("/")[2]
    assert page.api("GET", f"/api/runs/{run}")["task"]["initial_args"] == {"tone": "warm"}


def test_an_argument_that_is_true_or_false_is_a_checkbox(project: Project, page: Page) -> None:
    """A variable without a type whose default is true or false can be ticked, and is sent as a truth value."""
    head = 'name: deep\nversion: "1.0.0"\ndescription: Look\ncontext: {deep: false, wide: true}\n'
    steps = 'steps: [{id: look, type: bash, command: "echo {{deep}} {{wide}}"}]\nschema: "1.7"\n'
    project.write(".control-room/recipes/amplifier/deep.yaml", head + steps)
    page.open("/start?recipe=deep")
    expect(page.tab.get_by_role("checkbox", name="Wide")).to_be_checked()
    page.tab.get_by_role("checkbox", name="Deep").check()
    page.button("Start").click()
    page.shows("It is done.")

    run = page.api("GET", f"/api/runs/{page.tab.url.rpartition('/')[2]}")
    assert run["task"]["initial_args"] == {"deep": True, "wide": True}


def test_a_malformed_address_is_reported(page: Page) -> None:
    """An address with broken escapes shows the page for unknown addresses."""
    page.open("/runs/%E0%A4%A")

    expect(page.heading()).to_have_text("There is no such page")


def test_the_home_page_counts_the_present_day(chromium: Browser, site: str) -> None:
    """A page that stays open over midnight asks for the spending of the new day, and for the last 24 hours of then."""
    with chromium.new_context(base_url=site, timezone_id="Europe/Paris") as context:
        page = Page(context)
        # The page would otherwise follow the clock of the service, which stays in the present.
        page.tab.add_init_script(
            "const { get } = Headers.prototype;"
            "Headers.prototype.get = function (name) { return name === 'Date' ? null : get.call(this, name) };"
        )
        page.tab.clock.install(time=datetime(2026, 3, 4, 22, 59, 30, tzinfo=UTC))
        page.open("/")
        with page.tab.expect_request(re.compile("/api/stats.*since=2026-03-03T23.*today=2026-03-04T23")):
            page.tab.clock.fast_forward("01:00")


def test_a_silence_grows_in_the_heading(project: Project, chromium: Browser) -> None:
    """The sentence of a silent run counts its silence until now, not until it was reported."""
    project.say("draft", hang=True)
    with (
        served.in_a_thread(project, stalled_after_seconds=1) as address,
        chromium.new_context(base_url=address) as context,
    ):
        page = Page(context).open("/runs")
        args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
        run = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": args})["run_id"]
        page.open(f"/runs/{run}").shows("has been silent for", within=".page-title")
        page.shows(re.compile(r"has been silent for ([4-9](\.\d)?|\d\d) s"), within=".page-title")

        page.api("POST", f"/api/runs/{run}/cancel")
        page.shows("It was cancelled.")


def test_lines_that_came_later_are_not_called_valid(project: Project, page: Page) -> None:
    """A check of a running run says when it was made, and is offered again for what was written after it."""
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    run = page.api("POST", "/api/runs", {"recipe_id": "held"})["run_id"]
    page.open(f"/runs/{run}").shows("It works on write.")
    page.button("Verify").click()
    journal = page.tab.locator("dt", has_text="Journal").locator("+ dd")
    expect(journal).to_contain_text(re.compile(r"valid\s*· checked"))
    project.write("go", "")
    page.shows("It is done.")
    expect(journal).to_contain_text(re.compile(r"valid\s*· checked"))
    page.button("Verify").click()

    expect(journal).to_have_text("valid", use_inner_text=True)


def test_changes_name_the_way_in_of_a_person_without_a_name(chromium: Browser, project: Project) -> None:
    """The list of changes says whether a nameless person came in a browser or with the token."""
    token = "the-token-of-this-service"
    with served.in_a_thread(project, api_token=token) as address, chromium.new_context(base_url=address) as context:
        page = Page(context).open("/start?recipe=quick")
        page.tab.locator("#token").fill(token)
        page.button("Sign in").click()
        page.tab.locator("#start").click()
        page.shows("It is done.")
        bearer = {"Authorization": f"Bearer {token}"}
        with chromium.new_context(base_url=address) as other:
            assert other.request.post("/api/runs", data={"recipe_id": "quick"}, headers=bearer).ok
        page.open("/access")

        expect(page.tab.locator("main li", has_text="a person, in a browser")).to_have_count(1)
        expect(page.tab.locator("main li", has_text="a person, with the token")).to_have_count(1)


def test_counts_equal_the_lists_behind_them(project: Project, page: Page) -> None:
    """A denied run is in neither the count nor the list of failures; a run that a person paused is in each list."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    project.write(".control-room/recipes/amplifier/held.yaml", HELD)
    args = dict.fromkeys(("scene_path", "other_path"), "Story/Scenes/SCN-the-arrival.md")
    page.api("POST", "/api/runs", {"recipe_id": "picky", "description": "the bad one", "args": args})
    page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "the denied one"})
    page.open("/inbox").shows("Go on?")
    page.api("POST", f"/api/gates/{page.api('GET', '/api/gates')[0]['gate_id']}", {"decision": "deny"})
    held = page.api("POST", "/api/runs", {"recipe_id": "held", "description": "the paused one"})["run_id"]
    page.open(f"/runs/{held}").shows("It works on write.")
    page.api("POST", f"/api/runs/{held}/pause", {"interrupt": True})
    page.shows("It is paused by a person.")
    page.open("/")
    expect(page.tab.get_by_title("waiting for you")).to_have_text("1")
    waiting = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Waiting for you 1"))
    expect(waiting.locator(".row-link")).to_have_text(["the paused one"])
    failures = page.tab.locator("section", has=page.tab.get_by_role("heading", name="Failed in the last 24 hours 1"))
    expect(failures.locator(".row-link")).to_have_text(["the bad one"])
    page.tab.get_by_role("link", name="1 failed in 24 hours").click()
    expect(page.tab.locator(".runs .row-link")).to_have_text(["the bad one"])
    page.button("Failed in 24 hours ✕").click()

    expect(page.tab.locator(".runs .row-link")).to_have_count(3)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_times_are_relative_to_the_clock_of_the_service(chromium: Browser, site: str, minutes: int) -> None:
    """A browser whose clock is wrong shows the age that the service knows, and never a start in the future."""
    with chromium.new_context(base_url=site) as context:
        context.add_init_script(f"const real = Date.now; Date.now = () => real() + {minutes} * 60000")
        page = Page(context)
        run = page.api("POST", "/api/runs", {"recipe_id": "quick"})["run_id"]
        page.open(f"/runs/{run}").shows("It is done.")

        expect(page.tab.locator(".facts time").first).to_have_text(re.compile(r"^(now|\d+ s ago)$"))


def test_home_lists_a_failed_run_once(page: Page) -> None:
    """What failed is not listed among the runs that finished recently as well."""
    args = dict.fromkeys(("scene_path", "other_path"), "Story/Scenes/SCN-the-arrival.md")
    bodies: dict[str, dict[str, Any]] = {"good": {"recipe_id": "quick"}, "bad": {"recipe_id": "picky", "args": args}}
    for name, body in bodies.items():
        run = page.api("POST", "/api/runs", {**body, "description": f"the {name} one"})["run_id"]
        while page.api("GET", f"/api/runs/{run}?wait=10")["status"] not in ("done", "failed"):
            pass
    page.open("/").shows("Recently finished")

    expect(page.tab.get_by_role("link", name="the bad one")).to_have_count(1)
    expect(page.tab.get_by_role("link", name="the good one")).to_have_count(1)


def test_a_graph_shows_a_gate_as_waiting_and_the_middle_first(project: Project, page: Page) -> None:
    """A gate that asks has the colour of what waits; a plan's graph that is too broad shows its middle first."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first"})["run_id"]
    page.open(f"/runs/{run}").shows("Go on?")
    expect(page.tab.locator(".node.kind-gate")).to_have_class(re.compile("node-waiting"))
    tasks: list[dict[str, Any]] = [{"description": "Look: all", "recipe_id": "quick"}]
    tasks += [{"description": f"Look: part {number}", "recipe_id": "quick", "deps": [1]} for number in range(2, 9)]
    plan = page.api("POST", "/api/sessions", {"tasks": tasks})["session_id"]
    page.open(f"/plans/{plan}")
    graph = page.tab.locator(".graph")
    expect(graph.locator(".node-name").first).to_have_text("1. Look: all")

    hidden = "graph => graph.scrollWidth - graph.clientWidth - 2 * graph.scrollLeft"
    assert graph.evaluate("graph => graph.scrollLeft") > 0
    assert abs(graph.evaluate(hidden)) <= 20


TURNS = """version: "1.1"
name: turns
steps:
  - {name: First, command: ["echo", "one"], on: {success: {goto: _end}}}
  - {name: Second, command: ["echo", "two"]}
"""
"""A workflow that ends before its last step."""


def test_a_run_that_is_done_has_no_steps_left(project: Project, page: Page) -> None:
    """A run that took another way than through all steps counts those that it took, without a share of the others."""
    project.write(".control-room/recipes/orchestrate/turns.yaml", TURNS)
    run = page.api("POST", "/api/runs", {"recipe_id": "turns"})["run_id"]
    page.open(f"/runs/{run}").shows("It is done.")
    expect(page.tab.locator(".section", has_text="Steps").get_by_text("1 step", exact=True)).to_be_visible()

    expect(page.tab.locator("main progress")).to_have_count(0)


def test_what_is_not_known_of_a_run_is_a_sentence(page: Page) -> None:
    """The form says which loop keeps the number of calls open, in a whole sentence."""
    page.open("/start?recipe=data_pipeline_with_dependencies")

    page.shows("How often it calls agents is not known: the loop TransformFiles takes its items from another step.")
