"""Conversations of programs on Temporal: kept on their worker, and begun again by order if the worker has lost them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap  # noqa: E402
from app.domain import states  # noqa: E402
from app.services import requests  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration.test_temporal_engine import SERVE, Scene, scene  # noqa: E402, F401
from tests.integration.test_temporal_machines import Machines, databases, machines  # noqa: E402, F401
from tests.unit.dialects.agent_recipes.recipe_harness import recipe  # noqa: E402

# Its memory is a file for each conversation; a test can hold a step until the project has a file `go`.
PROGRAM = """
import json, pathlib, sys, threading
home, argv = pathlib.Path(sys.argv[1]), sys.argv[2:]
way = "--resume" if "--resume" in argv else "--session-id"
talk, prompt = argv[argv.index(way) + 1], sys.stdin.read() or argv[-1]
memory = home / "memory" / talk
with (home / "calls.jsonl").open("a") as lines:
    lines.write(json.dumps({"way": way, "talk": talk, "prompt": prompt}) + "\\n")
step = max(("Review it.", "Mend it.", "Commit it."), key=prompt.rfind)
while step == "Mend it." and (home / "held").exists():
    threading.Event().wait(0.05)
if way == "--resume" and not memory.exists():
    sys.exit(f"No conversation found with session ID: {talk}")
memory.parent.mkdir(exist_ok=True)
with memory.open("a") as lines:
    lines.write(step + "\\n")
said = (home / "calls.jsonl").read_text()
outcome = {"Mend it.": "complete", "Commit it.": "committed"}.get(step)
outcome = outcome or ("no-issues" if "Mend" in said else "issues-found")
result = {"type": "result", "session_id": talk, "is_error": False, "result": 'WORDS\\n{"outcome": "%s"}' % outcome}
print(json.dumps(result | {"usage": {"input_tokens": 5, "output_tokens": 3}, "total_cost_usd": 0.5}))
"""


@pytest.fixture
def project(tmp_path: Path) -> projects.Project:
    """Create a project with the program and its recipe."""
    return equipped(projects.Project(tmp_path / "project"))


def equipped(project: projects.Project) -> projects.Project:
    """Give a project the program and a recipe whose steps use it in one conversation."""
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(recipe()))
    command = [sys.executable, "-IS", str(project.write("program/agent.py", PROGRAM)), str(project.root)]
    backend = {"type": "claude-code", "command": command, "allowed_tools": ["Bash"]}
    project.write(".control-room/agents.json", json.dumps({"agents": [], "backends": {"remembering": backend}}))
    project.write("held", "")
    return project


def calls(project: projects.Project) -> list[dict[str, Any]]:
    """Return the prompts that the program received."""
    return [json.loads(line) for line in (project.root / "calls.jsonl").read_text().splitlines()]


async def begun_again(scene: Scene, run_id: str) -> None:  # noqa: F811
    """Check that a run failed for a lost conversation, order a new one, and check that the run completes with it."""
    assert await scene.ended(run_id) is states.RunState.FAILED
    lost = await scene.service.store.read(run_id)
    said = calls(scene.project)
    await scene.service.runs.resume(run_id, requests.ResumeRequest(new_conversation=True))
    assert await scene.ended(run_id) is states.RunState.DONE
    done = await scene.service.store.read(run_id)
    asked = calls(scene.project)[len(said) :]

    error = lost.records[-1].error
    assert error is not None
    assert error.code == "unknown_agent_session"
    assert f"control-room runs resume {run_id} --conversation new" in error.message
    assert asked[0]["way"] == "--session-id"
    assert asked[0]["talk"] != said[0]["talk"]
    assert said[0]["prompt"] in asked[0]["prompt"]
    assert asked[0]["prompt"].count("WORDS") == 1
    assert asked[0]["prompt"].endswith(said[-1]["prompt"])
    # The review before the loss is not repeated.
    assert [record.key for record in done.records][:1] == [record.key for record in lost.records][:1]
    assert sum(call["prompt"].endswith(said[0]["prompt"]) for call in asked) <= 1


@pytest.mark.slow
async def test_a_lost_conversation_is_begun_again_by_order(scene: Scene):  # noqa: F811
    """If the worker's program has lost the conversation, the step fails, and an order begins it from the journal."""
    run_id = await scene.start("small", args={"backend": "remembering"})
    await scene.there("calls.jsonl", lines=2)
    shutil.rmtree(scene.project.root / "memory")
    (scene.project.root / "held").unlink()

    await begun_again(scene, run_id)


@pytest.mark.slow
async def test_a_worker_with_a_replaced_disk_continues_its_run(machines: Machines):  # noqa: F811
    """A machine that has lost all but its identity takes its run up again, with a new conversation."""
    equipped(machines.project)
    await temporal_server.connected(machines.address)
    async with bootstrap.build(machines.chosen(), SERVE) as service:
        scene = Scene(service, machines.project, await Client.connect(machines.address))
        first = await machines.work("a")
        run_id = await scene.start("small", args={"backend": "remembering"})
        await scene.there("calls.jsonl", lines=2)
        first.kill()
        first.wait()
        placed = (await service.store.read(run_id)).decisions.placed
        shutil.rmtree(machines.project.root / "memory")
        shutil.rmtree(machines.project.root / ".machine-a")
        machines.project.write(".machine-a/data_directory_id", f"{placed}\n")
        (machines.project.root / "held").unlink()
        await machines.work("a")

        await begun_again(scene, run_id)
        assert (await service.maintenance.verify(run_id))["ok"]
