"""Lost conversations: a program that has lost its conversation, and a person who orders a new one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration import served
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes.recipe_harness import recipe

FORGETFUL = """
import json, os, pathlib, sys
home, argv = pathlib.Path(sys.argv[1]), sys.argv[2:]
way = "--resume" if "--resume" in argv else "--session-id"
talk, prompt = argv[argv.index(way) + 1], sys.stdin.read() or argv[-1]
calls = home / "calls.jsonl"
said = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
with calls.open("a") as lines:
    lines.write(json.dumps({"way": way, "talk": talk, "prompt": prompt}) + "\\n")
if way == "--resume" and talk == said[0]["talk"]:
    sys.exit(f"No conversation found with session ID: {talk}")
if way == "--session-id" and talk in [call["talk"] for call in said]:
    sys.exit(f"Error: Session ID {talk} is already in use.")
step = max(("Review it.", "Mend it.", "Commit it."), key=prompt.rfind)
reviews = sum(call["prompt"].rfind("Review it.") > call["prompt"].rfind("Mend it.") for call in said)
outcome = {"Mend it.": "complete", "Commit it.": "committed"}.get(step, "no-issues" if reviews else "issues-found")
result = {"type": "result", "session_id": talk, "is_error": False, "result": 'WORDS\\n{"outcome": "%s"}' % outcome}
print(json.dumps(result | {"usage": {"input_tokens": 5, "output_tokens": 3}, "total_cost_usd": 0.5}))
"""


@pytest.fixture(autouse=True)
def forgetful(project: Project) -> Path:
    """Add a program that forgets its first conversation after its first prompt."""
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(recipe()))
    command = [sys.executable, "-IS", str(project.write("forgetful/agent.py", FORGETFUL)), str(project.root)]
    backend = {"type": "claude-code", "command": command, "allowed_tools": ["Bash"]}
    project.write(".control-room/agents.json", json.dumps({"agents": [], "backends": {"forgetful": backend}}))
    return project.root / "calls.jsonl"


def _calls(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in calls.read_text().splitlines()]


async def _resume(service: served.Served, run_id: str, **body: Any) -> httpx.Response:
    return await service.http.post(f"/api/runs/{run_id}/resume", json=body)


async def test_a_lost_conversation_is_begun_again_by_order(service: served.Served, forgetful: Path) -> None:
    """Only an order, which the error names, begins a lost conversation again, and repeats its earlier content once."""
    failed = await service.run("small", args={"backend": "forgetful"})
    await _resume(service, failed["run_id"])
    again = await service.until(failed["run_id"], "failed", "done")
    answer = await _resume(service, failed["run_id"], conversation="new")
    done = await service.until(failed["run_id"], "failed", "done")
    calls = _calls(forgetful)

    assert failed["error"]["code"] == again["error"]["code"] == "unknown_agent_session"
    assert f"control-room runs resume {failed['run_id']} --conversation new" in failed["error"]["message"]
    assert (answer.status_code, done["status"], done["ending"]["reason"]) == (200, "done", "changes-committed")
    assert [call["way"] for call in calls] == ["--session-id"] + ["--resume"] * 2 + ["--session-id"] + ["--resume"] * 2
    assert len({call["talk"] for call in calls[3:]}) == 1
    assert calls[3]["talk"] != calls[0]["talk"]
    assert calls[0]["prompt"] in calls[3]["prompt"]
    assert calls[3]["prompt"].count('WORDS\n{"outcome": "issues-found"}') == 1
    assert calls[3]["prompt"].endswith(calls[1]["prompt"])
    assert "WORDS" not in calls[4]["prompt"]
    assert done["usage"]["cost_usd"] == 0.5 * 2


async def test_a_run_without_a_conversation_has_none_to_begin_again(service: served.Served) -> None:
    """For a run without a conversation, the order is refused with a code and its place."""
    scenes = {"scene_path": "Story/Scenes/SCN-the-arrival.md", "other_path": "Story/Scenes/SCN-the-bridge.md"}
    run_id = await service.start("picky", args=scenes)
    failed = await service.until(run_id, "failed", "done")
    refused = (await _resume(service, run_id, conversation="new")).json()
    looked = await service.http.post(f"/api/runs/{run_id}/preview", json={"order": "resume", "conversation": "new"})
    unknown = await _resume(service, run_id, conversation="old")

    assert failed["status"] == "failed"
    assert (refused["code"], refused["flaws"][0]["path"]) == ("no_conversation", "$.conversation")
    assert (looked.json()["ok"], looked.json()["problems"]) == (False, refused["flaws"])
    assert unknown.status_code == 400
