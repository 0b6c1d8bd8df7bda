"""The service, killed at each write of its unattended parts, and started again."""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import smoke
from tests.acceptance.forked_service import Service
from tests.integration.project import Project

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
POINTS = ["before_write", "before_rename", "after_rename"]


@pytest.mark.parametrize("point", smoke.only("before_rename", POINTS))
def test_a_delivery_that_was_cut_off_starts_one_run(tmp_path: Path, point: str) -> None:
    """A delivery without an answer can be repeated to the next service, and starts one run."""
    Project(tmp_path)
    service = Service(tmp_path)
    address = _http(service).post("/api/triggers", json={"recipe_id": "quick", "webhook": {}}).json()["address"]
    service.stop()
    service = Service(tmp_path, f"storage.document.{point}:1")
    with pytest.raises(httpx.HTTPError):
        _deliver(_http(service), address)
    assert service.ended() != 0

    service = Service(tmp_path)
    client = _http(service)
    try:
        again = _deliver(client, address)
        third = _deliver(client, address)
        runs = client.get("/api/runs").json()
        (trigger,) = client.get("/api/triggers").json()
    finally:
        service.stop()

    assert again["run_id"] == third["run_id"] == runs[0]["run_id"]
    assert len(runs) == 1
    assert trigger["last_run_id"] == again["run_id"]


@pytest.mark.parametrize("point", smoke.only("before_rename", POINTS))
def test_a_message_is_delivered_though_the_service_dies_over_it(tmp_path: Path, point: str) -> None:
    """A message that is interrupted by a kill is delivered by the next service, each under one id."""
    Project(tmp_path)
    received: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    known: list[tuple[str, str]] = []
    with _Receiver(received) as url:
        service = Service(tmp_path)
        client = _http(service)
        body = {"argv": ["sh", "-c", f"exec {_POST.format(url=url)}"]}
        assert client.post("/api/notifications/endpoints", json=body).status_code == 201
        service.stop()
        service = Service(tmp_path, f"storage.document.{point}:1")
        client = _http(service)
        run_id = client.post("/api/runs", json={"recipe_id": "quick"}).json()["run_id"]
        assert service.ended() != 0

        service = Service(tmp_path)
        client = _http(service)
        try:
            second = client.post("/api/runs", json={"recipe_id": "quick"}).json()["run_id"]
            while second not in dict(known):
                known.append(received.get(timeout=60))
        finally:
            service.stop()

    assert {told for told, _ in known} == {run_id, second}
    assert len(set(known)) == 2


def test_a_refused_message_is_delivered_after_a_kill(tmp_path: Path) -> None:
    """A refused message of an ended run is delivered by the next service after a kill."""
    Project(tmp_path)
    received: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    with _Receiver(received) as url:
        (tmp_path / "refuse").touch()
        service = Service(tmp_path)
        client = _http(service)
        command = f"touch tried; test ! -e refuse || exit 1; exec {_POST.format(url=url)}"
        client.post("/api/notifications/endpoints", json={"argv": ["sh", "-c", command]})
        run_id = client.post("/api/runs", json={"recipe_id": "quick"}).json()["run_id"]
        while client.get(f"/api/runs/{run_id}?wait=5").json()["status"] != "done":
            pass
        while not (tmp_path / "tried").exists():
            client.get("/healthz")
        service.kill()
        (tmp_path / "refuse").unlink()

        service = Service(tmp_path)
        try:
            found = received.get(timeout=60)
        finally:
            service.stop()

    assert found[0] == run_id


_PRICE = {"input_per_million_usd": 1, "output_per_million_usd": 2}

CHANGES: Mapping[str, tuple[str, str, str, dict[str, Any]]] = {
    "budget": ("project_file", "PUT", "/api/budgets/all", {"limits": {"calls": 9}}),
    "policies": ("project_file", "PUT", "/api/policies", {"policies": [{"recipe_id": "*", "limits": {"calls": 9}}]}),
    "prices": ("project_file", "PUT", "/api/prices", {"version": "1", "models": {"m": _PRICE}}),
    "key": ("project_file", "POST", "/api/keys", {"name": "ada", "role": "admin"}),
    "retention": ("document", "PUT", "/api/retention", {"rules": [{"older_than_seconds": 86_400}]}),
    "trigger": ("document", "POST", "/api/triggers", {"recipe_id": "quick", "webhook": {}}),
    "endpoint": ("document", "POST", "/api/notifications/endpoints", {"argv": ["true"]}),
}
"""Changes by the noun of their audit entry: the kind of file, and the request of the change."""

DEATHS = ["audit.before_append", "audit.after_append", *POINTS]


@pytest.mark.parametrize(
    ("change", "point"),
    smoke.only(("prices", "before_rename"), [(change, point) for change in CHANGES for point in DEATHS]),
)
def test_a_change_that_was_cut_off_is_whole_or_not_there(tmp_path: Path, change: str, point: str) -> None:
    """After a kill the change is whole or missing, has its audit entry, and can be repeated; usage counts once."""
    project = Project(tmp_path)
    file, method, path, body = CHANGES[change]
    shown = path.removesuffix("/all")
    with _served(project, None) as client:
        assert client.put("/api/budgets/all", json={"limits": {"calls": 5}}).status_code == 200
        run_id = client.post("/api/runs", json={"recipe_id": "draft", "args": ARRIVAL}).json()["run_id"]
        while client.get(f"/api/runs/{run_id}?wait=5").json()["status"] != "done":
            pass
        before = client.get(shown).json()
        entries = len(client.get("/api/audit", params={"action": change}).json())
    service = Service(tmp_path, f"storage.{point if point.startswith('audit') else f'{file}.{point}'}:1")
    with pytest.raises(httpx.HTTPError):
        _http(service).request(method, path, json=body)
    assert service.ended() != 0

    with _served(project, "x" * 20) as client:
        listed = client.get("/api/audit", params={"action": change}).json()
        after = client.get(shown).json()
        again = client.request(method, path, json=body)
        (budget,) = client.get("/api/budgets").json()
        log = next(each for each in client.get("/api/verification").json() if "audit" in json.dumps(each))

    made = point == "after_rename"
    assert (after != before) is made
    assert len(listed) == entries + (point != "audit.before_append")
    assert budget["used"]["calls"] == 2
    assert again.status_code in ({200, 201, 409} if made else {200, 201}), again.text
    assert "corrupt" not in json.dumps(log)


@contextlib.contextmanager
def _served(project: Project, token: str | None) -> Iterator[httpx.Client]:
    service = Service(project.root, token=token)
    client = _http(service)
    if token is not None:
        client.headers["Authorization"] = f"Bearer {token}"
    try:
        yield client
    finally:
        service.stop()


# The command reads its message from its own input, because commands for several runs share one folder.
_POST = "python3 -c \"import sys, urllib.request as u; u.urlopen(u.Request('{url}', data=sys.stdin.buffer.read()))\""


def _http(service: Service) -> httpx.Client:
    client = service.http()
    assert client is not None
    return client


def _deliver(client: httpx.Client, address: str) -> dict[str, Any]:
    answer = client.post(address, json={"a": 1}, headers={"webhook-id": "msg_1"})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


class _Receiver:
    """A server that records the run and the id of each message."""

    def __init__(self, received: queue.SimpleQueue[tuple[str, str]]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.put((message["data"]["run_id"], message["id"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
