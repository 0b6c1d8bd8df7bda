"""The command line beside a running service and as its client."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs

HELD = """\
name: held
description: Wait for a file
version: "1.0.0"
steps:
  - {id: hold, type: bash, command: "until [ -e go ]; do sleep 0.05; done"}
  - {id: after, type: bash, command: "true"}
schema: "1.7"
"""


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


@pytest.fixture
def service(project: programs.Project) -> Iterator[programs.Service]:
    """Serve the project."""
    with programs.service(project) as served:
        yield served


def test_run_by_a_service_is_followed_to_its_end(service: programs.Service):
    """`run --server` prints the steps that the service executes, and ends with the run's exit code."""
    done = programs.control_room("run", "small", "--arg", "words=gate", "--server", service.url)

    assert ["b", "done", "draft"] in [line.split()[:3] for line in done.stdout.splitlines()]
    assert done.stdout.splitlines()[-1].endswith(" done")


def test_detached_run_is_only_started(service: programs.Service):
    """`--detach` prints the run's id at once, and the server may come from the environment."""
    started = programs.asked("run", "small", "--arg", "words=gate", "--detach", CONTROL_ROOM_SERVER=service.url)

    assert set(started) == {"run_id", "status"}
    assert service.wait(started["run_id"])["status"] == "done"


def test_same_answers_over_http_and_in_process(project: programs.Project, service: programs.Service):
    """Reading commands print the same in process and through the service, while the service runs."""
    run_id = service.start_run()
    service.wait(run_id)
    for arguments in (
        ["runs", "show", run_id],
        ["runs", "steps", run_id],
        ["runs", "slot", run_id, "text"],
        ["runs", "slot", run_id, "found"],
        ["runs", "logs", run_id],
        ["runs", "logs", run_id, "draft.1.reply.md"],
        ["runs", "list"],
        ["recipes", "list"],
        ["recipes", "show", "small"],
        ["route", "a small task"],
    ):
        there = programs.asked(*arguments, "--server", service.url)
        here = programs.asked(*arguments, project=project)

        assert there == here, arguments


def test_events_are_the_same_over_http_and_in_process(project: programs.Project, service: programs.Service):
    """Following a run prints the same events from the stream and from the folder."""
    run_id = service.start_run()
    there = programs.control_room("runs", "follow", run_id, "--json", "--server", service.url).stdout
    here = programs.control_room("runs", "follow", run_id, "--json", project=project).stdout

    assert [json.loads(line) for line in there.splitlines()] == [json.loads(line) for line in here.splitlines()]


def test_orders_reach_the_runs_of_a_service(project: programs.Project, service: programs.Service):
    """Orders to a service's runs go over HTTP, with the same exit codes as in process."""
    project.say(draft=[{"hang": True}, "later"])
    run_id = service.start_run()
    service.wait_for_step(run_id, "draft")
    server = ("--server", service.url)

    assert programs.asked("runs", "cancel", run_id, *server) == {"run_id": run_id, "status": "cancelled"}
    service.wait(run_id, "cancelled")
    programs.control_room("runs", "cancel", run_id, *server, code=1)
    programs.control_room("runs", "follow", run_id, *server, code=3)
    assert programs.asked("runs", "resume", run_id, *server)["run_id"] == run_id
    assert service.wait(run_id)["status"] == "done"
    programs.control_room("runs", "delete", run_id, *server)
    programs.control_room("runs", "show", run_id, *server, code=4)


def test_a_paused_run_ends_the_following_and_can_be_resumed(project: programs.Project, service: programs.Service):
    """A pause takes effect after the current step, and following a paused run ends with 1."""
    project.write("recipes/amplifier/held.yaml", HELD)
    run_id = service.start_run(recipe_id="held", args={})
    service.wait_for_step(run_id, "hold")
    server = ("--server", service.url)
    programs.control_room("runs", "pause", run_id, *server)
    (project.path / "go").touch()
    service.wait(run_id, "paused")

    followed = programs.control_room("runs", "follow", run_id, *server, code=1)
    assert "paused" in followed.stdout
    assert "paused" in programs.control_room("runs", "follow", run_id, project=project, code=1).stdout
    programs.control_room("runs", "unpause", run_id, *server)
    assert service.wait(run_id)["status"] == "done"


def test_folder_is_not_changed_under_a_service(project: programs.Project, service: programs.Service):
    """Beside a service, orders to runs and an index rebuild are refused, and the message names its address."""
    run_id = service.start_run()
    for verb in ("cancel", "pause", "unpause", "resume", "delete"):
        refused = programs.control_room("runs", verb, run_id, project=project, code=5)
        assert f"--server {service.url}" in refused.stderr

    assert f"--server {service.url}" in programs.control_room("index", "rebuild", project=project, code=5).stderr
    assert service.wait(run_id)["status"] == "done"


def test_errors_of_the_service_read_as_in_process(service: programs.Service, tmp_path: Path):
    """Refusals over HTTP keep their flaws and exit codes."""
    server = ("--server", service.url)
    unknown = programs.control_room("run", "smal", *server, code=4)
    unfit = programs.control_room("run", "small", "--arg", "wrods=x", *server, code=2)
    file = tmp_path / "own.json"
    file.write_text('{\n  "recipe_id": "own",\n  "label": 5')

    assert "small" in unknown.stderr
    assert "$.args.words" in unfit.stderr
    assert programs.asked("recipes", "validate", file, *server, code=2)[0]["valid"] is False
    programs.control_room("run", "small", "--arg", "wrods=x", "--dry-run", *server, code=2)


def test_token_is_sent_and_missed(project: programs.Project):
    """The token comes from the environment; without it, the service's refusal is a configuration error."""
    token = "a-secret-token-of-this-test"
    with programs.service(project, CONTROL_ROOM_API_TOKEN=token) as service:
        refused = programs.control_room("runs", "list", "--server", service.url, code=5)
        allowed = programs.asked("runs", "list", "--server", service.url, CONTROL_ROOM_API_TOKEN=token)

    assert "token" in refused.stderr.lower()
    assert allowed == []


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:1", "127.0.0.1:8000", "nonsense", "http://", "http://[", "ftp://127.0.0.1"]
)
def test_server_that_cannot_be_reached_is_exit_code_5(server: str):
    """An address without a server is reported in one line."""
    refused = programs.control_room("runs", "list", "--server", server, code=5)

    assert refused.stderr.startswith("control-room: ")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("token", ["schlüssel", "swordfish\n", "sword fish"])
def test_token_that_no_header_can_carry_is_exit_code_5(token: str):
    """A token that a header cannot contain is refused by its setting, and not printed."""
    refused = programs.control_room(
        "runs", "list", "--server", "http://127.0.0.1:1", code=5, CONTROL_ROOM_API_TOKEN=token
    )

    assert "CONTROL_ROOM_API_TOKEN" in refused.stderr
    assert token.strip() not in refused.stderr
    assert "internal error" not in refused.stderr


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("run", "small"), "schlüssel"),
        (("plan", "create", "x", "--task", "small task"), "two\nlines"),
        (("confer", "What is it?"), ""),
        (("issues", "open", "It leaks."), " "),
    ],
)
def test_key_that_no_header_can_carry_is_exit_code_2(command: tuple[str, ...], key: str):
    """An idempotency key that a header cannot contain is refused by its option."""
    refused = programs.control_room(*command, "--idempotency-key", key, "--server", "http://127.0.0.1:1", code=2)

    assert "--idempotency-key" in refused.stderr


class _Stranger(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = 500 if "recipes" in self.path else 200
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_: object) -> None:
        pass


def test_server_of_another_kind_is_exit_code_5():
    """A server that is not a Control Room is reported with its answer's type or status."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stranger) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{stranger.server_address[1]}"
        try:
            odd = programs.control_room("runs", "list", "--server", url, code=5)
            broken = programs.control_room("recipes", "list", "--server", url, code=5)
        finally:
            stranger.shutdown()
            thread.join()

    assert "text/html" in odd.stderr
    assert "500" in broken.stderr


def test_runs_above_in_another_project_count_for_the_depth(project: programs.Project, service: programs.Service):
    """A command inside a run of another project starts a run by a service, within the same depth limit."""
    words = ("run", "small", "--arg", "words=gate", "--server", service.url)
    above: dict[str, Any] = {"CONTROL_ROOM_RUN_ID": "20260210T143000Z-abc123"}
    started = programs.asked(*words, "--detach", CONTROL_ROOM_DEPTH="1", **above)
    refused = programs.control_room(*words, code=2, CONTROL_ROOM_DEPTH="3", **above)
    start = json.loads((project.data / "runs" / started["run_id"] / "start.json").read_text())

    assert start["depth"] == 2
    assert "[depth_exceeded]" in refused.stderr
