"""Set up Control Room, start it on the example project, and run `creative_draft_scene` through its HTTP interface.

    python3 scripts/demo.py [--port 8000] [--exit]

The service stays up afterwards until Ctrl-C; with --exit it is stopped at once.
The exit code is 0 if the run ended as `done`, 1 if not, 130 if it was interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import environment

HOST = "127.0.0.1"
EXAMPLE = environment.ROOT / ".control-room" / "example"
RECIPE = "creative_draft_scene"
START_SECONDS = 30
STOP_SECONDS = 30
POLL_SECONDS = 20
ENDINGS = ("done", "failed", "cancelled")


def main() -> None:
    """Set up, serve, run, show what to do next, and stay until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--port", type=int, default=8000, help="port of the service; a taken one is replaced by a free one"
    )
    parser.add_argument("--project", type=Path, default=EXAMPLE, help="folder of the project; by default the example")
    parser.add_argument("--exit", action="store_true", help="stop the service when the run has ended")
    chosen = parser.parse_args()
    environment.prepare(environment.SERVICE, environment.MODEL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run: dict[str, Any] | None = None
    try:
        with _service(chosen.project.resolve(), _free_port(chosen.port)) as server:
            run = _follow(server, _post(server))
            _tell_next(server, chosen.project, run)
            if not chosen.exit:
                print("The service stays up. Ctrl-C stops it; unfinished runs go on at its next start.", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print("\n== stopped", flush=True)
    if run is None:
        sys.exit(130)
    sys.exit(0 if run["status"] == "done" else 1)


def _free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            probe.bind((HOST, 0))
            print(f"== port {wanted} cannot be used ({error.strerror}); taking a free one", flush=True)
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _service(project: Path, port: int) -> Iterator[str]:
    server = f"http://{HOST}:{port}"
    command = [
        str(environment.VENV / "bin" / "control-room"),
        "serve",
        "--project",
        str(project),
        "--host",
        HOST,
        "--port",
        str(port),
    ]
    log_file = project / ".control-room" / "demo.log"
    log_file.parent.mkdir(mode=0o700, exist_ok=True)
    print(f"== starting the service on {project} at {server}; its log is {log_file}", flush=True)
    with log_file.open("a") as log:
        told_before = log.tell()
        # In a session of its own: Ctrl-C reaches this script alone, which then stops the service once.
        service = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=_surroundings()
        )
        try:
            _await_readiness(service, server, lambda: log_file.read_bytes()[told_before:].decode())
            yield server
        finally:
            _stop(service)


def _surroundings() -> dict[str, str]:
    # Settings of another service must not reach this one.
    return {name: value for name, value in os.environ.items() if not name.startswith("CONTROL_ROOM_")}


def _await_readiness(service: subprocess.Popen[bytes], server: str, told: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while service.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            _call("GET", f"{server}/readyz")
            return
        time.sleep(0.1)
    said = told().strip()[-4000:]
    ended = f"ended with code {service.returncode}" if service.poll() is not None else "did not get ready"
    sys.exit(f"The service {ended}. It said:\n{said}")


def _stop(service: subprocess.Popen[bytes]) -> None:
    if service.poll() is None:
        service.terminate()
    try:
        service.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()


def _post(server: str) -> str:
    body = {"recipe_id": RECIPE, **_task()}
    print(f"== POST {server}/api/runs\n{json.dumps(body, indent=2)}", flush=True)
    answer = _call("POST", f"{server}/api/runs", body)
    print(f"== run {answer['run_id']} is {answer['status']}", flush=True)
    return str(answer["run_id"])


def _task() -> dict[str, Any]:
    return {
        "description": "Draft scene 22, The Locked Lamp Room",
        "args": {
            "scene_path": "Story/Scenes/SCN-the-locked-lamp-room.md",
            "canon_paths": ["Compendium/Characters", "Compendium/Places/PLACE-lantern-tower.md"],
        },
    }


def _follow(server: str, run_id: str) -> dict[str, Any]:
    shown: set[tuple[str, str]] = set()
    etag = None
    while True:
        changed = _poll(f"{server}/api/runs/{run_id}?wait={POLL_SECONDS}", etag)
        if changed is None:
            continue
        run, etag = changed
        for step in run["steps"]:
            seen = (step["key"], step["status"])
            if seen not in shown:
                shown.add(seen)
                print(_line(step), flush=True)
        if run["status"] in ENDINGS or run["status"] in ("paused", "waiting"):
            print(f"== run {run_id} is {run['status']}{_reason(run)}", flush=True)
            return run


def _line(step: dict[str, Any]) -> str:
    who = step.get("tool") or step.get("agent_archetype") or ""
    text = f"   {step['status']:<8} {step.get('phase') or '-':<4} {step['key']:<24} {who:<18}"
    if step["status"] == "running":
        return text.rstrip()
    said = (step.get("error") or {}).get("message") or step.get("output_preview") or ""
    return f"{text} {' '.join(said.split()):.80}".rstrip()


def _reason(run: dict[str, Any]) -> str:
    return f": {run['error']['message']}" if run.get("error") else ""


def _tell_next(server: str, project: Path, run: dict[str, Any]) -> None:
    url = f"{server}/api/runs/{run['run_id']}"
    folder = project / ".control-room" / "runs" / run["run_id"]
    print(f"== its folder: {folder}\n== next:", flush=True)
    again = json.dumps({"recipe_id": RECIPE, **_task()})
    for command in (
        f"curl {url}",
        f"curl {url}/steps",
        *(f"curl {url}/cache/{slot}" for slot in list(run.get("cache_summary", {}))[-2:]),
        f"curl {url}/events",
        f"curl {server}/api/runs",
        f"curl {server}/api/recipes",
        f"curl -X POST {server}/api/runs -H 'Content-Type: application/json' -d '{again}'",
    ):
        print(f"   {command}", flush=True)


def _poll(url: str, etag: str | None) -> tuple[dict[str, Any], str | None] | None:
    request = urllib.request.Request(url, headers={"If-None-Match": etag} if etag else {})
    try:
        with urllib.request.urlopen(request, timeout=POLL_SECONDS + 30) as answer:
            return json.load(answer), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        if error.code == 304:
            return None
        raise


def _call(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        if error.code < 500 and method == "POST":
            sys.exit(f"{method} {url} was answered with {error.code}:\n{error.read().decode(errors='replace')}")
        raise


if __name__ == "__main__":
    main()
