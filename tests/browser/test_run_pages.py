"""The page of a run: its steps' logs, the output of the step at work, many steps, large graphs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration.project import REPLY, Project

pytestmark = pytest.mark.slow

HEAD = 'version: "1.0.0"\nschema: "1.7"\ndescription: Work\n'

IN_TURN = """\
name: in-turn
steps:
  - {id: one, type: bash, command: "seq 200; echo first; until [ -e one ]; do sleep 0.05; done"}
  - {id: two, type: bash, command: "echo second; until [ -e two ]; do sleep 0.05; done"}
"""

ABREAST = """\
name: abreast
steps:
  - {id: list, type: bash, parse_json: true, output: items, command: "echo '[1, 2]'"}
  - id: each
    foreach: "{{items}}"
    as: item
    parallel: true
    type: bash
    command: "echo number {{item}}; until [ -e go ]; do sleep 0.05; done"
"""

MANY = 60


def start(project: Project, page: Page, recipe: str) -> str:
    """Start a run of a recipe, open its page, and return its id."""
    name = recipe.partition("name: ")[2].partition("\n")[0]
    project.write(f".control-room/recipes/amplifier/{name}.yaml", HEAD + recipe)
    run_id: str = page.api("POST", "/api/runs", {"recipe_id": name})["run_id"]
    page.open(f"/runs/{run_id}")
    return run_id


def many(broken: int) -> str:
    """Return a recipe of many steps in a row, one of which fails."""
    lines = [f'  - {{id: part_{number:02}, type: bash, command: "echo {number}"}}' for number in range(MANY)]
    lines[broken] = f'  - {{id: part_{broken:02}, type: bash, on_error: continue, command: "echo off; false"}}'
    return "name: many\nsteps:\n" + "\n".join(lines) + "\n"


def test_a_step_leads_to_its_logs(page: Page) -> None:
    """The drawer of a step links each of its logs, shows it in place under an address of its own, and leads back."""
    scene = "Story/Scenes/SCN-the-arrival.md"
    run = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": scene}})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.tab.locator(".steps").get_by_role("link", name="draft", exact=True).click()
    drawer = page.tab.locator(".drawer")
    expect(drawer.locator("[data-log]")).to_have_text(["prompt", "reply"])
    drawer.get_by_role("link", name="reply").press("Enter")
    expect(drawer.locator(".log")).to_contain_text(REPLY[:20])
    page.tab.wait_for_url("**?step=draft&log=draft.1.reply.md")
    expect(drawer).to_be_focused()
    page.load_axe()
    assert page.violations() == []
    drawer.get_by_role("link", name="Back to the step").press("Enter")

    expect(drawer.get_by_role("link", name="reply")).to_be_focused()
    page.open(f"/runs/{run['run_id']}?step=draft&log=draft.1.prompt.md")
    expect(drawer.locator(".log")).to_contain_text("Write it.")
    drawer.get_by_role("button", name="Close").click()
    page.tab.wait_for_url(re.compile(r"/runs/[^?]+$"))


def test_logs_of_keys_with_signs_are_found(project: Project, page: Page) -> None:
    """A step leads to its logs also where its key has signs that no file name has."""
    run_id = start(project, page, 'name: one\nsteps:\n  - {id: one, type: bash, command: "echo hi"}\n')
    page.shows("It is done.")
    found = page.tab.evaluate("""async () => {
        const {logsOf} = await import('/ui/js/parts/logs.js');
        const names = ['a%2Fb%3A%C3%A9[0].1.stdout.txt', 'a.2.reply.md', 'a.1.reply.md', 'a.b.1.reply.md', 'a.stderr'];
        return [['a/b:é[0]', 1], ['a', 2], ['a.b', undefined]].map(([key, attempt]) => logsOf(names, {key, attempt}));
    }""")

    assert found == [["a%2Fb%3A%C3%A9[0].1.stdout.txt"], ["a.2.reply.md", "a.stderr"], ["a.b.1.reply.md"]]
    assert page.api("GET", f"/api/runs/{run_id}/logs") == ["one.1.stdout.txt"]


def test_the_newest_output_is_visible_at_once(project: Project, page: Page) -> None:
    """The page shows the log of the step at work without a choice, and moves neither it nor what is below."""
    start(project, page, IN_TURN)
    log, below = page.tab.locator(".log"), page.tab.locator(".facts.card")
    expect(log).to_contain_text("first")
    expect(log).to_be_in_viewport(ratio=1)
    place = below.evaluate("facts => facts.getBoundingClientRect().y")
    project.write("one", "")
    expect(log).to_have_text("second\n", use_inner_text=True)
    project.write("two", "")
    page.shows("It is done.")

    expect(log).to_have_text("second\n", use_inner_text=True)
    assert below.evaluate("facts => facts.getBoundingClientRect().y") == place


def test_a_log_that_a_person_reads_stays(project: Project, page: Page) -> None:
    """The log of a person who has scrolled up stays when a newer step begins; the choice leads to the newest one."""
    start(project, page, IN_TURN)
    log = page.tab.locator(".log")
    expect(log).to_contain_text("first")
    log.evaluate("log => { log.scrollTop = 0 }")
    project.write("one", "")
    page.shows("It works on two.")
    chooser = page.tab.get_by_role("combobox", name="Log")
    chooser.locator("option", has_text="two.1").wait_for(state="attached")
    expect(log).to_contain_text("first")
    assert log.evaluate("log => log.scrollTop") == 0
    chooser.select_option(label="newest output")

    expect(log).to_have_text("second\n", use_inner_text=True)
    project.write("two", "")
    page.shows("It is done.")


def test_the_output_of_each_open_step_can_be_chosen(project: Project, page: Page) -> None:
    """While two steps are at work, the page offers both outputs, and links the step of the one that it shows."""
    start(project, page, ABREAST)
    chooser = page.tab.get_by_role("combobox", name="Log")
    for number in (2, 1):
        name = f"each[{number - 1}].1.stdout.txt"
        chooser.locator("option", has_text=name).wait_for(state="attached")
        chooser.select_option(label=name)
        expect(page.tab.locator(".log")).to_have_text(f"number {number}\n", use_inner_text=True)
    page.tab.locator("section", has=chooser).get_by_role("link", name="each[0]", exact=True).click()
    page.shows("each[0]", within=".drawer")
    project.write("go", "")
    page.shows("It is done.")


def test_a_question_names_its_run_only_elsewhere(project: Project, page: Page) -> None:
    """A question repeats nothing of the head of its run's page; in the Inbox it names the run and its recipe."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "look around"})
    card = page.tab.locator(".gate")
    page.open(f"/runs/{run['run_id']}")
    expect(card).to_contain_text("approval:look")
    for known in ("look around", "ask-first", run["run_id"]):
        expect(card).not_to_contain_text(known)
    page.open("/inbox")
    for known in ("look around", "ask-first", run["run_id"]):
        expect(card).to_contain_text(known)


def test_failed_steps_and_their_logs_are_found_among_many(project: Project, page: Page) -> None:
    """A filter in the address leaves the failed steps; the choice of a log offers few, and finds each by its name."""
    run_id = start(project, page, many(broken=41))
    page.shows("It is done in part")
    # A page that has seen the run at work keeps the log that it followed.
    page.open(f"/runs/{run_id}").shows("It is done in part")
    rows = page.tab.locator(".steps [data-row]")
    page.tab.get_by_label("Show").select_option("failed")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("part_41")
    page.tab.wait_for_url("**?show=failed")
    page.tab.get_by_label("Show").select_option("open")
    page.shows("No step is open.")
    chooser = page.tab.get_by_role("combobox", name="Log")
    assert chooser.locator("option").count() < MANY / 1.5
    expect(chooser.locator("option").nth(1)).to_contain_text("part_41")
    page.tab.get_by_label("Find a log").fill("part_57")
    chooser.select_option(label="part_57.1.stdout.txt")

    expect(page.tab.locator(".log")).to_have_text("57\n", use_inner_text=True)


def test_a_large_graph_fits_its_frame(project: Project, page: Page) -> None:
    """A button, with the keyboard too, shows the whole of a large graph and its real size; its texts grow as others."""
    start(project, page, many(broken=41))
    page.shows("It is done in part")
    graph, size = page.tab.locator(".graph"), "graph => [graph.scrollHeight > graph.clientHeight, graph.scrollTop > 0]"
    expect(graph).to_be_visible()
    assert graph.evaluate(size) == [True, True]
    page.button("Fit").focus()
    page.tab.keyboard.press("Enter")
    expect(page.button("100 %")).to_be_focused()
    assert graph.evaluate(size) == [False, False]
    page.tab.keyboard.press("Enter")
    expect(page.button("Fit")).to_be_visible()
    name = graph.locator(".node-name").first
    heights = [name.evaluate("name => name.getBoundingClientRect().height")]
    page.tab.evaluate("document.documentElement.style.fontSize = '187.5%'")
    heights.append(name.evaluate("name => name.getBoundingClientRect().height"))

    assert heights[1] / heights[0] == pytest.approx(2, abs=0.2)


def test_a_narrow_page_begins_with_the_list(project: Project, page: Page) -> None:
    """At 390 pixels the graph is shown on request; a list that is not long has no frame of its own."""
    page.tab.set_viewport_size({"width": 390, "height": 844})
    start(
        project,
        page,
        "name: few\nsteps:\n" + "".join(f"  - {{id: s{n}, type: bash, command: 'true'}}\n" for n in range(20)),
    )
    page.shows("It is done.")
    expect(page.tab.locator(".steps [data-row]").first).to_be_visible()
    assert page.tab.locator(".steps").evaluate("list => list.scrollHeight - list.clientHeight") <= 0
    assert page.tab.locator(".graph").count() == 0
    page.button("Show graph").click()

    expect(page.tab.locator(".graph")).to_be_visible()
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_list_scrolls_with_a_narrow_page(project: Project, page: Page) -> None:
    """At 390 pixels a long list has no frame of its own, its far rows are drawn, and the logs are above it."""
    page.tab.set_viewport_size({"width": 390, "height": 844})
    start(project, page, many(broken=41))
    page.shows("It is done in part")
    # The logs of a run that was at work are at the top anyway.
    page.tab.reload()
    rows = page.tab.locator(".steps [data-row]")
    expect(rows.first).to_contain_text("part_00")
    assert page.tab.locator(".steps").evaluate("list => list.scrollHeight - list.clientHeight") <= 0
    heads = [page.tab.get_by_role("heading", name=name) for name in ("Logs", "Steps")]
    logs, steps = (head.bounding_box() for head in heads)
    page.tab.evaluate("scrollTo(0, document.documentElement.scrollHeight)")

    expect(rows.filter(has_text=f"part_{MANY - 1}")).to_be_in_viewport()
    assert rows.count() < MANY
    assert logs
    assert steps
    assert logs["y"] < steps["y"]
    page.tab.get_by_label("Show").select_option("failed")
    expect(rows).to_have_count(1)
    logs, steps = (head.bounding_box() for head in heads)

    assert logs
    assert steps
    assert logs["y"] < steps["y"]


def test_a_long_chain_is_folded_in_the_graph(project: Project, page: Page) -> None:
    """The graph of a long chain shows where a step has failed; the steps between are one node."""
    start(
        project,
        page,
        many(broken=41) + "".join(f"  - {{id: more_{n}, type: bash, command: 'true'}}\n" for n in range(2)),
    )
    page.shows("It is done in part")

    expect(page.tab.locator(".graph .node-name")).to_have_text(
        ["part_00", "39 steps", "part_40", "part_41", "part_42", "18 steps", "more_1"]
    )
    expect(page.tab.locator(".graph .edge")).to_have_count(6)


def test_a_row_under_the_pointer_can_be_read(page: Page) -> None:
    """The state of a step has enough contrast on the ground of the row under the pointer, too."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.load_axe()
    page.tab.locator(".steps [data-row]").first.hover()

    assert page.violations() == []
