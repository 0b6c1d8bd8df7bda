"""A conference on the local model: its chief is bound by a schema, so that it calls a tool whatever it thinks.

What 135 million parameters make of the evidence is not always sensible; that the round is held and closed, is certain.
"""

from __future__ import annotations

import json

import pytest

from app.agents import local
from tests.integration import conferring, served
from tests.integration.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or ""),
]

LOCAL_SECONDS = 100
"""Time within which it is over, on a machine that does much beside."""

UNUSABLE = ("empty_reply", "reply_degenerate", "reply_refused")
"""What else a reply of this model can be."""


async def test_the_local_model_confers(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chief calls the one tool that it may, an agent is held to evidence for what it says, and all is kept."""
    monkeypatch.setattr(served, "WAIT_SECONDS", LOCAL_SECONDS)
    document = conferring.agents("local", writer="none")
    # The model often stops at its longest reply, which is judged like any other then.
    document["agents"] = [agent | {"on_cut_off": "keep"} for agent in document["agents"]]
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
        shown = await service.http.get(f"/api/runs/{run['run_id']}/cache/transcript")

    steps = {step["key"]: step for step in run["steps"] if not step["key"].endswith(".evidence")}
    assert list(steps)[:3] == ["chief", "tool", "opinion.writer-1"]
    assert run["status"] == "done" or run["error"]["code"] == "no_opinion", run["error"]
    if steps["opinion.writer-1"]["status"] == "failed":
        # A reply without end or sense is asked for again by a resume, so the round is not closed.
        assert steps["opinion.writer-1"]["error"]["code"] in UNUSABLE
        assert shown.status_code == 404
    else:
        assert list(steps)[3:] == ["transcript"]
        assert "1. file_locator" in shown.json()["text"]
        assert "### writer-1 (writer): " in shown.json()["text"]
