"""Helper processes: programs of Control Room that answer JSON lines, one request at a time.

A helper isolates native code: the service can kill it in the middle of a computation, and its crash does not end the
service. It dies with the service (`process_tree.die_with_parent`).
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
_STDERR_BYTES = 2_000
_ROOT = str(Path(__file__).resolve().parents[2])
_INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


class HelperProcessLost(errors.ControlRoomError):
    """The helper process ended before it answered."""

    default_code = "companion_lost"


class HelperProcess:
    """A running helper process."""

    def __init__(self, process: asyncio.subprocess.Process, stderr: IO[bytes]) -> None:
        self._process = process
        self._stderr = stderr
        self._handle = _handle(process.pid)

    @classmethod
    async def start(cls, module: str, *arguments: str) -> HelperProcess:
        """Start `python -m module <pid of this process> arguments…` with this import path and a minimal environment."""
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, str(os.getpid()), *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal must only reach the service
                limit=_ANSWER_BYTES,
            )
        except BaseException:
            stderr.close()
            raise
        return cls(process, stderr)

    @property
    def pid(self) -> int:
        """Return the process id of the helper."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the helper is still running."""
        if self._handle is None:
            return self._process.returncode is None
        ends = select.poll()
        ends.register(self._handle, select.POLLIN)
        return not ends.poll(0)

    async def read(self) -> dict[str, plain.Json]:
        """Return the next line of the helper.

        Raises:
            HelperProcessLost: the helper ended instead.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        # An incomplete line is the last output of a helper that has ended.
        if not line.endswith(b"\n"):
            raise await self._lost()
        answer: dict[str, plain.Json] = json.loads(line)
        return answer

    async def ask(self, question: Mapping[str, plain.Json]) -> dict[str, plain.Json]:
        """Send one line and return the next line of the helper.

        A caller that stops waiting must end the helper: its late answer would be taken for that of the next request.

        Raises:
            HelperProcessLost: the helper ended before it answered.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        # The helper has ended: the read below raises the error with the reason.
        with suppress(ConnectionError):
            await self._process.stdin.drain()
        return await self.read()

    def kill(self) -> None:
        """Kill the helper, whatever it is doing."""
        with suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self.alive:
                self._process.kill()

    async def end(self) -> None:
        """Kill the helper and wait until it is gone."""
        self.kill()
        await self._process.wait()
        self._release()

    async def _lost(self) -> HelperProcessLost:
        code = await self._process.wait()
        output = "" if self._stderr.closed else _tail(self._stderr)
        self._release()
        return HelperProcessLost(detail={"exit_code": code, "stderr": output})

    def _release(self) -> None:
        self._stderr.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _handle(pid: int) -> int | None:
    """Return a pidfd; None if the process is gone, or if the system has no pidfds."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _tail(file: IO[bytes]) -> str:
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(size_bytes - _STDERR_BYTES, 0))
    return file.read().decode(errors="replace").strip()


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    paths = (_ROOT, *(path for path in sys.path if os.path.isabs(path)))
    return inherited | {"PYTHONPATH": os.pathsep.join(paths)}
