"""
A conference on the local model: its chief is bound by a schema, so that it calls a tool whatever it thinks.

What 135 million parameters make of the evidence is not always sensible; that the round is held and closed, is certain.
"""

from __future__ import annotations

import json

import pytest

from app.agents import local
from tests.integration import conferring, served
from tests.integration.project import Project

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or ""),
]

LOCAL_SECONDS = 100
"""Time within which it is over, on a machine that does much beside."""


async def test_the_local_model_confers(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chief calls the one tool that it may, an agent is held to evidence for what it says, and all is kept."""
    monkeypatch.setattr(served, "PATIENCE_SECONDS", LOCAL_SECONDS)
    document = conferring.agents("local", writer="none")
    project.write(".control-room/agents.json", json.dumps(document))
    body = {
        "message": f"Is the scene {conferring.SCENE_PATH} well written?",
        "agents": ["writer"],
        "allowed_tools": ["file_locator"],
        "require_tool": True,
        "max_tool_calls": 1,
    }
    async with served.in_process(project) as service:
        answer = await service.http.post("/api/conferences", json=body)
        run = await service.until(answer.json()["run_id"], "done", "failed")
        transcript = (await service.http.get(f"/api/runs/{run['run_id']}/cache/transcript")).json()["text"]

    kept = [step["key"] for step in run["steps"] if step["status"] != "skipped"]
    assert [key for key in kept if not key.endswith(".evidence")] == [
        "chief", "tool", "opinion.writer-1", "transcript",
    ]  # fmt: skip
    assert run["status"] == "done" or run["error"]["code"] == "no_opinion", run["error"]
    assert "1. file_locator" in transcript
    assert "### writer-1 (writer): " in transcript
