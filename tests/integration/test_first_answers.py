"""The first answers about a new run are consistent."""

from __future__ import annotations

from tests.integration import served


async def test_a_run_answered_as_running_is_never_pending_later(service: served.Served) -> None:
    """A run whose start was answered as `running` is never shown as `pending` afterwards."""
    await service.http.get("/readyz")
    told: list[tuple[str, str]] = []
    for _ in range(25):
        answer = await service.http.post("/api/runs", json={"recipe_id": "quick"})
        shown = [await service.show(answer.json()["run_id"]) for _ in range(4)]
        told += [(answer.json()["status"], one["status"]) for one in shown]

    assert ("running", "pending") not in told
