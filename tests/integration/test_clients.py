"""One client, two transports: every use case of the commands gives the same JSON over HTTP and in process."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.cli import exit_codes, folder_client, http_client, plan_use_cases, running, use_cases
from app.cli.client import Access, Client, JsonObject, UseCase
from app.domain import issues, plans, receipts
from app.engine import stores
from app.services import conferences, gate_inbox, gates, requests
from app.services import issues as issue_requests
from app.services.plans import requests as plan_requests
from tests.integration import served
from tests.integration.project import Project

ASKING = """\
name: asking
description: Ask before going on
version: 1.0.0
schema: "1.7"
stages:
  - name: first
    steps: [{id: begin, type: bash, command: echo begun}]
    approval: {required: true, prompt: "Go on?"}
  - name: second
    steps: [{id: finish, type: bash, command: echo finished}]
"""
USE_CASES = {
    name: value for name, value in (vars(use_cases) | vars(plan_use_cases)).items() if isinstance(value, UseCase)
}
ALL = set(USE_CASES)

# Values that differ between two executions of the same script.
_VOLATILE = [
    (re.compile(r"\d{8}T\d{6}Z-[a-z0-9]{6}"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b([a-z]{2,5})_[A-Za-z0-9_.#-]{12,}"), r"\1_ID"),
    (re.compile(r"(sha256:)?\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r'"(duration_ms|revision|crc32|owner)": ("\w+"|[\d.]+)'), r'"\1": "ANY"'),
    (re.compile(r"/[^\" ]*/(http|folder)/project"), "PROJECT"),
]

_IN_MOTION = {
    "start_plan", "pause_plan", "resume_plan", "continue_plan", "answer_task", "show_plan", "force_start_task",
    "retry_task",
}  # fmt: skip
"""Answers that contain a plan whose tasks run meanwhile."""


class Recorder:
    """A client wrapper that records the answers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers: list[tuple[str, Any]] = []

    async def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        answer = await self.client.call(USE_CASES[name], *args, **kwargs)
        self.answers.append((name, answer))
        return answer

    async def until(self, run_id: str, *statuses: str, step: str | None = None) -> None:
        """Poll a run until a step has begun, or it has one of the states."""
        async with contextlib.aclosing(self.client.follow(run_id)) as events:
            async for event in events:
                if step is not None and (event["type"], event["key"]) == ("step.started", step):
                    return
                rests = event["type"] in ("run.waiting", "run.ended")
                if rests and (await self.client.call(use_cases.show_run, run_id))["status"] in statuses:
                    return
        raise AssertionError(f"run {run_id} has ended otherwise")

    async def plan_until(self, plan: JsonObject, *statuses: str) -> JsonObject:
        """Poll a plan until it is in one of the states."""
        while plan["status"] not in statuses:
            call = self.client.call(plan_use_cases.wait_for_plan, plan["session_id"], 5, plan["revision"])
            plan = await call or plan
        return plan


@contextlib.asynccontextmanager
async def connected(transport: str, project: Project) -> AsyncIterator[Client]:
    """Return a client of the project."""
    if transport == "folder":
        async with folder_client.connect(served.chosen(project, stop_grace_seconds=0), Access.CHANGE) as folder:
            yield folder
        return
    async with (
        served.on_a_port(project, stop_grace_seconds=0) as service,
        http_client.HttpClient(str(service.http.base_url), None) as http,
    ):
        yield http


def make_project(folder: Path) -> Project:
    """Create a project with a recipe that asks a person, and a writer that never answers one step."""
    project = Project(folder / "project")
    project.write(".control-room/recipes/amplifier/asking.yaml", ASKING)
    project.say("draft", hang=True)
    project.propose("sp_proposed", {}, {"dod": "Seen"})
    return project


async def request_definitions(ask: Recorder) -> None:
    """Request recipes and agents."""
    await ask("list_recipes")
    await ask("show_recipe", "quick")
    await ask("validate_recipe", '{"recipe_id": 5}', "control_room", "broken")
    await ask("route", "look around")
    await ask("list_agents")
    await ask("plan_run", requests.StartRequest(recipe_id="quick"))


async def request_runs(ask: Recorder) -> None:
    """Run, stop and resume runs, and request their stored data."""
    done = (await ask("start_run", requests.StartRequest(recipe_id="quick", idempotency_key="one")))["run_id"]
    await ask.until(done, "done")
    again = await ask("start_run", requests.StartRequest(recipe_id="quick", idempotency_key="one"))
    assert again["run_id"] == done
    for name in ("show_run", "list_steps", "list_logs", "show_graph", "verify_run", "plan_repair", "repair_run"):
        await ask(name, done)
    await ask("show_slot", done, "discovery")
    found = await ask("list_receipts", receipts.ReceiptQuery(run_id=done))
    await ask("show_receipt", found[0]["receipt_id"])

    failing = requests.StartRequest(recipe_id="picky", args={"scene_path": "no", "other_path": "no"})
    failed = (await ask("start_run", failing))["run_id"]
    await ask.until(failed, "failed")
    await ask("list_runs", stores.RunQuery(status="failed"))
    found = await ask("list_runs", stores.RunQuery(started_by="local"))
    assert failed in [run["run_id"] for run in found]
    assert await ask("list_runs", stores.RunQuery(started_by="ada")) == []

    stuck = (await ask("start_run", requests.StartRequest(recipe_id="unguarded", labels={"a": "b"})))["run_id"]
    await ask.until(stuck, step="draft")
    await ask("pause_run", stuck, interrupt=True)
    # A command takes over a run of a process that has stopped; a service continues its own.
    again = ("resume_run", stuck, requests.ResumeRequest()) if ask.client.executes else ("unpause_run", stuck)
    await ask(*again)
    await ask("cancel_run", stuck)
    await ask("list_runs", stores.RunQuery(label=("a", "b"), limit=5))
    await ask("resume_run", stuck, requests.ResumeRequest(from_key="discover", current_recipe=True))
    await ask("cancel_run", stuck)
    await ask("show_log", stuck, "draft.1.prompt.md")
    await ask("delete_run", stuck)
    with pytest.raises(errors.NotFound) as gone:
        await ask("show_run", stuck)
    ask.answers.append(("gone", gone.value.code))


async def request_answers_of_people(ask: Recorder) -> None:
    """Answer a gate, hold a conference, edit issues."""
    asking = (await ask("start_run", requests.StartRequest(recipe_id="asking")))["run_id"]
    await ask.until(asking, "waiting")
    gate = (await ask("list_gates", gate_inbox.GateQuery(run_id=asking)))[0]
    await ask("show_gate", gate["gate_id"])
    await ask("answer_gate", gate["gate_id"], gates.Reply(decision=gate["options"][0], message="do"))
    await ask.until(asking, "done")
    with pytest.raises(errors.Conflict) as second:
        await ask("answer_gate", gate["gate_id"], gates.Reply(decision=gate["options"][0]))
    ask.answers.append(("second", second.value.code))
    held = await ask("confer", conferences.NewConference(message="What now?", agents=("writer",), allowed_tools=()))
    await ask.until(held["run_id"], "done", "failed")

    new = issue_requests.NewIssue(title="Lost lantern", severity="warning", idempotency_key="lantern")
    issue = await ask("open_issue", new)
    closing = issue_requests.Edit(status="closed", note="found", revision=issue["revision"])
    await ask("edit_issue", issue["issue_id"], closing)
    await ask("show_issue", issue["issue_id"])
    await ask("list_issues", issues.IssueQuery(kind="note", status="closed"))


async def request_plans(ask: Recorder) -> None:
    """Create a plan, change it, and run it."""
    tasks = [
        plan_requests.NewTask(
            id=1, description="Compare", recipe_id="picky", args={"scene_path": "x", "other_path": "y"}
        ),
        plan_requests.NewTask(id=2, description="Look around", recipe_id="quick", deps=(1,)),
        plan_requests.NewTask(id=3, description="Look around", recipe_id="quick", scoping_question="Where?"),
    ]
    plan = await ask("create_plan", plan_requests.NewPlan(intent="Look", tasks=tuple(tasks), idempotency_key="p"))
    session = plan["session_id"]
    plan = await ask("add_task", session, plan_requests.NewTask(description="Look around"), plan["revision"])
    plan = await ask("edit_task", session, 4, plan_requests.TaskEdit(description="Look again"), plan["revision"])
    await ask("reorder_tasks", session, (1, 2, 4, 3), None)
    await ask("remove_task", session, 4, None)
    await ask("list_plans", plans.PlanQuery(status="draft"))
    await ask("approve_plan", session, None)
    await ask("start_plan", session, None)
    plan = await ask("pause_plan", session, None)
    plan = await ask("resume_plan", session, None)
    await ask("continue_plan", session)
    await ask("answer_task", session, 3, plan_requests.ScopingAnswer(answer="Here"), None)
    plan = await ask.plan_until(await ask("show_plan", session), "failed")
    await ask("force_start_task", session, 2, None)
    plan = await ask.plan_until(await ask.client.call(plan_use_cases.show_plan, session), "failed")
    await ask("retry_task", session, 1, True, None)
    plan = await ask.plan_until(await ask.client.call(plan_use_cases.show_plan, session), "failed")
    unchanged = await ask("wait_for_plan", session, 0, plan["revision"])
    ask.answers[-1] = ("wait_for_plan", unchanged or plan)
    with pytest.raises(errors.Conflict) as refused:
        await ask("delete_plan", session, 1)
    ask.answers.append(("refused", refused.value.code))
    await ask("delete_plan", session, plan["revision"])
    await ask("set_review", "sp_proposed", "on", None)
    await ask("accept_proposal", "sp_proposed", 2, None)
    proposed = await ask("dismiss_proposal", "sp_proposed", 1, None)
    assert [each["status"] for each in proposed["proposals"]] == ["dismissed", "accepted"]
    assert proposed["reviewer"]["tasks"] == [2]


PARTS = (request_definitions, request_runs, request_answers_of_people, request_plans)


def comparable(name: str, answer: Any) -> Any:
    """Return an answer without the values that differ from run to run."""
    if name in _IN_MOTION:
        return sorted(answer)
    text = json.dumps(answer, sort_keys=True)
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return json.loads(text)


@pytest.mark.model
async def test_both_transports_give_the_same_answers(tmp_path: Path) -> None:
    """The service over HTTP and the folder in process give the same answers to every use case."""
    told: dict[str, list[tuple[str, Any]]] = {}
    for transport in ("http", "folder"):
        async with connected(transport, make_project(tmp_path / transport)) as client:
            ask = Recorder(client)
            for part in PARTS:
                await part(ask)
            told[transport] = ask.answers
            pages = [page async for page in client.verify_all()]
            assert {report["state"] for page in pages for report in page} == {"sound"}

    assert {name for story in told.values() for name, _ in story} >= ALL
    pairs = zip(told["http"], told["folder"], strict=True)
    answers = [(name, comparable(name, there), comparable(name, here)) for (name, there), (_, here) in pairs]
    assert [answer for answer in answers if answer[1] != answer[2]] == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (requests.StartRequest(recipe_id="quik"), "unknown_recipe"),
        (requests.StartRequest(recipe_id="picky"), "missing_arg"),
    ],
)
async def test_a_refused_dry_run_is_an_error_of_the_command(
    tmp_path: Path, request_: requests.StartRequest, code: str
) -> None:
    """A refused dry run ends the command with the same error over HTTP as in the folder."""
    project = make_project(tmp_path)
    async with connected("folder", project) as client:
        with pytest.raises(errors.InputRefused) as here:
            await client.call(use_cases.plan_run, request_)
    async with connected("http", project) as client:
        found = await client.call(use_cases.plan_run, request_)
    there = running.refusal(found["problems"])

    assert found["ok"] is False
    assert (there.code, exit_codes.of_error(there)) == (code, exit_codes.of_error(here.value))
    assert there.flaws == here.value.flaws
