"""The service as a process that is killed while clients use it."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance import programs

KEYS = [f"key-{number:02}" for number in range(40)]
ENOUGH = 15


def post(http: httpx.Client, key: str) -> tuple[int, str]:
    """Start a run with a key, and return the answer."""
    body = {"recipe_id": "small", "args": {"words": "gate"}}
    answer = http.post("/api/runs", json=body, headers={"Idempotency-Key": key})
    return answer.status_code, str(answer.json().get("run_id"))


def accepted_before_the_kill(service: programs.Service) -> dict[str, str]:
    """Post from several threads, kill the service meanwhile, and return the accepted runs."""
    accepted: dict[str, str] = {}
    enough = threading.Event()

    def ask(key: str) -> None:
        try:
            with service.http() as http:
                status, run_id = post(http, key)
        except httpx.TransportError:
            return
        assert status == 201
        accepted[key] = run_id
        if len(accepted) >= ENOUGH:
            enough.set()

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, key) for key in KEYS]
        enough.wait(60)
        service.signal(signal.SIGKILL)
        for each in asked:
            each.result()
    service.ended()
    return accepted


def test_every_accepted_run_exists_once_after_a_kill(tmp_path: Path) -> None:
    """After a kill during many requests, every accepted run exists once, and repetitions find it."""
    project = programs.make_project(tmp_path / "project")
    with programs.service(project) as service:
        accepted = accepted_before_the_kill(service)
    with programs.service(project) as service, service.http() as http:
        repeated = {key: post(http, key) for key in KEYS}
        ended = [service.wait(run_id)["status"] for _, run_id in repeated.values()]
        listed = http.get("/api/runs", params={"limit": 1000}).json()

    assert {key: repeated[key] for key in accepted} == {key: (200, run_id) for key, run_id in accepted.items()}
    assert {status for status, _ in repeated.values()} <= {200, 201}
    assert ended == ["done"] * len(KEYS)
    assert sorted(row["run_id"] for row in listed) == sorted(run_id for _, run_id in repeated.values())


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """Return the events of a stream."""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_follower_receives_each_later_event_once_after_a_kill(tmp_path: Path) -> None:
    """After a kill, a follower with the id of its last event receives each later event exactly once."""
    project = programs.make_project(tmp_path / "project")
    project.say(draft={"hang": True})
    with programs.service(project) as service, service.http() as http:
        run_id = service.start_run()
        address = f"/api/runs/{run_id}/events"
        with http.stream("GET", address) as answer:
            before = list(itertools.takewhile(lambda event: not _speaks(event), events(answer)))
        service.signal(signal.SIGKILL)
        service.ended()
    project.say()
    with programs.service(project) as service, service.http() as http:
        last = {"Last-Event-ID": str(before[-1]["seq"])}
        with http.stream("GET", address, headers=last) as answer:
            after = list(events(answer))
    told = [*before, *after]
    finished = [event["key"] for event in told if event["type"] == "step.finished"]

    assert [event["seq"] for event in told] == sorted({event["seq"] for event in told})
    assert finished[:3] == ["find", "brief", "draft"]
    assert len(finished) == len(set(finished))
    assert told[-1]["type"] == "run.ended"
    assert told[-1]["data"]["status"] == "done"


def _speaks(event: dict[str, Any]) -> bool:
    return (event["type"], event["key"]) == ("step.started", "draft")
