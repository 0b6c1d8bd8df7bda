"""No descriptor is left, not even for a lock file: every address answers with a problem, and later recovers."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration import served
from tests.integration.project import Project


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let the system refuse every further descriptor of this process with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_lack_of_descriptors_is_never_an_internal_error(project: Project) -> None:
    """If locks of runs, issues, plans and conversations cannot be opened, the answer is a 503 or 507, never a 500."""
    tasks = [{"description": "look around"}]
    async with served.in_process(project) as service:
        done = (await service.run("quick"))["run_id"]
        failed = (await service.run("picky", args={"scene_path": "x", "other_path": "y"}))["run_id"]
        plan = (await service.http.post("/api/sessions", json={"tasks": tasks})).json()["session_id"]
        issue = (await service.http.post("/api/issues", json={"title": "A lamp"})).json()["issue_id"]
        asked: list[tuple[str, str, Any]] = [
            ("POST", f"/api/runs/{failed}/resume", {}),
            ("DELETE", f"/api/runs/{done}", None),
            ("GET", f"/api/runs/{failed}/steps", None),
            ("PATCH", f"/api/issues/{issue}", {"note": "lit"}),
            ("POST", "/api/sessions", {"tasks": tasks}),
            ("POST", f"/api/sessions/{plan}/approve", None),
        ]
        with no_descriptors():
            answers = [await service.http.request(method, path, json=body) for method, path, body in asked]
        healed = [await service.http.request(method, path, json=body) for method, path, body in asked]

    told = [(answer.status_code, answer.json()["code"]) for answer in answers]

    assert set(told) <= {(503, "unreadable"), (507, "no_room")}, told
    assert {answer.headers["content-type"].partition(";")[0] for answer in answers} == {"application/problem+json"}
    assert [answer.status_code for answer in healed] == [200, 204, 200, 200, 201, 200]
