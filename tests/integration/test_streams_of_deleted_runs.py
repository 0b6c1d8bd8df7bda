"""Event streams of runs that are deleted, or whose folder is removed."""

from __future__ import annotations

import shutil

from tests.integration import served


async def test_a_stream_of_a_run_that_is_gone_ends(service: served.Served) -> None:
    """The stream of a run whose folder was removed is empty, and not a broken connection."""
    run_id = (await service.run("quick"))["run_id"]
    shutil.rmtree(service.project.data / "runs" / run_id)
    answer = await service.http.get(f"/api/runs/{run_id}/events")

    assert answer.status_code in (200, 404)
    assert "event:" not in answer.text


async def test_the_stream_of_a_deleted_run_is_not_found(service: served.Served) -> None:
    """The stream of a deleted run is a 404."""
    run_id = (await service.run("quick"))["run_id"]
    await service.http.delete(f"/api/runs/{run_id}")
    answer = await service.http.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": "1"})

    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
