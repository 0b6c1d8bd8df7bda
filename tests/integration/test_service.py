"""Answers for monitoring: whether the service is alive and ready, and how busy it is."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from tests.integration import project as projects
from tests.integration import served


async def test_a_service_is_alive_and_ready(service: served.Served) -> None:
    """A working service reports that it is alive and ready, and how many runs it can execute."""
    alive = await service.http.get("/healthz")
    ready = await service.http.get("/readyz")

    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready", "running": 0, "queued": 0, "resting": 0, "limit": 8}


async def test_the_service_reports_running_and_queued_runs(project: projects.Project) -> None:
    """The service reports the numbers of running and queued runs."""
    project.say("draft", hang=True)
    async with served.in_process(project, max_running=1) as service:
        first = await service.start("unguarded")
        await service.until(first, step="draft")
        second = await service.start("quick")
        ready = (await service.http.get("/readyz")).json()
        for run_id in (second, first):
            await service.http.post(f"/api/runs/{run_id}/cancel")

    assert (ready["running"], ready["queued"], ready["limit"]) == (1, 1, 1)


async def test_metrics_count_requests_by_route(service: served.Served) -> None:
    """Metrics are Prometheus text, and requests are counted by the pattern of their route, never by id."""
    run_id = (await service.run("quick"))["run_id"]
    await service.http.get(f"/api/runs/{run_id}/steps")
    await service.http.get("/nowhere")
    await service.http.request("BREW", "/nowhere")
    answer = await service.http.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    counted = {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["control_room_http_requests"].samples
        if sample.name.endswith("_total")
    }

    assert answer.headers["content-type"].startswith("text/plain")
    assert counted["GET", "/api/runs/{run_id}/steps", "200"] == 1
    assert counted["POST", "/api/runs", "201"] == 1
    assert counted["GET", "unmatched", "404"] == 1
    assert counted["other", "unmatched", "404"] == 1
    assert run_id not in answer.text


async def test_the_document_is_served(service: served.Served) -> None:
    """The service serves its OpenAPI document."""
    answer = await service.http.get("/openapi.json")

    assert answer.status_code == 200
    assert json.loads(answer.text)["info"]["title"] == "Control Room"
