"""The service as a process of its own, on a port that it uses again after a kill."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from tests import ports
from tests.integration.project import Project


class Service:
    """A service that a test can kill and start again under one address."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._port = ports.free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        """Address of the service."""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the service, and wait until it listens."""
        home = self._project.root / "home"
        log = self._project.root.parent / "service.log"
        # No one reads a pipe while the service runs, and a full pipe would block it.
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve", "--project", str(self._project.root), "--port", str(self._port)],
                env=os.environ | {"HOME": str(home)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        if not any("listens on" in line for line in self._process.stdout):
            raise AssertionError(log.read_text())

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the service, as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """Stop the service, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.communicate()


@contextlib.contextmanager
def serving(project: Project) -> Iterator[Service]:
    """Serve a project from a process of its own."""
    service = Service(project)
    try:
        service.start()
        yield service
    finally:
        service.stop()
