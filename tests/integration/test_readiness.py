"""Missing backends are found before paid work: starts, checks and plans examine the backends first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app import bootstrap
from app.storage import data_directory
from tests.integration import served
from tests.integration.project import DISCOVER, Project, agent_step

UNNAMED = {"type": "openai", "base_url": "http://127.0.0.1:1/v1", "models": {"opus": "large"}}
ABSENT = {"type": "template", "command": ["no-such-agent-program", "{prompt}"], "resume": ["no-such-agent-program"]}
FORGETFUL = {"type": "template", "command": ["cat"]}

STATE_MACHINE = {
    "id": "two-steps",
    "label": "Two steps",
    "description": "One step, then another.",
    "initialStep": "one",
    "guardrails": {"maxStepVisits": 3, "maxTotalSteps": 10, "exitOnOther": True},
    "steps": {
        "one": {"prompt": "Begin.", "outcomes": ["done"], "onOutcome": {"done": {"nextStep": "two"}}},
        "two": {
            "prompt": "End.",
            "outcomes": ["done"],
            "onOutcome": {"done": {"action": "exit", "reason": "done"}},
        },
    },
}
PIPELINE = {
    "recipe_id": "late",
    "label": "Writer first, critic last",
    "phase_a": [DISCOVER],
    "phase_b": [
        agent_step("draft", "writer", "write", ["discovery"], "draft"),
        agent_step("judge", "absent", "polish", ["draft"], "verdict"),
    ],
}
MODELS = PIPELINE | {
    "recipe_id": "late-model",
    "phase_b": [
        agent_step("draft", "writer", "write", ["discovery"], "draft"),
        agent_step("bless", "named", "polish", ["draft"], "blessing"),
        agent_step("judge", "unnamed", "polish", ["draft"], "verdict"),
    ],
}
PROMPTS = """
name: late-prompt
description: Ask one who is here, then one who is not.
version: 1.0.0
steps:
  - id: first
    agent: writer-1
    prompt: Write.
  - id: second
    agent: absent-1
    prompt: Judge.
"""
OUTER = """
name: outer
description: Run another recipe.
schema: "1.7"
version: 1.0.0
steps:
  - id: inner
    type: recipe
    recipe: late-prompt
"""
WORKFLOW = """
version: "1.1"
name: late-provider
providers:
  missing: {command: ["no-such-agent-program", "${PROMPT}"]}
steps:
  - name: First
    command: ["true"]
  - name: Second
    provider: missing
    input_file: prompt.md
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project of four languages, each with a recipe whose last agent cannot be reached."""
    made = Project(tmp_path)
    agents = json.loads((made.data / "agents.json").read_text())
    agents["agents"].append(
        {"id": "absent-1", "archetype": "absent", "tier": "t3", "backend": "gone", "modes": ["conference"]}
    )
    agents["agents"] += [
        {"id": f"{name}-1", "archetype": name, "tier": "t3", "backend": "bare", "model": model, "modes": ["pipeline"]}
        for name, model in (("named", "opus"), ("unnamed", None))
    ]
    agents["backends"] |= {"gone": ABSENT, "forgetful": FORGETFUL, "bare": UNNAMED}
    made.write(".control-room/agents.json", json.dumps(agents))
    made.write("prompt.md", "Say something.")
    made.add_recipe(PIPELINE)
    made.add_recipe(MODELS)
    made.write(".control-room/recipes/agent_recipes/two-steps.json", json.dumps(STATE_MACHINE))
    made.write(".control-room/recipes/amplifier/late-prompt.yaml", PROMPTS)
    made.write(".control-room/recipes/amplifier/outer.yaml", OUTER)
    made.write(".control-room/recipes/orchestrate/late-provider.yaml", WORKFLOW)
    return made


CASES = [
    ("late", {}, "$.phase_b[1].agent_archetype", "no-such-agent-program"),
    ("late-model", {}, "$.phase_b[2].agent_archetype", "names no model for sonnet"),
    ("two-steps", {"backend": "gone"}, "$.args.backend", "no-such-agent-program"),
    ("two-steps", {"backend": "forgetful"}, "$.args.backend", "cannot continue a conversation"),
    ("two-steps", {"backend": "local"}, "$.args.backend", "local"),
    ("late-prompt", {}, "$.steps[1].agent", "no-such-agent-program"),
    ("outer", {}, "$.steps[0].recipe", "no-such-agent-program"),
    ("late-provider", {}, "$.providers.missing.command[0]", "no-such-agent-program"),
]


@pytest.mark.parametrize(("recipe_id", "args", "path", "words"), CASES, ids=[f"{case[0]}-{case[3]}" for case in CASES])
async def test_a_start_without_its_backend_is_refused(
    service: served.Served, recipe_id: str, args: dict[str, Any], path: str, words: str
) -> None:
    """A start is refused with the place and the missing backend, even if only the last step needs it."""
    answer = await service.http.post("/api/runs", json={"recipe_id": recipe_id, "args": args})
    problem = answer.json()

    assert (answer.status_code, problem["code"]) == (409, "backend_not_ready")
    assert [flaw["path"] for flaw in problem["flaws"]] == [path]
    assert words in problem["flaws"][0]["message"]
    assert (await service.http.get("/api/runs")).json() == []


async def test_a_recipe_lists_its_missing_backends(service: served.Served) -> None:
    """Lists, details and checks of texts name the missing backends, and report that the recipe itself is valid."""
    listed = {entry["recipe_id"]: entry for entry in (await service.http.get("/api/recipes")).json()}
    body = {"dialect": "amplifier", "recipe": PROMPTS.replace("late-prompt", "another")}
    examined = (await service.http.post("/api/recipes/validate", json=body)).json()

    assert (listed["quick"]["ready"], listed["quick"]["lacks"]) == (True, [])
    for found in (listed["late"], listed["late-prompt"], listed["outer"], listed["late-provider"], examined):
        assert (found["valid"], found["ready"]) == (True, False)
        assert [lack["code"] for lack in found["lacks"]] == ["backend_not_ready"]


async def test_an_agent_lists_its_missing_model(service: served.Served) -> None:
    """The list of agents reports an agent whose backend has no model for it, and not one that names a model."""
    faults = {agent["id"]: agent["fault"] for agent in (await service.http.get("/api/agents")).json()}

    assert faults["named-1"] is None
    assert "names no model for sonnet" in faults["unnamed-1"]


def test_a_service_that_has_not_read_the_last_agents_is_named(project: Project) -> None:
    """A check of agents names a running service that started before the file was changed, and no other."""
    chosen, found = served.chosen(project), list[str | None]()
    platform = bootstrap.real_platform({})
    directory = data_directory.DataDirectory(project.data, clock=platform.clock, ids=platform.ids)
    directory.prepare()
    file, started = project.data / "agents.json", platform.clock.now().timestamp()
    lock = directory.lock_service()
    address = "http://127.0.0.1:1"
    for url, changed in ((None, started + 60), (address, started - 60), (address, started + 60)):
        lock.announce(url)
        os.utime(file, (changed, changed))
        found.append(bootstrap.outdated_service(chosen))
    lock.release()

    assert found[:2] == [None, None]
    assert address in str(found[2])
    assert bootstrap.outdated_service(chosen) is None


async def test_a_plan_is_not_begun_without_a_backend(service: served.Served) -> None:
    """A plan can be created without a backend, but not approved while a task's run would lack it."""
    tasks = [{"description": "first", "recipe_id": "quick"}, {"description": "then", "recipe_id": "late", "deps": [1]}]
    made = await service.http.post("/api/sessions", json={"tasks": tasks})
    refused = await service.http.post(f"/api/sessions/{made.json()['session_id']}/approve")

    assert made.status_code == 201
    assert (refused.status_code, refused.json()["code"]) == (409, "backend_not_ready")
    assert [flaw["path"] for flaw in refused.json()["flaws"]] == ["$.tasks[1]"]


async def test_a_conference_with_an_absent_agent_is_refused(service: served.Served) -> None:
    """A conference with an unreachable agent is refused with its program before any agent is called."""
    answer = await service.http.post("/api/conferences", json={"message": "Well?", "agents": ["absent-1"]})

    assert (answer.status_code, answer.json()["code"]) == (409, "backend_not_ready")
    assert "no-such-agent-program" in answer.json()["flaws"][0]["message"] + answer.json()["flaws"][-1]["message"]


async def test_a_backend_that_appears_is_found(service: served.Served, project: Project, monkeypatch: Any) -> None:
    """The next start finds a program that is installed after a refusal."""
    refused = await service.http.post("/api/runs", json={"recipe_id": "late-provider"})
    program = project.write("bin/no-such-agent-program", "#!/bin/sh\necho here\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    started = await service.http.post("/api/runs", json={"recipe_id": "late-provider"})

    assert (refused.status_code, started.status_code) == (409, 201)


async def test_the_list_names_the_agent_without_its_program(service: served.Served) -> None:
    """The list names the missing program for the agent that needs it, and for no other agent."""
    faults = {agent["id"]: agent["fault"] for agent in (await service.http.get("/api/agents")).json()}
    broken = {agent_id for agent_id, fault in faults.items() if fault and "no-such-agent-program" in fault}

    assert broken == {"absent-1"}
    assert faults["writer-1"] is None
