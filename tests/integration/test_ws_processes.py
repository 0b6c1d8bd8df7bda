"""The WebSocket of the service as users run it: signals, a killed process, and the next one."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.acceptance import programs
from tests.integration import listening
from tests.unit.dialects.agent_recipes.recipe_harness import says

SECONDS = 60


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Return a project with scripted agents."""
    return programs.make_project(tmp_path / "project")


def _connected(service: programs.Service) -> ClientConnection:
    address = service.url.replace("http://", "ws://") + "/ws"
    return connect(address, proxy=None, max_size=None, open_timeout=SECONDS, close_timeout=SECONDS)


def _say(socket: ClientConnection, type: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": type} | fields))


def _until(socket: ClientConnection, type: str, **fields: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    while not told or told[-1]["type"] != type or fields.items() - told[-1].items():
        if not listening.waits(message := json.loads(socket.recv(SECONDS))):
            told.append(message)
    return told


def test_a_killed_service(project: programs.Project) -> None:
    """After kill -9 during a recipe the next process continues it; a returning client receives all missed messages."""
    project.say(**{"code-review": says("no-issues"), "commit": {"hang": True}})
    with programs.service(project) as service, _connected(service) as socket:
        _say(socket, "start_recipe", recipe_id="review-and-commit", backend="script")
        before = _until(socket, "recipe_step_started", step="commit")
        service.wait_for_step(before[0]["run_id"], "commit")
        service.signal(signal.SIGKILL)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(SECONDS)
    project.say(commit=says("committed"))
    with programs.service(project) as service, _connected(service) as socket:
        _say(socket, "subscribe", session_id=before[0]["session_id"], after_seq=before[-1]["seq"])
        after = _until(socket, "turn_complete")
        _say(socket, "subscribe", session_id=before[0]["session_id"])
        again = _until(socket, "turn_complete")

    assert closed.value.rcvd is None
    assert [message["type"] for message in after] == ["response", "recipe_exited", "turn_complete"]
    assert {message["session_id"] for message in after} == {before[0]["session_id"]}
    assert again == before + after


def test_a_stopped_service(project: programs.Project) -> None:
    """SIGTERM closes connections with 1012 and the reason, ends with 0, and leaves no traceback."""
    project.say(**{"code-review": {"hang": True}})
    short = programs.service(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2")
    with short as service, _connected(service) as socket, _connected(service) as idle:
        _say(socket, "start_recipe", recipe_id="review-and-commit", backend="script")
        _until(socket, "recipe_step_started")
        service.signal(signal.SIGTERM)
        codes = []
        for one in (socket, idle):
            with pytest.raises(ConnectionClosed) as closed:
                one.recv(SECONDS)
            codes.append(closed.value.rcvd and (closed.value.rcvd.code, closed.value.rcvd.reason))
        code = service.ended()

    assert codes == [(1012, "the service is stopping; subscribe again after it has restarted")] * 2
    assert code == 0
    assert "Traceback" not in "\n".join(service.logged)


def test_hostile_messages_leave_no_traceback(project: programs.Project) -> None:
    """Bad messages and broken frames are answered; the log contains no traceback, and the service still works."""
    with programs.service(project) as service:
        with _connected(service) as socket:
            answers = []
            for bad in ("", "{", b"\xff", '{"type": 1}', "[" * 10_000, "a" * 2_000_000):
                socket.send(bad)
                answers.append(json.loads(socket.recv(SECONDS))["type"])
        with _connected(service) as socket:
            socket.socket.sendall(b"\x81\x02{}")
            with pytest.raises(ConnectionClosed):
                socket.recv(SECONDS)
        with service.http() as http:
            alive = http.get("/readyz").status_code

    assert answers == ["error"] * 6
    assert alive == 200
    assert "Traceback" not in "\n".join(service.logged)
