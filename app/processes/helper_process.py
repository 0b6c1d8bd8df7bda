"""Companions: child processes of our own that answer one JSON line with another, one question at a time.

A companion isolates native code: it can be killed in the middle of a computation, and what crashes it does not crash
the service. It dies with the service, however that dies (`app.processes.parent_death`).
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from app import errors
from app.domain import plain

_ANSWER_BYTES = 16 * 1024 * 1024
_TOLD_BYTES = 2_000
_OWN_ROOT = str(Path(__file__).resolve().parents[2])
_INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


class HelperProcessLost(errors.ControlRoomError):
    """The companion process ended before it had answered."""

    default_code = "companion_lost"


class HelperProcess:
    """A running child process."""

    def __init__(self, process: asyncio.subprocess.Process, complaints: IO[bytes]) -> None:
        self._process = process
        self._complaints = complaints
        self._handle = _handle(process.pid)

    @classmethod
    async def start(cls, module: str, *arguments: str) -> HelperProcess:
        """Start `python -m module <pid of this process> arguments…` with our import path and hardly any environment."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, str(os.getpid()), *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is the service's to judge
                limit=_ANSWER_BYTES,
            )
        except BaseException:
            complaints.close()
            raise
        return cls(process, complaints)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Tell whether the process has not ended yet."""
        if self._handle is None:
            return self._process.returncode is None
        ends = select.poll()
        ends.register(self._handle, select.POLLIN)
        return not ends.poll(0)

    async def hear(self) -> dict[str, plain.Json]:
        """Return the next line that the companion says.

        Raises:
            CompanionLost: it ended instead.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise await self._lost()
        heard: dict[str, plain.Json] = json.loads(line)
        return heard

    async def ask(self, question: Mapping[str, plain.Json]) -> dict[str, plain.Json]:
        """Say one line and return the next one that the companion says.

        A caller that stops waiting must end the companion: its answer would be taken for the next question's.

        Raises:
            CompanionLost: it ended before it had answered.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        with suppress(ConnectionError):
            await self._process.stdin.drain()
        return await self.hear()

    def kill(self) -> None:
        """Kill the process, whatever it is doing."""
        with suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self.alive:
                self._process.kill()

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        self.kill()
        await self._process.wait()
        self._release()

    async def _lost(self) -> HelperProcessLost:
        code = await self._process.wait()
        told = "" if self._complaints.closed else _tail(self._complaints)
        self._release()
        return HelperProcessLost(detail={"exit_code": code, "stderr": told})

    def _release(self) -> None:
        self._complaints.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _handle(pid: int) -> int | None:
    """Return a descriptor of a process, by which no other one can be hit; None if it is gone, or
    the system has none.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _tail(file: IO[bytes]) -> str:
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(size_bytes - _TOLD_BYTES, 0))
    return file.read().decode(errors="replace").strip()


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    paths = (_OWN_ROOT, *(path for path in sys.path if os.path.isabs(path)))
    return inherited | {"PYTHONPATH": os.pathsep.join(paths)}
