"""The whole service in a process forked from a warm one, so that hundreds of kills take minutes instead of hours.

It runs the same code as `control-room serve`; a few tests kill the command itself as well.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from app import main, settings
from app.crash_lab import forks
from tests.acceptance import forking

_START_SECONDS = 60
_STOP_SECONDS = 60


class Service:
    """A service on a free port of loopback."""

    def __init__(self, project: Path, crash_at: str | None = None, token: str | None = None) -> None:
        processes = forking.processes()
        self._told, teller = processes.Pipe(duplex=False)
        self._process = processes.Process(target=_serve, args=(project, crash_at, token, teller))
        forks.begin(self._process)
        teller.close()

    def http(self) -> httpx.Client | None:
        """Return a client once the service listens, or None if it died before."""
        while self._told.poll(_START_SECONDS):
            try:
                line: str = self._told.recv()
            except EOFError:
                return None
            if " listens on " in line:
                address = line.split(" listens on ")[1]
                return httpx.Client(base_url=address, timeout=60, trust_env=False, verify=False)
        raise TimeoutError("the service does not listen")

    def stop(self) -> int:
        """Stop the service gracefully, and return its exit code."""
        self._signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """Kill the service."""
        self._signal(signal.SIGKILL)
        self.ended()

    def ended(self) -> int:
        """Wait for the end of the service, and return its exit code."""
        code = forks.ended(self._process, _STOP_SECONDS)
        if code is None:
            self._process.kill()
            raise TimeoutError("the service does not end")
        return code

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        if forks.ended(self._process, 0) is None:
            os.kill(self._process.pid, number)


def _serve(project: Path, crash_at: str | None, token: str | None, told: Connection) -> None:
    with (project / "service.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    for name in [name for name in os.environ if name.startswith(settings.PREFIX)]:
        del os.environ[name]
    if crash_at is not None:
        os.environ[settings.CRASH_AT] = crash_at
    if token is not None:
        os.environ[f"{settings.PREFIX}API_TOKEN"] = token
    sys.exit(main.serve(settings.load(project=project, home=project, port=0), told.send))
