"""Each page of the UI in a real browser, against a real service with scripted agents."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.pages import Page
from tests.integration.project import Project

pytestmark = pytest.mark.slow

APPROVAL = """\
name: ask-first
description: Ask before anything else
version: "1.0.0"
stages:
  - name: look
    steps:
      - {id: count, type: bash, command: "echo 3"}
    approval: {required: true, prompt: "Go on?"}
schema: "1.7"
"""

UNKNOWN = "/none"
"""The service answers 404 with the pages, which report the unknown address themselves."""

PAGES = {
    "/": "Home",
    "/inbox": "Inbox",
    "/runs": "Runs",
    "/plans": "Plans",
    "/cost": "Cost",
    "/triggers": "Triggers",
    "/notifications": "Notifications",
    "/rules": "Rules",
    "/access": "Access",
    "/cost?by=day&show=tokens": "Cost",
    "/issues": "Issues",
    "/conferences": "Conferences",
    "/recipes": "Recipes",
    "/agents": "Agents",
    "/start": "Start a run",
    "/start?recipe=draft": "Start a run",
    "/sign-in": "Sign in",
    UNKNOWN: "There is no such page",
}
"""Heading of each page."""


def test_a_question_shows_its_subject_in_its_own_form(project: Project, page: Page) -> None:
    """A question shows text, table, diff and JSON differently, all as plain text, and later who decided."""
    change = "```diff\n-<b>dark</b>\n+bright\n```\n"
    asked = f'Publish?\n\n| a | b |\n| 1 | <i>2</i> |\n\n{change}\n```json\n{{"a": 1}}\n```\n' + "long " * 5000 + "end"
    prompt = "\n".join(f"        {line}" for line in asked.splitlines())
    recipe = APPROVAL.replace("""prompt: "Go on?"}""", "}").replace(
        "{required: true, }", "\n      required: true\n      prompt: |\n" + prompt
    )
    project.write(".control-room/recipes/amplifier/ask-first.yaml", recipe)
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "Publish scene 21"})
    page.open("/inbox").shows("Publish scene 21")
    card = page.tab.locator(".gate")
    expect(card.locator(".shown-table")).to_have_text("| a | b |\n| 1 | <i>2</i> |\n", use_inner_text=True)
    expect(card.locator(".shown-diff .removed")).to_have_text("-<b>dark</b>")
    expect(card.locator(".shown-diff .added")).to_have_text("+bright")
    expect(card.locator(".shown-json")).to_have_text('{"a": 1}')
    assert card.locator("i, b").count() == 0
    expect(card).not_to_contain_text("long end")
    card.get_by_role("button", name=re.compile("Show all 25,00. characters")).click()
    expect(card).to_contain_text("long end")
    page.tab.get_by_label("Message (optional)").fill("well done")
    page.button("approve").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="approve").click()
    page.shows(re.compile("Just answered.*Publish scene 21.+approve.+well done.+by you"))
    page.open(f"/runs/{run['run_id']}").shows("It is done.")

    page.tab.locator(".steps [data-row] a").last.click()
    page.shows("well done", within=".drawer")


def test_older_runs_are_read_when_one_comes_near(page: Page) -> None:
    """The list of runs loads further pages while a person scrolls."""
    for number in range(130):
        page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"look {number:03}"})
    page.open("/runs")
    rows = page.tab.locator(".runs [data-row]")
    expect(rows.first).to_contain_text("look 129")
    expect(page.tab.locator(".runs")).to_have_attribute("aria-rowcount", "101")
    page.tab.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.tab.locator(".runs")).to_have_attribute("aria-rowcount", "131")
    page.tab.evaluate("scrollTo(0, document.documentElement.scrollHeight)")

    expect(rows.filter(has_text="look 000")).to_be_visible()
    assert rows.count() < 80


def test_a_refused_form_shows_faults_beside_their_fields(page: Page) -> None:
    """Missing and refused values are reported beside their fields, and no run starts."""
    page.open("/start?recipe=analytical_prose")
    page.tab.locator("#start").click()
    expect(page.tab.locator("#arg-scene_path-help")).to_contain_text("This argument is required.")
    page.tab.locator("#arg-scene_path").fill("x" * 1025)
    page.tab.locator("#start").click()

    expect(page.tab.get_by_role("alert")).to_contain_text("args_invalid")
    expect(page.tab.locator("#arg-scene_path-help")).to_contain_text("1024")
    assert page.api("GET", "/api/runs") == []
    page.complaints.clear()  # The browser reports each refusal as an error.


def test_files_are_offered_where_an_argument_names_one(project: Project, page: Page) -> None:
    """The form completes a path from the files of the project; a list of paths takes one path after the other."""
    page.open("/start?recipe=creative_draft_scene")
    offered = page.tab.locator("#files option")
    expect(offered.and_(page.tab.locator('[value="Story/Scenes/SCN-the-arrival.md"]'))).to_have_count(1)
    expect(page.tab.locator("#arg-scene_path")).to_have_attribute("list", "files")
    for path in ("Story/Scenes", "Story/Scenes/SCN-the-arrival.md"):
        page.tab.get_by_label("Add to canon paths").fill(path)
        page.tab.get_by_label("Add to canon paths").press("Tab")
        expect(page.tab.get_by_label("Add to canon paths")).to_have_value("")

    expect(page.tab.locator("#arg-canon_paths")).to_have_value("Story/Scenes\nStory/Scenes/SCN-the-arrival.md")


def test_a_form_keeps_its_entries(project: Project, page: Page) -> None:
    """Entries survive a start, the way back and a reload; unlisted paths are reported, a wrong field gets the focus."""
    page.open("/start?recipe=draft")
    page.tab.locator("#start").click()
    expect(page.tab.locator("#arg-scene_path")).to_be_focused()
    page.tab.locator("#arg-scene_path").fill("Story/none.md")
    expect(page.tab.locator("#arg-scene_path-help")).to_contain_text("Story/none.md")
    page.shows("ready, with 1 warning")
    page.tab.locator("#arg-scene_path").fill("Story/Scenes/SCN-the-arrival.md")
    expect(page.tab.locator("#arg-scene_path-help")).to_have_text("")
    page.tab.get_by_label("Description of this run").fill("the first try")
    page.tab.locator("#start").click()
    page.tab.wait_for_url("**/runs/*")
    page.tab.go_back()
    expect(page.tab.locator("#arg-scene_path")).to_have_value("Story/Scenes/SCN-the-arrival.md")
    page.tab.reload()

    expect(page.tab.locator("#arg-scene_path")).to_have_value("Story/Scenes/SCN-the-arrival.md")
    expect(page.tab.get_by_label("Description of this run")).to_have_value("the first try")


def test_a_list_without_a_schema_stays_a_list(project: Project, page: Page) -> None:
    """If only the default shows that an argument is a list of texts, the form edits it line by line."""
    steps = 'steps:\n  - {id: each, foreach: "{{names}}", as: name, type: bash, command: "echo {{name}}"}\n'
    head = 'name: each\ndescription: Each\nversion: "1.0.0"\nschema: "1.7"\ncontext: {names: [a, b]}\n'
    project.write(".control-room/recipes/amplifier/each.yaml", head + steps)
    page.open("/start?recipe=each")
    expect(page.tab.locator("#arg-names")).to_have_value("a\nb")
    page.tab.locator("#arg-names").fill("c")
    page.tab.locator("#start").click()
    page.tab.wait_for_url("**/runs/*")
    page.shows("It is done.")

    expect(page.tab.locator(".steps [data-row]")).to_have_count(1)


def test_an_answer_that_comes_too_late_is_reported(project: Project, page: Page) -> None:
    """If another answer was first, the page reports that its answer was not recorded, and shows the message written."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    page.api("POST", "/api/runs", {"recipe_id": "ask-first"})
    page.open("/inbox").shows("Go on?")
    gate = page.api("GET", "/api/gates")[0]["gate_id"]
    page.tab.get_by_label("Message (optional)").fill("not yet")
    page.button("deny").click()

    def overtaken(route: Route) -> None:
        page.api("POST", f"/api/gates/{gate}", {"decision": "approve"})
        route.continue_()

    page.tab.route(
        f"**/api/gates/{gate}", lambda route: overtaken(route) if route.request.method == "POST" else route.continue_()
    )
    page.tab.locator("dialog[open]").get_by_role("button", name="deny").click()

    page.shows("Your answer “deny” came too late and was not recorded. Your message was: not yet")
    page.shows(re.compile("Just answered.+approve"))
    page.complaints.clear()  # The browser reports the refusal as an error.


def test_logs_of_a_run_that_was_sent_on_appear(project: Project, page: Page) -> None:
    """The page of a failed run lists the logs of its resume, even if the page was offline until the run was done."""
    steps = 'steps:\n  - {id: one, type: bash, command: "echo 1; test -e go"}\n'
    steps += '  - {id: two, type: bash, command: "echo 2"}\n'
    head = 'name: stops\ndescription: Stop\nversion: "1.0.0"\nschema: "1.7"\n'
    project.write(".control-room/recipes/amplifier/stops.yaml", head + steps)
    run = page.api("POST", "/api/runs", {"recipe_id": "stops"})
    page.open(f"/runs/{run['run_id']}").shows("Why it failed")
    logs = page.tab.get_by_role("combobox", name="Log").locator("option")
    expect(logs.filter(has_text="one.1")).to_have_count(1)
    project.write("go", "")
    page.tab.context.set_offline(True)
    page.api("POST", f"/api/runs/{run['run_id']}/resume")
    while page.api("GET", f"/api/runs/{run['run_id']}?wait=10")["status"] != "done":
        pass
    page.tab.context.set_offline(False)
    page.shows("It is done.")
    page.complaints.clear()  # The browser reports its requests while it was offline as errors.

    expect(logs.filter(has_text="two.1")).to_have_count(1)


def test_outputs_open_in_the_page(project: Project, page: Page) -> None:
    """An output opens in the page with its whole text, and a pointer with the payload of its receipt."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "quick"})
    page.open(f"/runs/{run['run_id']}")
    page.tab.locator("summary", has_text="discovery").click()

    expect(page.tab.locator("details[open] pre")).to_contain_text('"match_count"')


def test_a_recipe_starts_by_itself(project: Project, page: Page) -> None:
    """The form of a recipe creates a schedule from its values, and the page of the trigger controls it."""
    page.open("/start?recipe=quick")
    page.tab.locator("summary", has_text="Start it on a schedule").click()
    page.tab.get_by_label("When").select_option("cron")
    page.tab.get_by_label("Minute, hour, day, month, weekday").fill("61 * * * *")
    page.button("Create a trigger").click()
    expect(page.tab.get_by_role("alert")).to_contain_text("61")
    page.complaints.clear()  # The browser reports the refusal as an error.
    page.tab.get_by_label("Minute, hour, day, month, weekday").fill("30 7 * * MON-FRI")
    page.tab.get_by_label("Time zone").fill("Europe/Berlin")
    page.button("Create a trigger").click()
    page.shows("on the schedule 30 7 * * MON-FRI (Europe/Berlin)")
    page.shows("No runs yet.")
    page.button("Start a run now").click()
    page.shows("started")
    page.button("Pause").click()
    expect(page.button("Resume")).to_be_visible()
    page.open("/triggers")
    page.shows("paused")
    page.tab.locator("td.wide a").click()
    page.button("Remove").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Remove").click()
    page.shows("No triggers yet.")
    page.api("POST", "/api/triggers", {"recipe_id": "quick", "schedule": {"cron": "5 6 * * *", "timezone": "UTC"}})

    page.shows("every day at 06:05 (UTC)")
    assert len(page.api("GET", "/api/runs")) == 1


def test_a_run_is_run_again_from_a_step(project: Project, page: Page) -> None:
    """The drawer of a step offers a fork, shows beforehand which steps run again, and opens the new run."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick", "description": "quick"})
    page.open(f"/runs/{run['run_id']}")
    page.shows("It is done.")
    page.tab.get_by_role("link", name="discover", exact=True).first.click()
    page.button("Fork from this step").click()
    dialog = page.tab.locator("dialog[open]")
    expect(dialog).to_contain_text("0 rows of the list of steps are kept, 1 runs again.")
    dialog.get_by_label("Arguments, as JSON").fill("{")
    expect(dialog).to_contain_text("not valid JSON")
    dialog.get_by_label("Arguments, as JSON").fill("")
    dialog.get_by_role("button", name="Fork").click()
    expect(dialog).to_have_count(0)
    page.shows("It is done.")
    rows = page.api("GET", "/api/runs")

    assert [row["status"] for row in rows] == ["done"] * 2
    assert page.tab.url.endswith(next(row["run_id"] for row in rows if row["run_id"] != run["run_id"]))

    copy = page.api("POST", f"/api/runs/{run['run_id']}/fork", {})
    page.open(f"/runs/{copy['run_id']}")
    page.shows("taken over")


def test_a_fork_gets_the_arguments_that_were_changed(page: Page) -> None:
    """The dialog of a fork shows the arguments of the run, and only those that a person changes are sent."""
    failed = page.api("POST", "/api/runs", {"recipe_id": "draft", "args": {"scene_path": "none.md", "words": 90}})
    page.open(f"/runs/{failed['run_id']}").shows("file_not_found")
    page.button("Fork").click()
    dialog = page.tab.locator("dialog[open]")
    text = dialog.get_by_label("Arguments, as JSON")
    text.fill(text.input_value().replace("none.md", "Story/Scenes/SCN-the-arrival.md"))
    with page.tab.expect_request("**/fork") as sent:
        dialog.get_by_role("button", name="Fork").click()
    page.shows("It is done.")

    assert sent.value.post_data_json == {"args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}}


def test_people_get_keys(project: Project, page: Page) -> None:
    """The first key closes the service and signs in its maker; further keys are added, rotated and revoked."""
    page.open("/access")
    page.tab.get_by_label("Name").fill("ada")
    page.button("Add a key").click()
    page.shows("The secret of ada")
    page.shows("ada · admin", within="nav")
    page.button("I have kept it").click()
    assert page.tab.context.request.get("/api/runs").status == 401
    page.tab.reload()
    page.tab.get_by_label("Name").fill("bob")
    page.tab.get_by_label("Role").select_option("viewer")
    page.tab.get_by_label("Only runs with these labels").fill("book:one")
    page.button("Add a key").click()
    page.shows("The secret of bob")
    secret = page.tab.locator("section[role=status] code").last.inner_text()
    row = page.tab.locator("tr", has_text="bob")
    expect(row).to_contain_text("book=one")
    keyed = {"Authorization": f"Bearer {secret}"}
    assert page.tab.context.request.get("/api/runs", headers=keyed).status == 200
    assert page.tab.context.request.get("/api/keys", headers=keyed).status == 403
    row.get_by_role("button", name="Revoke").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    page.shows("key.")
    page.complaints.clear()  # The browser reports refusals as errors.


def test_a_runner_is_offered_no_settings(chromium: Browser, site: str, page: Page) -> None:
    """A runner sees the settings that only an admin may change, without the buttons that change them."""
    page.open("/access")
    page.tab.get_by_label("Name").fill("ada")
    page.button("Add a key").click()
    secret = page.tab.locator("section[role=status] code").last.inner_text()
    keyed = {"Authorization": f"Bearer {secret}"}
    answer = page.tab.context.request.post("/api/keys", data={"name": "bob", "role": "runner"}, headers=keyed)
    with chromium.new_context(base_url=site) as context:
        bob = Page(context).open("/sign-in")
        bob.tab.locator("#token").fill(answer.json()["secret"])
        bob.button("Sign in").click()
        bob.shows("bob · runner", within="nav")
        bob.open("/rules").shows("No run is removed.")
        expect(bob.button("Edit").first).to_be_hidden()
        bob.open("/cost").shows("No budgets yet")
        expect(bob.button("Add a budget")).to_be_hidden()
        expect(bob.tab.get_by_role("link", name="Start a run").first).to_be_visible()
    page.open("/rules").shows("No run is removed.")
    expect(page.button("Edit").first).to_be_visible()
    page.complaints.clear()  # The browser reports refusals as errors.


def test_an_endpoint_can_be_added_and_removed(project: Project, page: Page) -> None:
    """An endpoint is added, with its secret shown once, and removed."""
    page.open("/notifications")
    page.tab.get_by_label("Address").fill("https://example.org/hook")
    page.button("Add").click()
    page.shows("whsec_")
    page.shows("Sent when a run: waits for a person, fails")
    page.button("Remove").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="Remove").click()
    page.shows("No notifications are set up yet.")
    page.complaints.clear()


def test_rules_are_edited(project: Project, page: Page) -> None:
    """Rules are shown in words and edited as JSON; the page previews removals and names faults by place."""
    run = page.api("POST", "/api/runs", {"recipe_id": "quick"})
    page.open(f"/runs/{run['run_id']}").shows("It is done.")
    page.open("/rules").shows("No run is removed.")
    section = page.tab.locator("section", has_text="Removal of old runs")
    text = section.get_by_label("as JSON")
    save = section.get_by_role("button", name="Save", exact=True)
    section.get_by_role("button", name="Edit").click()
    text.fill("{")
    save.click()
    expect(section.get_by_role("alert")).to_contain_text("JSON")
    text.fill('{"rules": [{"older_than_seconds": "soon"}]}')
    save.click()
    expect(section.get_by_role("alert")).to_contain_text("older_than_seconds")
    text.fill('{"rules": [{"older_than_seconds": 0, "recipe_id": "quick"}]}')
    save.click()
    dialog = page.tab.locator("dialog[open]")
    expect(dialog).to_contain_text("Rule 1 removes 1 run within the hour")
    dialog.get_by_role("button", name="Save").click()
    expect(section.locator("tbody tr")).to_have_text(re.compile("ended over.+done, failed, cancelled.*quick"))

    policies = page.tab.locator("section", has_text="What runs may use")
    policies.get_by_role("button", name="Edit").click()
    page.api("PUT", "/api/policies", {"policies": [{"recipe_id": "draft", "limits": {"calls": 9}}]})
    policies.get_by_role("button", name="Save", exact=True).click()
    expect(policies.get_by_role("alert")).to_contain_text("Someone else has changed this")
    assert page.api("GET", "/api/policies")["policies"][0]["recipe_id"] == "draft"
    page.complaints.clear()  # The browser reports refusals as errors.


def test_a_recipe_that_is_not_there_is_marked(page: Page) -> None:
    """A budget or policy whose misspelt recipe would match no run is marked; an existing recipe is not marked."""
    mark, limits = "(there is no such recipe)", {"calls": 1}
    for name in ("daft", "draft", "decompose"):
        page.api("PUT", f"/api/budgets/{name}", {"recipe_id": name, "limits": limits})
    named = [{"recipe_id": name, "limits": limits} for name in ("daft", "draft", "*")]
    page.api("PUT", "/api/policies", {"policies": named})
    page.open("/cost")
    budgets = page.tab.locator("section", has_text="Budgets").locator("li")
    expect(budgets.filter(has_text=mark)).to_have_text(re.compile("^daft"))
    expect(budgets).to_have_count(3)
    page.open("/rules")
    policies = page.tab.locator("tbody tr")
    expect(policies.filter(has_text=mark)).to_have_text(re.compile("^daft"))
    expect(policies).to_have_count(3)


def test_prices_are_edited(page: Page) -> None:
    """An edit of prices keeps fields that the table does not show, and each change makes a new version."""
    price = {"input_per_million_usd": 3, "output_per_million_usd": 15, "context_tokens": 200000}
    first = page.api("PUT", "/api/prices", {"models": {"big-*": price}})
    page.open("/rules").shows("big-*")
    section = page.tab.locator("section", has_text="Prices")
    section.get_by_role("button", name="Edit").click()
    text = section.get_by_label("as JSON")
    text.fill(text.input_value().replace("15", "16"))
    section.get_by_role("button", name="Save", exact=True).click()
    expect(section.locator("tbody tr")).to_have_text("big-*316")
    changed = page.api("GET", "/api/prices")

    assert changed["models"] == {"big-*": {**price, "output_per_million_usd": 16}}
    assert changed["version"] != first["version"]


def test_a_run_at_its_limit_ends_once_the_limit_is_raised(project: Project, page: Page) -> None:
    """A run parks at the limit from its form, as its page reports; once the limit is raised, the run ends as `done`."""
    page.open("/start?recipe=draft")
    page.tab.locator("#arg-scene_path").fill("Story/Scenes/SCN-the-arrival.md")
    page.tab.locator("summary", has_text="Limits").click()
    page.tab.get_by_label("At most calls of agents").fill("1")
    page.tab.locator("#start").click()
    page.shows("budget_exhausted")
    page.shows("1 of 1 calls of agents")
    page.shows("is 1 call, it is used up")
    expect(page.button("Change limits")).to_be_visible()
    page.button("Raise the limit").click()
    page.tab.locator("dialog[open]").get_by_label("At most calls of agents").fill("10")
    page.tab.locator("dialog[open]").get_by_role("button", name="Save").click()
    page.shows("It is done.")
    page.open("/cost")
    page.button("Add a budget").click()
    page.tab.locator("dialog[open]").get_by_label("Name").fill("daily")
    page.tab.locator("dialog[open]").get_by_label("At most calls of agents").fill("50")
    page.tab.locator("dialog[open]").get_by_label("Period").select_option("day")
    page.tab.locator("dialog[open]").get_by_role("button", name="Save").click()
    page.shows("2 of 50 calls of agents")
    page.shows("all runs, each day")


def test_runs_are_labelled(project: Project, page: Page) -> None:
    """Labels of one run are edited as lines, several runs are labelled together, and a pin is set and removed."""
    runs = [page.api("POST", "/api/runs", {"recipe_id": "quick", "description": f"run {at}"}) for at in range(2)]
    page.open(f"/runs/{runs[0]['run_id']}")
    page.button("Add labels").click()
    page.tab.locator("dialog textarea").fill("book=one\nstray")
    page.tab.locator("dialog[open]").get_by_role("button", name="Label").click()
    expect(page.tab.locator("dialog[open]")).to_contain_text("“stray” is not a label")
    page.tab.locator("dialog textarea").fill("book=one\ndraft=2")
    page.tab.locator("dialog[open]").get_by_role("button", name="Label").click()
    expect(page.tab.get_by_role("link", name="one", exact=True)).to_be_visible()
    page.button("Pin").click()
    expect(page.button("Unpin")).to_be_visible()
    page.button("Change labels").click()
    page.tab.locator("dialog textarea").fill("book=two")
    page.tab.locator("dialog[open]").get_by_role("button", name="Label").click()
    expect(page.tab.get_by_role("link", name="two", exact=True)).to_be_visible()
    assert page.api("GET", f"/api/runs/{runs[0]['run_id']}")["labels"] == {"book": "two"}
    page.open("/runs")
    boxes = page.tab.get_by_role("checkbox")
    expect(boxes).to_have_count(2)
    for box in boxes.all():
        box.check()
    page.button("Label").click()
    page.tab.locator("dialog textarea").fill("book-\nshelf=a b")
    page.tab.locator("dialog[open]").get_by_role("button", name="Label").click()
    expect(page.tab.locator("dialog[open]")).to_have_count(0)

    assert [row["labels"] for row in page.api("GET", "/api/runs")] == [{"shelf": "a b"}] * 2


def test_a_waiting_run_shows_the_chain_to_the_question(project: Project, page: Page) -> None:
    """A run whose child waits at a gate shows the chain down to the question, with a link to answer it."""
    recipes = project.data / "recipes" / "amplifier"
    recipes.mkdir(parents=True, exist_ok=True)
    head = "description: Ask.\nversion: 1.0.0\nschema: '1.7'\n"
    asks = "stages:\n- name: look\n  steps: [{id: count, type: bash, command: 'true'}]\n"
    asks += "  approval: {required: true, prompt: 'Go on?'}\n"
    (recipes / "asks.yaml").write_text(f"name: asks\n{head}{asks}", encoding="utf-8")
    steps = "steps: [{id: inner, type: recipe, recipe: asks, context: {}}]\n"
    (recipes / "outer.yaml").write_text(f"name: outer\n{head}{steps}", encoding="utf-8")
    run = page.api("POST", "/api/runs", {"recipe_id": "outer", "description": "outer"})
    page.open(f"/runs/{run['run_id']}")
    page.shows("Why it does not move")
    page.shows("Go on?")
    expect(page.tab.locator("nav a[href='/inbox']")).to_have_text("Inbox 1")
    page.tab.get_by_role("link", name="Answer it there").click()
    page.button("approve").click()
    page.tab.locator("dialog[open]").get_by_role("button", name="approve").click()
    page.shows("It is done.")
    page.open(f"/runs/{run['run_id']}")
    page.shows("It is done.")

    expect(page.tab.locator("main")).not_to_contain_text("Why it does not move")


def test_the_form_previews_steps_agents_and_problems(project: Project, page: Page) -> None:
    """The form shows steps, agents with readiness, maximum of calls and problems while a person fills it in."""
    told = page.tab.get_by_role("region", name="Before it starts")
    page.open("/start?recipe=staged-review")
    expect(told).to_contain_text("ready to start; files are not checked")
    page.open("/start?recipe=draft")
    expect(told).to_contain_text("fill in what is required")
    expect(told).to_contain_text("polish")
    expect(page.tab.locator("#arg-scene_path-help")).to_have_text("")
    page.tab.locator("#arg-words").fill("0")
    expect(page.tab.locator("#arg-words-help")).to_contain_text("1")
    expect(told).to_contain_text("1 thing to fix first")
    page.tab.locator("#arg-words").fill("300")
    page.tab.locator("#arg-scene_path").fill("Story/Scenes/SCN-the-arrival.md")
    expect(told).to_contain_text("ready to start")
    expect(told).not_to_contain_text("not checked")
    expect(told).to_contain_text("writer-1")
    expect(told).to_contain_text("at most 2 times")
    expect(page.tab.locator("#arg-words-help")).to_have_text("")
    assert page.api("GET", "/api/runs") == []
    page.tab.route("**/api/preflight", lambda route: route.abort())
    page.tab.locator("#arg-words").fill("400")
    expect(told).to_contain_text("it can be started all the same")
    page.tab.locator("#start").click()
    page.tab.wait_for_url("**/runs/*")

    page.shows("It is done.")
    page.complaints.clear()  # The browser reports the aborted requests as errors.


def test_a_log_is_followed_while_it_grows(project: Project, page: Page) -> None:
    """The page shows the output of a step before the step ends."""
    project.write(
        ".control-room/recipes/amplifier/writing.yaml",
        'name: writing\nversion: "1.0.0"\ndescription: Write\nsteps:\n  - id: write\n    type: bash\n'
        '    command: "echo first; until [ -e go ]; do sleep 0.05; done; echo second"\nschema: "1.7"\n',
    )
    run = page.api("POST", "/api/runs", {"recipe_id": "writing"})
    page.open(f"/runs/{run['run_id']}").shows("It works on write.")
    chooser = page.tab.get_by_role("combobox", name="Log")
    output = chooser.locator("option", has_text=re.compile("write.*out"))
    # An option of a closed list is attached to the page, but not visible.
    output.wait_for(state="attached")
    chooser.select_option(label=output.text_content())
    expect(page.tab.locator(".log")).to_contain_text("first")
    expect(page.tab.locator(".log")).not_to_contain_text("second")
    project.write("go", "")

    expect(page.tab.locator(".log")).to_contain_text("second")


def test_a_step_shows_its_attempts_and_the_age_of_its_output(project: Project, page: Page) -> None:
    """The row and the drawer of a step show its two attempts; a running step shows the age of its last output."""
    project.write(
        ".control-room/recipes/amplifier/retrying.yaml",
        'name: retrying\nversion: "1.0.0"\ndescription: Try\nsteps:\n'
        '  - {id: flaky, type: bash, command: "test -e ok || { touch ok; echo no good >&2; exit 3; }",'
        " retry: {max_attempts: 3, initial_delay: 1}}\n"
        '  - {id: hold, type: bash, command: "until [ -e go ]; do sleep 0.05; done; echo heard;'
        ' until [ -e over ]; do sleep 0.05; done"}\nschema: "1.7"\n',
    )
    run = page.api("POST", "/api/runs", {"recipe_id": "retrying"})
    page.open(f"/runs/{run['run_id']}").shows("It works on hold.")
    rows = page.tab.locator(".steps [data-row]")
    expect(rows.first).to_contain_text("attempt 2")
    expect(rows.first.locator(".bar-tried")).to_have_count(1)
    expect(rows.last).not_to_contain_text("last output")
    project.write("go", "")
    expect(rows.last).to_contain_text("last output")
    rows.first.locator("a").click()
    expect(page.tab.locator(".drawer .attempt")).to_have_count(2)
    page.shows("no good", within=".drawer")
    page.button("Close").click()
    rows.last.locator("a").click()
    page.shows("Last output", within=".drawer")
    project.write("over", "")

    page.shows("It is done.")
