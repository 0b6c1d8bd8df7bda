"""The commands under `triggers` and `notifications`, and the examples of the pages that show them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest

from app.cli import notifications, triggers
from app.domain import notifications as notified
from app.domain import triggers as values
from app.flows import registry
from tests import example_project
from tests.integration import served
from tests.integration.project import Project

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def test_choices_are_those_of_the_engine() -> None:
    """The command line offers the same choices as the engine."""
    assert set(triggers.OVERLAPS) == set(get_args(values.Overlap))
    assert set(triggers.CATCH_UPS) == set(get_args(values.CatchUp))
    assert set(triggers.SCHEMES) == set(get_args(values.Scheme))
    assert set(notifications.KINDS) == set(get_args(notified.Kind))


def test_commands_work_on_a_folder(tmp_path: Path, cli: Any) -> None:
    """Commands on a folder add, list, pause, fire in this process, and remove a trigger."""
    project = ("--project", str(Project(tmp_path).root))
    code, out, _ = cli("triggers", "add", "quick", "--every", "1m", "--label", "by=clock", "--json", *project)
    trigger_id = json.loads(out)["trigger_id"]
    assert code == 0
    listed = cli("triggers", "list", *project)
    resting = cli("triggers", "show", trigger_id, *project)[1]
    paused = cli("triggers", "pause", trigger_id, "--json", *project)
    fired = cli("triggers", "fire", trigger_id, *project)
    shown = json.loads(cli("triggers", "show", trigger_id, "--json", *project)[1])
    text = cli("triggers", "show", trigger_id, *project)[1]
    unpaused = cli("triggers", "unpause", trigger_id, "--json", *project)
    words = ("--every", "90", "--name", "Slow", "--overlap", "queue", "--json")
    edited = json.loads(cli("triggers", "edit", trigger_id, *words, *project)[1])
    refused = cli("triggers", "edit", trigger_id, "--new-address", *project)
    removed = cli("triggers", "remove", trigger_id, *project)
    gone = cli("triggers", "show", trigger_id, *project)

    assert (edited["schedule"]["every_seconds"], edited["name"], edited["overlap"]) == (90, "Slow", "queue")
    assert (refused[0], "$.webhook" in refused[2]) == (2, True)
    assert "every 60 s" in listed[1]
    assert json.loads(out)["next_at"][0] in listed[1]
    assert re.search(r"^labels +by=clock$", resting, re.MULTILINE)
    assert "(once it is unpaused)" not in resting
    assert "(once it is unpaused)" in text
    assert (json.loads(paused[1])["paused"], json.loads(unpaused[1])["paused"]) == (True, False)
    assert fired[0] == 0
    assert [one["result"] for one in shown["history"]] == ["started"]
    assert shown["history"][0]["run_id"] in text
    assert (removed[0], gone[0]) == (0, 4)
    assert "[trigger_not_found]" in gone[2]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("add", "quick", "--label", "by=clock"), "exactly one of --cron, --every, --at, --webhook and --files"),
        (("add", "quick", "--every", "60", "--files", "in/*.md"), "exactly one of --cron"),
        (("add", "quick", "--files", "../*.md"), "--files: must be relative"),
        (("edit", "TRIGGER", "--every", "0"), "--every: must be from 10 to 31622400 seconds"),
        (("edit", "TRIGGER", "--cron", ""), "--cron: ''"),
        (("edit", "TRIGGER", "--timezone", ""), "--timezone: there is no time zone"),
    ],
)
def test_a_wrong_trigger_is_refused_at_its_option(tmp_path: Path, cli: Any, words: tuple[str, ...], named: str) -> None:
    """The message names the option with the fault, also if its value is empty or zero."""
    project = ("--project", str(Project(tmp_path).root))
    added = cli("triggers", "add", "quick", "--cron", "0 6 * * *", "--json", *project)
    trigger_id = json.loads(added[1])["trigger_id"]
    code, _, err = cli("triggers", *(trigger_id if word == "TRIGGER" else word for word in words), *project)

    assert (code, named in err) == (2, True), err


def test_another_time_keeps_the_zone(tmp_path: Path, cli: Any) -> None:
    """An edit with --cron alone is in the time zone of the trigger, and one with --timezone keeps the times."""
    project = ("--project", str(Project(tmp_path).root))
    zone = ("--timezone", "Europe/Berlin")
    added = cli("triggers", "add", "quick", "--cron", "0 6 * * *", *zone, "--json", *project)
    edit = ("triggers", "edit", json.loads(added[1])["trigger_id"], "--json", *project)
    later = json.loads(cli(*edit, "--cron", "0 7 * * *")[1])
    elsewhere = json.loads(cli(*edit, "--timezone", "Asia/Tokyo")[1])

    assert later["schedule"] == {"cron": "0 7 * * *", "timezone": "Europe/Berlin"}
    assert elsewhere["schedule"] == {"cron": "0 7 * * *", "timezone": "Asia/Tokyo"}


def test_a_recipe_that_is_not_there_is_pointed_out(tmp_path: Path, cli: Any) -> None:
    """A budget, policy, rule or key with a misspelt recipe, which matches no run, is stored with a warning."""
    project = ("--project", str(Project(tmp_path / "p").root))
    (tmp_path / "policies.json").write_text('{"policies": [{"recipe_id": "daft", "limits": {"calls": 1}}]}')
    (tmp_path / "every.json").write_text('{"policies": [{"recipe_id": "*", "limits": {"calls": 1}}]}')
    (tmp_path / "rules.json").write_text('{"rules": [{"older_than_seconds": 9, "recipe_id": "daft"}]}')
    orders = [
        ("budgets", "set", "b", "--recipe", "{}", "--max-calls", "1"),
        ("policies", "set", str(tmp_path / "policies.json")),
        ("retention", "set", str(tmp_path / "rules.json")),
        ("keys", "add", "ada", "--recipe", "{}"),
    ]
    cli("keys", "add", "root", "--role", "admin", *project)
    answers = [cli(*(word.format("daft") for word in order), *project) for order in orders]
    right = cli(*(word.format("draft") for word in orders[0]), *project)
    flows = [
        cli("budgets", "set", name, "--recipe", name, "--max-calls", "1", *project) for name in registry.RECIPE_IDS
    ]
    every = cli("policies", "set", str(tmp_path / "every.json"), *project)

    assert [code for code, _, _ in answers] == [0] * len(orders)
    for _, _, err in answers:
        assert "warning: there is no recipe 'daft' now; did you mean draft" in err
    for code, _, err in (right, *flows, every):
        assert (code, "warning" in err) == (0, False)


def test_limits_of_policies_are_shown_whole(tmp_path: Path, cli: Any) -> None:
    """Large limits of a policy are shown in digits, as those of budgets are."""
    limits = '{"tokens": 1234567, "wall_seconds": 2592000, "cost_usd": 0.035}'
    (tmp_path / "policies.json").write_text(f'{{"policies": [{{"recipe_id": "*", "limits": {limits}}}]}}')
    shown = cli("policies", "set", str(tmp_path / "policies.json"), "--project", str(Project(tmp_path / "p").root))[1]

    assert "cost_usd 0.035, tokens 1,234,567, wall_seconds 2,592,000" in shown


def test_a_run_paused_at_a_limit_names_both_commands_that_continue_it(tmp_path: Path, cli: Any) -> None:
    """Without a service, raising the limit continues nothing: the run and the raise name the next command."""
    made = Project(tmp_path / "p")
    project = ("--project", str(made.root))
    scene = ("--arg", "scene_path=Story/Scenes/SCN-the-arrival.md")
    paused = cli("run", "draft", *scene, "--max-calls", "0", *project)[2]
    run_id = json.loads(cli("runs", "list", "--json", *project)[1])[0]["run_id"]
    raised = cli("runs", "limits", run_id, "--max-calls", "9", *project)[2]
    order = f"control-room runs unpause {run_id} --project {made.root}"

    assert f"runs limits {run_id} --max-calls N" in paused
    assert [order in each for each in (paused, raised)] == [True, True]


def test_a_plan_paused_at_a_limit_names_the_command_that_continues_it(tmp_path: Path, cli: Any) -> None:
    """Raising the limit unpauses the run of a plan, and the order beside it executes that run and the plan."""
    made = Project(tmp_path / "p")
    project = ("--project", str(made.root))
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    task = {"description": "Draft it", "recipe_id": "draft", "args": args}
    (tmp_path / "plan.json").write_text(json.dumps({"intent": "All", "tasks": [task]}))
    (tmp_path / "policies.json").write_text('{"policies": [{"recipe_id": "draft", "limits": {"calls": 0}}]}')
    cli("policies", "set", str(tmp_path / "policies.json"), *project)
    plan = json.loads(cli("plan", "create", "--file", str(tmp_path / "plan.json"), "--json", *project)[1])
    cli("plan", "approve", plan["session_id"], *project)
    paused = cli("plan", "start", plan["session_id"], *project)[2]
    raised, order = re.findall(r"(?:continue with|and then): control-room (.*)", paused)
    cli(*raised.replace(" N ", " 9 ").split())
    code, _, err = cli(*order.split())

    assert order == " ".join(("plan", "follow", plan["session_id"], *project))
    assert code == 0, err


def test_a_trigger_shows_why_it_started_nothing_in_full(tmp_path: Path, cli: Any) -> None:
    """The table shows whole refusal reasons, since senders of deliveries are referred to it, and a run's values."""
    reason = f"$.args.scene_path: {'a long way down ' * 20}[args_invalid]"
    with served.in_a_thread(Project(tmp_path)) as url:
        words = ("--webhook", "github", "--event", "push", "--label", "by=hook", "--arg-from", "scene_path=/a/0")
        added = json.loads(cli("triggers", "add", "draft", *words, "--json", "--server", url)[1])
    path = tmp_path / ".control-room" / "triggers" / f"{added['trigger_id']}.json"
    at = {"due_at": added["created_at"], "at": added["created_at"]}
    history = [{"occurrence": "one", "result": "refused", "reason": reason} | at]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"history": history}))
    shown = cli("triggers", "show", added["trigger_id"], "--project", str(tmp_path))[1]

    assert reason in shown
    assert re.findall(r"^(args_from|labels|events) +(.*)$", shown, re.MULTILINE) == [
        ("args_from", "scene_path=/a/0"),
        ("labels", "by=hook"),
        ("events", "push"),
    ]


def test_commands_speak_to_a_service(tmp_path: Path, cli: Any) -> None:
    """The same commands work with `--server`; a webhook's address is shown once."""
    with served.in_a_thread(Project(tmp_path)) as url:
        server = ("--server", url)
        _, out, _ = cli("triggers", "add", "quick", "--webhook", "github", "--json", *server)
        added = json.loads(out)
        fired = cli("triggers", "fire", added["trigger_id"], "--json", *server)
        shown = cli("triggers", "show", added["trigger_id"], *server)
        bad = cli("triggers", "add", "quick", "--cron", "x", *server)
        removed = cli("triggers", "remove", added["trigger_id"], *server)

    assert added["address"].startswith(f"/hooks/{added['trigger_id']}/")
    assert added["address"] not in shown[1]
    assert json.loads(fired[1])["run_id"] in shown[1]
    assert (bad[0], "--cron" in bad[2]) == (2, True)
    assert removed[0] == 0


@pytest.mark.parametrize(("page", "count"), [("start-runs-by-themselves.md", 7), ("get-notified.md", 8)])
def test_the_examples_of_the_pages_work(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, page: str, count: int
) -> None:
    """Each command line of a page is accepted in the example project, except that its ids are not found."""
    monkeypatch.chdir(example_project.copy(tmp_path / "example"))
    blocks = re.findall(r"^```sh\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("control-room ")]
    answers = [(command, *cli(*command)) for command in commands]

    assert len(commands) == count
    assert [
        answer for answer in answers if answer[1] != (4 if {"ENDPOINT_ID", "TRIGGER_ID"} & {*answer[0]} else 0)
    ] == []


def test_a_program_is_notified_from_a_relative_project(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program starts in the project's folder, even if the command names that by a relative path."""
    monkeypatch.chdir(Project(tmp_path / "relative").root.parent)
    added = json.loads(cli("notifications", "add", "--json", "--project", "relative", "--", "pwd")[1])
    tried = cli("notifications", "test", added["endpoint_id"], "--project", "relative")

    assert tried[:2] == (0, "delivered: exit code 0\n")


def test_the_list_of_endpoints_shows_which_runs_they_receive(tmp_path: Path, cli: Any) -> None:
    """The list and the answer to `add` name the recipe and the label that select runs, besides the kinds."""
    project = ("--project", str(Project(tmp_path).root))
    chosen = ("--kind", "done", "--recipe", "quick", "--label", "book=one", *project, "--", "cat")
    added = cli("notifications", "add", *chosen)
    cli("notifications", "add", *project, "--", "cat")
    listed = cli("notifications", "list", *project)[1]

    assert "receives done of quick with book=one by command" in added[1]
    assert re.search(r"cat +command +done of quick with book=one +0", listed)
    assert re.search(r"cat +command +everything +0", listed)


def test_a_program_of_several_lines_is_edited_like_any_other(tmp_path: Path, cli: Any) -> None:
    """An endpoint whose name comes from its program can be edited, and a secret of a program is refused."""
    project = ("--project", str(Project(tmp_path).root))
    script = "echo why >&2\nexit 3\n"
    added = json.loads(cli("notifications", "add", "--json", *project, "--", "sh", "-c", script)[1])
    edit = ("notifications", "edit", added["endpoint_id"], *project)
    edited = cli(*edit, "--kind", "failed", "--json")
    refused = cli(*edit, "--new-secret")

    assert (edited[0], json.loads(edited[1])["name"]) == (0, "sh -c echo why >&2 exit 3")
    assert (refused[0], "only webhooks are signed" in refused[2]) == (2, True)


def test_notifications_are_managed_in_a_folder_and_at_a_service(tmp_path: Path, cli: Any) -> None:
    """The same commands add, list, test, replay and remove an endpoint with and without a service."""
    made = Project(tmp_path)
    folder = ("--project", str(made.root))
    with served.in_a_thread(Project(tmp_path / "served")) as url:
        for place in (folder, ("--server", url)):
            added = json.loads(cli("notifications", "add", "--kind", "done", "--json", *place, "--", "cat")[1])
            listed = cli("notifications", "list", *place)
            tried = cli("notifications", "test", added["endpoint_id"], *place)
            dead = cli("notifications", "dead", added["endpoint_id"], *place)
            failing = cli("notifications", "failing", added["endpoint_id"], *place)
            ended = cli("notifications", "give-up", added["endpoint_id"], *place)
            replayed = cli("notifications", "replay", added["endpoint_id"], *place)
            removed = cli("notifications", "remove", added["endpoint_id"], *place)
            wrong = cli("notifications", "add", "--webhook", "x", *place)
            hook = json.loads(cli("notifications", "add", "--webhook", "https://x.example.org", "--json", *place)[1])
            words = ("--kind", "failed", "--label", "book:one", "--new-secret", "--json")
            changed = json.loads(cli("notifications", "edit", hook["endpoint_id"], *words, *place)[1])
            reset = json.loads(
                cli("notifications", "edit", hook["endpoint_id"], "--kind", "all", "--label", "", "--json", *place)[1]
            )

            assert (added["channel"], added["argv"], added["kinds"]) == ("command", ["cat"], ["done"])
            assert added["endpoint_id"] in listed[1]
            assert (tried[0], tried[1]) == (0, "delivered: exit code 0\n")
            assert dead[1].startswith("no dead letters; ")
            assert replayed[1] == "0 messages will be delivered again\n"
            assert (failing[1], ended[1]) == ("no message is tried again\n", "0 messages will not be tried again\n")
            assert (removed[0], wrong[0], "--webhook" in wrong[2]) == (0, 2, True)
            assert (changed["kinds"], changed["label"]) == (["failed"], "book:one")
            assert changed["signing_secret"] != hook["signing_secret"]
            assert (reset["kinds"], reset["label"], reset["url"]) == ([], None, "https://x.example.org")
