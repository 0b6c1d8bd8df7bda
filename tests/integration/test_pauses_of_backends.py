"""Pauses of backends: a backend that answered with `Retry-After` gets no prompt before then, also after a restart."""

from __future__ import annotations

import asyncio
import json
from importlib import util

import pytest

from tests.integration import served
from tests.integration.project import Project
from tests.unit.agents import http_service


async def test_retry_after_counts_after_a_restart(project: Project) -> None:
    """A backend refuses a prompt for ten minutes; the next service holds another run's prompt until then."""
    if util.find_spec("openai") is None:
        pytest.skip("the package openai is not installed")
    refusal = http_service.said_json({"error": {"message": "No."}}, 429, retry_after="600", x_should_retry="false")
    async with http_service.service(refusal) as running:
        _speak_with(project, running.url)
        async with served.in_process(project) as service:
            failed = await service.until(await service.start("unguarded"), "failed")
        async with served.in_process(project) as service:
            run_id = await service.start("unguarded")
            queued = None
            async with asyncio.timeout(served.WAIT_SECONDS):
                while queued is None:
                    await served.moment()
                    steps = (await service.show(run_id))["steps"]
                    queued = next((step.get("queued") for step in steps if step["key"] == "draft"), None)
            why = (await service.http.get(f"/api/runs/{run_id}/why")).json()
            await service.http.post(f"/api/runs/{run_id}/cancel")
            await service.until(run_id, "cancelled")

    assert failed["error"]["code"] == "rate_limited"
    assert len(running.asked) == 1
    assert queued["until"] > failed["completed_at"]
    assert why["chain"][-1]["kind"] == "backend_queue"


async def test_a_refused_prompt_is_explained_by_its_service(project: Project) -> None:
    """For a run with a refused prompt, `why` shows when the service asks the backend again."""
    if util.find_spec("openai") is None:
        pytest.skip("the package openai is not installed")
    refusal = http_service.said_json({"error": {"message": "No."}}, 429, retry_after="90")
    async with http_service.service(refusal) as running:
        _speak_with(project, running.url)
        async with served.in_process(project) as service:
            run_id = await service.start("unguarded")
            link = {"kind": ""}
            async with asyncio.timeout(served.WAIT_SECONDS):
                while link["kind"] != "backend_queue":
                    await served.moment()
                    link = (await service.http.get(f"/api/runs/{run_id}/why")).json()["chain"][-1]
            await service.http.post(f"/api/runs/{run_id}/cancel")
            await service.until(run_id, "cancelled")

    assert link["text"].endswith(f"accepts no prompt before {link['until']}; it is asked again then")


def _speak_with(project: Project, url: str) -> None:
    agents = json.loads((project.data / "agents.json").read_text())
    agents["backends"]["said"] = {"type": "openai", "base_url": f"{url}/v1", "models": {"sonnet": "m"}}
    project.write(".control-room/agents.json", json.dumps(agents))
