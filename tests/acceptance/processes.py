"""Processes of the program: started as users start them, or forked from one that has loaded it, which saves a second.

Signals, pipes, locks and kills work on forks as on other processes. A process is not forked if its environment has
`COLD_PROGRAMS`, or if it starts from a thread in a network namespace of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.acceptance import fork_server

ROOT = Path(__file__).resolve().parents[2]

COLD: dict[str, Any] = {"COLD_PROGRAMS": "1"}
"""Environment of a process that starts cold, without a fork."""

_asking = threading.Lock()


class Process:
    """A process of a module of the program, like `subprocess.Popen` of `python -m MODULE`."""

    def __init__(
        self, module: str, *arguments: str, environ: Mapping[str, str], folder: Path, terminal: int | None = None
    ) -> None:
        self.arguments = (module, *arguments)
        self.returncode: int | None = None
        out, err, (self._told, telling) = os.pipe(), os.pipe(), os.pipe()
        self.stdout: IO[str] = open(out[0], encoding="utf-8")  # noqa: SIM115
        self.stderr: IO[str] = open(err[0], encoding="utf-8")  # noqa: SIM115
        request = {"module": module, "arguments": arguments, "environ": dict(environ), "folder": str(folder)}
        try:
            with _asking:
                shown = (out[1], err[1]) if terminal is None else (terminal, terminal)
                socket.send_fds(_new_runs(), [json.dumps(request).encode()], [*shown, telling])
        finally:
            for file in (out[1], err[1], telling):
                os.close(file)
        self.pid = int(self._line())

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit code, negative for a signal."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self.arguments), timeout or 0)
            self.returncode = int(self._line())
            os.close(self._told)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return the rest of its output, and wait for its end."""
        said = ["", ""]
        streams = (self.stdout, self.stderr)
        readers = [threading.Thread(target=_read, args=(stream, said, place)) for place, stream in enumerate(streams)]
        deadline = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._told, 1)
            assert byte, "the fork server died"
            line += byte
        return line


Started = Process | subprocess.Popen[str]


def start(
    module: str, *arguments: str, environ: Mapping[str, str], folder: Path, terminal: int | None = None
) -> Started:
    """Start a module of the program, with pipes for its output, or at a terminal in a session of its own."""
    # The fork server lives in the network namespace where the tests began; no other namespace can reach its forks.
    if not COLD.keys() & environ.keys() and _network() == _NETWORK:
        return Process(module, *arguments, environ=environ, folder=folder, terminal=terminal)
    at_terminal = terminal is not None
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=dict(environ),
        cwd=folder,
        stdin=terminal if at_terminal else subprocess.DEVNULL,
        stdout=terminal if at_terminal else subprocess.PIPE,
        stderr=terminal if at_terminal else subprocess.PIPE,
        start_new_session=at_terminal,
        encoding="utf-8",
    )


def run(
    module: str, *arguments: str, environ: Mapping[str, str], folder: Path, seconds: float = 100
) -> tuple[int, str, str]:
    """Run a module of the program, and return its exit code and output."""
    process = start(module, *arguments, environ=environ, folder=folder)
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            process.kill()
        with process:
            process.wait()
    return process.wait(), out, err


def _network() -> str | None:
    try:
        return os.readlink("/proc/thread-self/ns/net")
    except OSError:
        return None


_NETWORK = _network()


def _read(stream: IO[str], said: list[str], place: int) -> None:
    if not stream.closed:
        said[place] = stream.read()


@functools.cache
def _new_runs() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, fork_server.LONGEST_REQUEST)
    command = [sys.executable, "-m", "tests.acceptance.fork_server", str(theirs.fileno())]
    environ, null = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, env=environ, pass_fds=[theirs.fileno()], stdin=null, stdout=null)
    theirs.close()
    atexit.register(_close, ours, process)
    return ours


def _close(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()
    process.wait()
