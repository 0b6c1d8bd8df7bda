"""The demo's service: starts, kills and stops `control-room serve`, and sends requests to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from app import errors, settings
from app.cli.demo import address
from app.processes import process_tree

HANG = {"hang": True}  # Reply of the scripted writer that never arrives.

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_POLL_SECONDS = 20
_SHOWN_BYTES = 4000
_RESTING = ("done", "failed", "cancelled", "paused", "waiting")


class Service:
    """`control-room serve` on one project, as a separate process that ends with this one.

    Args:
        packages: Folder with further packages, those of the local model.
    """

    def __init__(self, project: Path, port: int, packages: Path | None) -> None:
        self.url = address.of(port)
        self._http = httpx.Client(base_url=self.url, timeout=_POLL_SECONDS + 30, trust_env=False)
        self._project = project
        self._packages = packages
        self._log = project / ".control-room" / "demo.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        assert self._process is not None
        return self._process.pid

    def script_writer(self, *, hangs: bool) -> None:
        """Let the scripted writer hang in its first attempt, or answer at once; this does not affect a model."""
        file = self._project / ".control-room" / "replies.json"
        if not file.exists():
            return
        replies = json.loads(file.read_text(encoding="utf-8"))
        reply = replies["draft"][-1] if isinstance(replies["draft"], list) else replies["draft"]
        replies["draft"] = [HANG, reply] if hangs else reply
        file.write_text(json.dumps(replies, indent=2, ensure_ascii=False), encoding="utf-8")

    def start(self) -> None:
        """Start the service and wait until it accepts runs.

        Raises:
            errors.ConfigurationError: it ended, or did not become ready; the message contains the end of its log.
        """
        self._log.parent.mkdir(mode=0o700, exist_ok=True)
        arguments = ["--project", str(self._project), "--host", address.HOST, "--port", self.url.rpartition(":")[2]]
        with self._log.open("ab") as log:
            logged_before = log.tell()
            # In a session of its own: Ctrl-C reaches only the demo, which then stops the service.
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-P", "-m", "app", "serve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=process_tree.ended_with_parent(signal.SIGTERM),  # noqa: PLW1509 - there are no threads
            )
        if not self._becomes_ready():
            code = self._process.poll()
            self.stop()
            output = self._log.read_bytes()[logged_before:].decode(errors="replace").strip()[-_SHOWN_BYTES:]
            ended = "did not become ready" if code is None else f"ended with code {code}"
            raise errors.ConfigurationError(f"The service {ended}. Its output:\n{output}", code="service_not_started")

    def kill(self) -> None:
        """Kill the service as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the service if it runs."""
        if self._process is None:
            return
        # SIGTERM first, which lets steps in flight end.
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait(self) -> None:
        """Wait until the service ends."""
        assert self._process is not None
        self._process.wait()

    def get(self, path: str) -> Any:
        """Return the service's answer at an address.

        Raises:
            errors.ControlRoomError: it refused, or is away.
        """
        return self._ask("GET", path).json()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the reply.

        Raises:
            errors.ControlRoomError: the service refused it, or is away.
        """
        answer: dict[str, Any] = self._ask("POST", path, json=body).json()
        return answer

    def follow(self, run_id: str) -> Iterator[dict[str, Any]]:
        """Yield a run, and again after each of its changes, until it ends, pauses or waits."""
        etag = ""
        while True:
            # The first request returns at once; later ones wait for a change.
            wait = _POLL_SECONDS if etag else 0
            reply = self._ask("GET", f"/api/runs/{run_id}?wait={wait}", headers={"If-None-Match": etag})
            if reply.status_code == httpx.codes.NOT_MODIFIED:
                continue
            run, etag = reply.json(), reply.headers["ETag"]
            yield run
            if run["status"] in _RESTING:
                return

    def _ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            reply = self._http.request(method, path, **content)
        except httpx.TransportError as error:
            raise errors.ControlRoomError(f"{method} {path}: {error}; see {self._log}", code="service_away") from error
        if reply.is_error:
            raise errors.ControlRoomError(f"{method} {path}: {reply.status_code} {reply.text}", code="service_refused")
        return reply

    def _becomes_ready(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if self._http.get("/readyz").is_success:
                    return True
            # Wait for its end instead of sleeping: the failure of a service is reported at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
        return False

    def _environment(self) -> dict[str, str]:
        # Settings of another service must not reach this one.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(settings.PREFIX)}
        if self._packages is not None:
            paths = [str(self._packages), *filter(None, [environ.get("PYTHONPATH")])]
            environ["PYTHONPATH"] = os.pathsep.join(paths)
        return environ
