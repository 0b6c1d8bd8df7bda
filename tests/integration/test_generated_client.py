"""A client that is generated from the published OpenAPI document, and calls of every operation."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration import conferring, served
from tests.integration.project import Project

PUBLISHED = Path(__file__).parents[2] / "openapi" / "openapi.json"
PACKAGE = "generated_control_room_client"
RECIPE = """
name: asks
description: Asks before it goes on.
version: 1.0.0
schema: "1.7"
stages:
  - name: first
    steps: [{id: look, type: bash, command: "echo here"}]
    approval: {required: true, prompt: "Go on?"}
  - name: second
    steps: [{id: leave, type: bash, command: "echo gone"}]
"""
TASKS = [
    {"id": 1, "description": "look around", "recipe_id": "quick"},
    {"id": 2, "description": "which", "scoping_question": "Which one?"},
    {"id": 3, "description": "look again", "recipe_id": "quick", "deps": [2]},
    {"id": 4, "description": "compare", "recipe_id": "picky", "args": {"scene_path": "no.md", "other_path": "no.md"}},
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Generate the client and import it."""
    folder = tmp_path_factory.mktemp("generated")
    generator = Path(sys.executable).with_name("openapi-python-client")
    made = ("--meta", "none", "--output-path", str(folder / PACKAGE))
    command = [str(generator), "generate", "--path", str(PUBLISHED), *made]
    beside = {"PATH": os.pathsep.join([str(generator.parent), os.environ["PATH"]])}
    done = subprocess.run(command, env=os.environ | beside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(folder))


class Generated:
    """The generated client of a service, and the operations that it has not called yet."""

    def __init__(self, package: ModuleType, address: str) -> None:
        self._package = package
        self._place = {"base_url": address, "timeout": served.WAIT_SECONDS}
        self._client = package.Client(**self._place)
        self._operations = dict(_operations(importlib.import_module(f"{PACKAGE}.api")))
        self.uncalled = set(self._operations)

    def call(self, operation: str, /, *, body: Mapping[str, Any] | None = None, **parameters: Any) -> Any:
        """Call an operation, check that it succeeds, and return the parsed answer."""
        self.uncalled.discard(operation)
        module = self._operations[operation]
        if body is not None:
            parameters["body"] = self._body(module, body)
        answer = module.sync_detailed(client=self._client, **parameters)
        assert answer.status_code < 300, (operation, answer.content)
        is_stream = operation.startswith("follow_")
        assert answer.parsed is not None or answer.status_code == 204 or is_stream, operation
        return answer.parsed

    def sign_in(self, secret: str) -> None:
        """Send the secret of a key in later requests."""
        self._client = self._package.AuthenticatedClient(**self._place, token=secret)

    def until(self, run_id: str, *statuses: str) -> Any:
        """Wait for a run."""
        shown = self.call("show_run", run_id=run_id)
        while shown.status.value not in statuses:
            shown = self.call("show_run", run_id=run_id, wait=5.0)
        return shown

    def _body(self, module: ModuleType, body: Mapping[str, Any]) -> Any:
        wanted = typing.get_type_hints(module.sync_detailed)["body"]
        shapes = [shape for shape in (wanted, *typing.get_args(wanted)) if hasattr(shape, "from_dict")]
        return shapes[0].from_dict(dict(body))


@pytest.mark.slow
def test_every_operation_can_be_called_with_a_generated_client(package: ModuleType, tmp_path: Path) -> None:
    """A client that is generated from the published document parses the answer of every operation."""
    project = conferring.made(tmp_path)
    project.write(".control-room/recipes/amplifier/asks.yaml", RECIPE)
    project.propose("sp_proposed", {}, {})
    with served.in_a_thread(project) as address:
        client = Generated(package, address)
        run_id = _a_run(client)
        _lists(client, run_id)
        _orders(client, project)
        _gates(client)
        _issues(client, run_id)
        _plans(client)
        _again(client, run_id)
        _unattended(client)
        _kept(client)
        client.call("delete_run", run_id=run_id)
        _people(client)

    # The stream of all runs has no end, and this client reads whole answers. A delivery's body has no schema.
    assert client.uncalled == {"follow_all", "deliver"}


def _a_run(client: Generated) -> str:
    started = client.call("start_run", body={"recipe_id": "unguarded"})
    run_id = str(started.run_id)
    client.until(run_id, "done")
    client.call("follow_events", run_id=run_id, last_event_id="1")
    client.call("show_steps", run_id=run_id, limit=1)
    client.call("show_slot", run_id=run_id, slot="draft")
    client.call("show_slot", run_id=run_id, slot="discovery")
    names = client.call("list_logs", run_id=run_id)
    text = client.call("show_log", run_id=run_id, name=names[0])
    client.call("follow_log", run_id=run_id, name=names[0])
    client.call("show_graph", run_id=run_id)
    client.call("verify_run", run_id=run_id)
    client.call("verify_all", limit=1)
    client.call("repair_run", run_id=run_id, body={"dry_run": True})
    receipts = client.call("list_receipts", run_id=run_id)
    receipt = client.call("show_receipt", receipt_id=receipts[0].receipt_id)

    assert isinstance(text, str)
    assert receipt.started_at.tzinfo is not None
    return run_id


def _lists(client: Generated, run_id: str) -> None:
    listed = client.call("list_runs", status="done", label=None)
    for operation in (
        "list_recipes",
        "list_tools",
        "list_agents",
        "show_stats",
        "alive",
        "ready",
        "issue_ticket",
        "show_session",
        "sign_out",
    ):
        client.call(operation)
    client.call("sign_in", body={"token": "none is needed"})
    client.call("show_recipe", recipe_id="quick")
    client.call("show_recipe_graph", recipe_id="quick")
    client.call("show_usage")
    client.call("examine_request", body={"recipe_id": "quick"})
    client.call("validate_recipe", body={"recipe": {"recipe_id": "x"}})
    client.call("route_task", body={"description": "look around"})
    conference = client.call("start_conference", body={"message": "Is it early?"})
    client.until(conference.run_id, "done")

    assert (listed[0].run_id, listed[0].current_step_index, listed[0].total_steps) == (run_id, 2, 2)
    assert "control_room" in client.call("metrics")


def _orders(client: Generated, project: Project) -> None:
    project.say("draft", hang=True)
    run_id = client.call("start_run", body={"recipe_id": "unguarded"}).run_id
    client.call("pause_run", run_id=run_id)
    client.call("cancel_run", run_id=run_id)
    client.until(run_id, "cancelled")
    client.call("resume_run", run_id=run_id)
    client.call("pause_run", run_id=run_id)
    client.call("unpause_run", run_id=run_id)
    client.call("order_many", body={"action": "cancel", "run_ids": [run_id], "expected": 1})
    client.until(run_id, "cancelled")
    project.say("draft", text="Done.")


def _gates(client: Generated) -> None:
    run_id = client.call("start_run", body={"recipe_id": "asks"}).run_id
    client.until(run_id, "waiting")
    gates = client.call("list_gates", run_id=run_id)
    shown = client.call("show_gate", gate_id=gates[0].gate_id)
    client.call("answer_gate", gate_id=shown.gate_id, body={"decision": shown.options[0]})
    client.until(run_id, "done")


def _issues(client: Generated, run_id: str) -> None:
    issue = client.call("add_issue", body={"title": "Look here", "run_id": run_id})
    client.call("list_issues", run_id=run_id, status="open")
    client.call("edit_issue", issue_id=issue.issue_id, body={"status": "closed", "note": "so"})
    shown = client.call("show_issue", issue_id=issue.issue_id)

    assert shown.closed_at is not None


def _plans(client: Generated) -> None:
    session_id = client.call("create_plan", body={"tasks": TASKS}).session_id
    plan = {"session_id": session_id}
    client.call("list_plans")
    client.call("add_task", **plan, body={"description": "look", "recipe_id": "quick", "id": 5})
    client.call("edit_task", **plan, task_id=5, body={"description": "look twice"})
    client.call("reorder_plan", **plan, body={"order": [1, 2, 3, 5, 4]})
    client.call("remove_task", **plan, task_id=5)
    client.call("approve_plan", **plan)
    client.call("start_plan", **plan)
    client.call("pause_plan", **plan)
    client.call("resume_plan", **plan)
    client.call("force_start_task", **plan, task_id=3)
    shown = client.call("show_plan", **plan)
    while next(task for task in shown.tasks if task.id == 4).status.value != "failed":
        shown = client.call("show_plan", **plan, wait=5.0)
    client.call("retry_task", **plan, task_id=4)
    client.call("answer_task", **plan, task_id=2, body={"answer": "That one", "recipe_id": "quick"})
    shown = client.call("show_plan", **plan)
    while shown.status.value == "running":
        shown = client.call("show_plan", **plan, wait=5.0)
    client.call("delete_plan", **plan)
    client.call("accept_proposal", session_id="sp_proposed", proposal_id=1)
    proposed = client.call("dismiss_proposal", session_id="sp_proposed", proposal_id=2)
    assert [each.status.value for each in proposed.proposals] == ["accepted", "dismissed"]


def _again(client: Generated, run_id: str) -> None:
    client.call("list_files", q="md")
    client.call("mark_run", run_id=run_id, body={"labels": {"book": "one"}, "pinned": True})
    explained = client.call("explain_run", run_id=run_id)
    previewed = client.call("preview_order", run_id=run_id, body={"order": "fork"})
    forked = client.call("fork_run", run_id=run_id, body={"labels": {"take": "two"}})
    client.until(forked.run_id, "done")

    assert (explained.status.value, previewed.ok, forked.forked_from) == ("done", True, run_id)


def _unattended(client: Generated) -> None:
    client.call("put_budget", name="drafts", body={"limits": {"calls": 100}})
    client.call("list_budgets")
    client.call("remove_budget", name="drafts")
    run_id = client.call("start_run", body={"recipe_id": "asks", "limits": {"calls": 5}}).run_id
    client.until(run_id, "waiting")
    (gate,) = [each for each in client.call("list_gates") if each.run_id == run_id]
    client.call("show_request", run_id=run_id, key=gate.key)
    client.call("limit_run", run_id=run_id, body={"calls": 6})
    client.call("cancel_run", run_id=run_id)
    made = client.call("add_trigger", body={"recipe_id": "quick", "schedule": {"cron": "0 7 * * *"}})
    trigger = {"trigger_id": made.trigger_id}
    client.call("edit_trigger", **trigger, body={"paused": True})
    client.until(client.call("fire_trigger", **trigger).run_id, "done")
    client.call("list_triggers")
    client.call("show_trigger", **trigger)
    client.call("remove_trigger", **trigger)
    told = client.call("add_endpoint", body={"argv": ["true"], "kinds": ["failed"]})
    client.call("edit_endpoint", endpoint_id=told.endpoint_id, body={"kinds": ["done"]})
    client.call("list_endpoints")
    endpoint = {"endpoint_id": told.endpoint_id}
    client.call("try_endpoint", **endpoint)
    client.call("list_dead", **endpoint)
    client.call("list_failing", **endpoint)
    client.call("replay", **endpoint, body={})
    client.call("give_up", **endpoint, body={})
    client.call("remove_endpoint", **endpoint)


def _kept(client: Generated) -> None:
    client.call("show_policy")
    client.call("set_policy", body={"rules": []})
    client.call("prune_runs", body={"older_than_seconds": 86400})
    client.call("collect", body={"dry_run": True})
    client.call("set_policies", body={"policies": [{"recipe_id": "draft", "limits": {"calls": 9}}]})
    client.call("show_policies")
    client.call(
        "set_prices", body={"version": "1", "models": {"m": {"input_per_million_usd": 3, "output_per_million_usd": 15}}}
    )
    client.call("show_prices")
    client.call("list_changes")


def _people(client: Generated) -> None:
    issued = client.call("add_key", body={"name": "ada", "role": "admin"})
    # The first key closes the service to callers without one.
    client.sign_in(issued.secret)
    client.call("list_keys")
    client.sign_in(client.call("rotate_key", name="ada", body={"grace_seconds": 0}).secret)
    client.call("add_key", body={"name": "bob"})
    client.call("revoke_key", name="bob")


def _operations(found: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    for info in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
        if not info.ispkg:
            yield info.name.rpartition(".")[2], importlib.import_module(info.name)
