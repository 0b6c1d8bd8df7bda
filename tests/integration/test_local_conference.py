"""A conference on the local model: a schema binds its chief, so that it calls a tool in any case.

The opinions of 135 million parameters on the evidence are not always sensible; the test checks that the round is held
and closed.
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
"""Time limit of the conference, on a busy machine."""

UNUSABLE = ("empty_reply", "reply_degenerate", "reply_refused")
"""Other results of a reply of this model."""


async def test_the_local_model_confers(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chief calls the one allowed tool, an agent must give evidence for its opinion, and all results are kept."""
    monkeypatch.setattr(served, "WAIT_SECONDS", LOCAL_SECONDS)
    document = conferring.agents("local", writer="none")
    # The model often stops at its longest reply, which is then judged like any other.
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
        # A resume asks again after a reply without end or sense, so the round is not closed.
        assert steps["opinion.writer-1"]["error"]["code"] in UNUSABLE
        assert shown.status_code == 404
    else:
        assert list(steps)[3:] == ["transcript"]
        assert "1. file_locator" in shown.json()["text"]
        assert "### writer-1 (writer): " in shown.json()["text"]
