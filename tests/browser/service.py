"""The service as a process of its own, on a port that it gets again after a kill."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from tests.integration.project import Project


class Service:
    """A service that can be killed and started again under one address."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._port = _free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        """Where it listens."""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        home = self._project.root / "home"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve", "--project", str(self._project.root), "--port", str(self._port)],
            env=os.environ | {"HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if "listens on" in line:
                return
        raise AssertionError("".join(said))

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """End it, if it still lives."""
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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
