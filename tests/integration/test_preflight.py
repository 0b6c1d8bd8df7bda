"""Preflight over HTTP: what a request would run, which parts are missing, and how often agents are called at most."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.cli import formats
from app.dialects.agent_recipes import bounds as machine_bounds
from app.dialects.amplifier import bounds as recipe_bounds
from app.dialects.orchestrate import bounds as workflow_bounds
from app.domain import limits
from tests.integration import project, served
from tests.integration.project import Project
from tests.integration.test_showing import ARRIVAL


async def examined(service: served.Served, **body: Any) -> dict[str, Any]:
    """Return the report on a request."""
    answer = await service.http.post("/api/preflight", json=body)
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


async def test_a_request_is_examined_without_a_trace(service: served.Served) -> None:
    """The report names steps, agents and the worst case, and no run or file is created."""
    folder = service.project.root / ".control-room"
    before = sorted(str(path) for path in folder.rglob("*") if path.is_file() and "index.db" not in path.name)
    report = await examined(service, recipe_id="draft", args=ARRIVAL)
    after = sorted(str(path) for path in folder.rglob("*") if path.is_file() and "index.db" not in path.name)

    assert (report["ok"], report["problems"], report["dialect"]) == (True, [], "control_room")
    assert report["steps"][0] == {
        "key": "discover",
        "kind": "tool",
        "title": "discover: file_locator",
        "agent": None,
        "tool": "file_locator",
    }
    assert {(agent["agent_id"], agent["backend"], agent["ready"]) for agent in report["agents"]} == {
        ("writer-1", "said", True),
        ("editor-1", "said", True),
    }
    assert (report["calls_at_most"], report["note"]) == (2, None)
    assert report["workspace"] == str(service.project.root)
    assert report["args"] == ARRIVAL | {"words": 500}
    assert before == after
    assert (await service.http.get("/api/runs")).json() == []


async def test_problems_of_a_start_are_reported_with_their_places(service: served.Served) -> None:
    """The problems of a start are reported with their places; a malformed request is refused."""
    missing = await examined(service, recipe_id="draft")
    unknown = await examined(service, recipe_id="drafts")
    unroutable = await examined(service, description="qwertz")
    broken = await service.http.post("/api/preflight", json={"recip": "draft"})

    assert missing["ok"] is False
    assert [problem["code"] for problem in missing["problems"]] == ["missing_arg"]
    assert "draft" in unknown["problems"][0]["message"]
    assert unroutable["ok"] is False
    assert (broken.status_code, broken.json()["code"]) == (400, "request_invalid")


async def test_a_missing_backend_is_reported_for_its_agents(service: served.Served) -> None:
    """A missing backend is a problem with the reason, and its agents are not ready."""
    report = await examined(service, recipe_id="rebase", args={"backend": "claude-code"})

    assert report["dialect"] == "agent_recipes"
    assert report["ok"] is report["agents"][0]["ready"]
    assert bool(report["agents"][0]["fault"]) is not report["ok"]


def machine(target: dict[str, str], **guardrails: Any) -> dict[str, Any]:
    """Return a machine whose second step leads to this target."""
    done = {"action": "exit_recipe", "reason": "done"}
    return {
        "id": "m",
        "initialStep": "a",
        "guardrails": {"maxStepVisits": 3, "maxTotalSteps": 100, "exitOnOther": True, **guardrails},
        "steps": {
            "a": {"outcomes": ["ok"], "onOutcome": {"ok": {"nextStep": "b"}}},
            "b": {"outcomes": ["ok", "again"], "onOutcome": {"ok": done, "again": target}},
        },
    }


@pytest.mark.parametrize(
    ("target", "guardrails", "args", "most"),
    [
        ({"action": "exit_recipe", "reason": "x"}, {}, {}, 4),
        ({"nextStep": "a"}, {}, {}, 12),
        ({"nextStep": "a"}, {"maxTotalSteps": 5}, {}, 10),
        ({"nextStep": "a"}, {}, {"max_visits": 7}, 28),
        ({"recipeId": "m"}, {}, {"max_restarts": 2}, 36),
        ({"recipeId": "m"}, {}, {}, None),
    ],
)
def test_calls_of_machines(
    target: dict[str, str], guardrails: dict[str, Any], args: dict[str, Any], most: int | None
) -> None:
    """Guardrails bound a machine's calls, with a reminder for each step; restarts without a limit are unbounded."""
    limit = machine_bounds.calls(machine(target, **guardrails), {}, args)

    assert limit.most == most
    assert (limit.note is None) == (most is not None)


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([{"id": "a", "agent": "x"}], 1),
        ([{"id": "a", "type": "bash", "command": "ls"}], 0),
        ([{"id": "a", "agent": "x", "retry": {"max_attempts": 3}}], 3),
        ([{"id": "a", "agent": "x", "foreach": "{{l}}", "max_iterations": 7}], 7),
        ([{"id": "a", "agent": "x", "foreach": "{{l}}", "nested_foreach": {"foreach": "{{m}}"}}], 10_000),
        ([{"id": "a", "parallel": True, "substeps": [{"id": "b", "agent": "x"}, {"id": "c", "agent": "x"}]}], 2),
        ([{"id": "a", "type": "recipe", "recipe": "other"}], None),
    ],
)
def test_calls_of_recipes(steps: list[dict[str, Any]], most: int | None) -> None:
    """Loops and retries multiply the calls; a recipe that runs another one is unbounded."""
    limit = recipe_bounds.most_calls({"steps": steps}, {})

    assert limit.most == most
    assert (limit.note is None) == (most is not None)


def test_lists_of_arguments_bound_their_loops() -> None:
    """A loop over a list argument calls once for each item, unless a step assigns to that name."""
    step = {"id": "a", "agent": "x", "foreach": "{{files}}"}
    once = recipe_bounds.most_calls({"steps": [step]}, {}, {"files": ["one", "two", "three"]})
    assigned = [{"id": "find", "agent": "x", "output": "files"}, step]
    unknown = recipe_bounds.most_calls({"steps": assigned}, {}, {"files": ["one"]})

    assert (once.most, unknown.most) == (3, 101)


ASK: dict[str, Any] = {"name": "Ask", "provider": "claude"}


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([ASK, {"name": "B", "command": ["true"]}], 1),
        ([ASK | {"retries": {"max": 2}}], 3),
        ([{"name": "L", "for_each": {"items": ["x", "y"], "steps": [ASK]}}], 2),
        ([{"name": "L", "for_each": {"items_from": "steps.B.lines", "steps": [ASK]}}], None),
        ([ASK, ASK | {"name": "B", "on": {"failure": {"goto": "Ask"}}}], None),
        ([ASK | {"on": {"success": {"goto": "_end"}}}, ASK | {"name": "B"}], 2),
    ],
)
def test_calls_of_workflows(steps: list[dict[str, Any]], most: int | None) -> None:
    """Retries and lists multiply the calls; jumps back and lists from steps are unbounded."""
    limit = workflow_bounds.calls({"steps": steps}, {})

    assert isinstance(limit, limits.CallLimit)
    assert limit.most == most
    assert (limit.note is None) == (most is not None)
    assert json.dumps(limit.note)


async def test_the_report_bounds_the_cost_or_names_the_agent(service: served.Served) -> None:
    """Limits bound the cost of a run, or its calls and the cost of each; otherwise the report names the agent."""
    unknown = await examined(service, recipe_id="draft", args=ARRIVAL)
    limited = await examined(service, recipe_id="draft", args=ARRIVAL, limits={"cost_usd": 5, "tokens": 1000})
    once = await examined(service, recipe_id="draft", args=ARRIVAL, limits={"calls": 1})
    quick = await examined(service, recipe_id="quick")

    assert (unknown["calls_at_most"], once["calls_at_most"]) == (2, 1)
    assert unknown["cost_at_most_usd"] is None
    assert any("writer-1" in reason and "max_cost_per_call" in reason for reason in unknown["unbounded"])
    assert (limited["cost_at_most_usd"], limited["tokens_at_most"], limited["unbounded"]) == (5, 1000, [])
    assert (quick["cost_at_most_usd"], quick["unbounded"]) == (0.0, [])


async def test_max_cost_per_call_bounds_the_cost_of_a_run(project: Project) -> None:
    """With `max_cost_per_call` of each backend, the worst case is the cost of all calls."""
    path = project.data / "agents.json"
    document = json.loads(path.read_text())
    document["backends"]["said"]["max_cost_per_call"] = 0.5
    path.write_text(json.dumps(document))
    async with served.in_process(project) as service:
        priced = await examined(service, recipe_id="draft", args=ARRIVAL, limits={"tokens": 9})

    assert (priced["cost_at_most_usd"], priced["unbounded"]) == (1.0, [])


async def test_paths_are_checked_as_steps_would(service: served.Served) -> None:
    """A path out of the workspace and a missing file are warnings with their argument; the start is accepted."""
    recipe = project.draft("look")
    recipe["args_schema"]["properties"] |= {
        "scenes": {"type": "array", "items": {"type": "string"}, "default": []},
        "report": {"type": "string", "default": "report.md"},
    }
    recipe["phase_a"].append(project.tool_step("map", "stakes_mapper", "map", scene_paths={"$ref": "task.args.scenes"}))
    recipe["outputs"] = [{"slot": "edited_draft", "path": {"$ref": "task.args.report"}}]
    service.project.add_recipe(recipe)
    scene = ARRIVAL["scene_path"]
    outside = {"scene_path": "../../etc/passwd", "scenes": [scene, "no.md"], "report": "/tmp/report.md"}
    report = await examined(service, recipe_id="look", args=outside)
    fine = await examined(service, recipe_id="look", args={**ARRIVAL, "scenes": [scene]})
    shown = await service.run("look", args={"scene_path": "no.md", "scenes": [scene]})

    assert report["ok"] is True, report["problems"]
    assert [(flaw["path"], flaw["code"]) for flaw in report["warnings"]] == [
        ("$.args.scene_path", "path_outside_workspace"),
        ("$.args.scenes[1]", "file_not_found"),
        ("$.args.report", "path_outside_workspace"),
    ]
    assert report["warnings"][0]["message"].startswith("argument scene_path: '../../etc/passwd' is not a path inside")
    assert fine["warnings"] == []
    assert shown["error"]["message"].endswith("It is given in the argument scene_path.")
    assert report["paths_checked"] is True


WORKFLOW = """\
version: "1.3"
context: {prompt: "", notes: "", made: "made.md", report: "", words: "two words"}
steps:
  - {name: make, command: [echo, "${context.words}"], output_file: "${context.made}"}
  - name: look
    command: [cat]
    input_file: "${context.prompt}"
    output_file: "${context.report}"
    depends_on: {required: ["${context.notes}", "${context.made}"]}
"""
STAGE = """\
name: folders
description: Look
version: "1.0.0"
schema: "1.7"
context: {place: "", words: "two words"}
steps: [{id: look, type: bash, command: "ls {{words}}", cwd: "{{place}}"}]
"""


async def test_files_that_other_languages_declare_are_looked_for(service: served.Served) -> None:
    """Missing files of a workflow and a missing folder of a command are warnings.

    The report states that paths within the text of prompts and commands are not checked.
    """
    service.project.write(".control-room/recipes/orchestrate/files.yaml", WORKFLOW)
    service.project.write(".control-room/recipes/amplifier/folders.yaml", STAGE)
    given = {"prompt": "none.md", "notes": "notes/*.md", "report": "../out.md"}
    workflow = await examined(service, recipe_id="files", args=given)
    command = await examined(service, recipe_id="folders", args={"place": "nowhere"})
    there = await examined(service, recipe_id="folders", args={"place": "Story", "words": ""})

    assert [(flaw["path"], flaw["code"]) for flaw in workflow["warnings"]] == [
        ("$.args.prompt", "file_not_found"),
        ("$.args.report", "path_outside_workspace"),
    ]
    assert [flaw["path"] for flaw in command["warnings"]] == ["$.args.place"]
    assert there["warnings"] == []
    assert [report["paths_checked"] for report in (workflow, command, there)] == [False, False, True]


async def test_runs_for_which_a_start_would_wait_or_be_refused_are_named(service: served.Served) -> None:
    """The report names the run in the way: a refusal is a problem, a wait a warning, and a free start has neither."""
    service.project.say("*", hang=True)
    shared = {"recipe_id": "draft", "args": ARRIVAL}
    wanted: dict[str, Any] = {
        "busy": {"exclusive": True},
        "full": {"concurrency": {"key": "book", "policy": "reject"}},
        "queued": {"concurrency": {"key": "book"}},
        "roomy": {"concurrency": {"key": "book", "limit": 2}},
        "cancelling": {"concurrency": {"key": "book", "policy": "cancel_running"}},
        "alone": {"exclusive_workspace": True},
        "elsewhere": {"recipe_id": "quick", "args": {}, "exclusive_workspace": True, "working_dir": "Story"},
        "free": {},
    }
    before = [await examined(service, **shared | body) for body in wanted.values()]
    holder = (await service.http.post("/api/runs", json=shared | wanted["queued"] | wanted["alone"])).json()["run_id"]
    await service.until(holder, "running")
    found = {name: await examined(service, **shared | body) for name, body in wanted.items()}
    refused = await service.http.post("/api/runs", json=shared | wanted["busy"])
    full = await service.http.post("/api/runs", json=shared | wanted["full"])
    await service.http.post(f"/api/runs/{holder}/cancel")

    assert [(one["ok"], one["problems"], one["warnings"]) for one in before] == [(True, [], [])] * len(wanted)
    problems = {name: [(flaw["path"], flaw["code"]) for flaw in one["problems"]] for name, one in found.items()}
    waits = {name: [(flaw["path"], flaw["code"]) for flaw in one["warnings"]] for name, one in found.items()}
    assert {name: flaws for name, flaws in problems.items() if flaws} == {
        "busy": [("$.exclusive", "recipe_busy")],
        "full": [("$.concurrency", "concurrency_limit")],
    }
    assert {name: flaws for name, flaws in waits.items() if flaws} == {
        "queued": [("$.concurrency", "concurrency")],
        "alone": [("$.working_dir", "workspace_busy")],
    }
    assert {name for name, one in found.items() if not one["ok"]} == {"busy", "full"}
    named = [flaw["message"] for one in found.values() for flaw in (*one["problems"], *one["warnings"])]
    assert all(f"run {holder}" in message for message in named)
    assert [(answer.status_code, answer.json()["code"]) for answer in (refused, full)] == [
        (409, "recipe_busy"), (409, "concurrency_limit"),
    ]  # fmt: skip


async def test_a_command_names_the_runs_for_which_it_cannot_wait(project: Project, cli: Any) -> None:
    """Without a service a run cannot wait, so `--dry-run` lists what would refuse its start; with one it waits."""
    project.say("*", hang=True)
    words = ["run", "draft", "--arg", f"scene_path={ARRIVAL['scene_path']}", "--concurrency", "book"]
    async with served.in_process(project) as service:
        body = {"recipe_id": "draft", "args": ARRIVAL, "concurrency": {"key": "book"}}
        holder = (await service.http.post("/api/runs", json=body)).json()["run_id"]
        await service.until(holder, "running")
        code, printed, told = await asyncio.to_thread(lambda: cli(*words, "--dry-run", "--project", str(project.root)))
        await service.http.post(f"/api/runs/{holder}/cancel")

    waits = {"code": "concurrency", "message": "the key is held"}
    shown = formats.plan({
        "graph": {"nodes": []}, "recipe_id": "draft", "description": "", "working_dir": "/", "args": {}, "note": None,
        "calls_at_most": 1, "cost_at_most_usd": 14.5, "unbounded": [], "agents": [], "paths_checked": True,
        "problems": [], "warnings": [waits, {"code": "file_not_found", "message": "x is missing"}],
    })  # fmt: skip
    assert "cost at most             $14.50" in shown
    assert f"cannot run here: the concurrency key 'book' is held by run {holder}" in printed + told, code
    assert ("the run would wait: the key is held" in shown, "a step would fail: x is missing" in shown) == (True, True)
