"""The fork server: a process that has loaded the program and executes it, for each request, in a fork of itself.

A fork begins where `python -m MODULE` has found its module; loading the libraries anew each time would take longer than
most tests. A guard process beside each fork reports its pid and its end.
"""

# Loading the libraries takes two seconds of a core, and the acceptance tests start 200 processes. A forked process
# is still killed, stopped and found by its pid like any other. One test of each way to start is `cold`; `--long`
# starts every process cold.

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
import warnings
from typing import Any, TextIO

FILES = 3
"""Files that come with a request: for the fork's output, for its errors, and for the guard's reports."""

LONGEST_REQUEST = 2**20
"""Bytes of a request."""

PRELOADED = ("app.crash_lab.preloaded", "httpx", "tests.integration.asking_dialect")
"""Modules that every fork has already loaded."""


def main(descriptor: int) -> None:
    """Accept requests until no process can send any more."""
    # A terminal interrupts the whole process group. Without server and guards, the tests could not end their forks, and
    # would report that error in place of the interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PRELOADED:
        __import__(name)
    # With old objects frozen, garbage collection in a fork copies no memory pages of them.
    gc.collect()
    gc.freeze()
    # No process waits for guards.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    while True:
        request, files, _, _ = socket.recv_fds(channel, LONGEST_REQUEST, FILES)
        if not request:
            return
        if os.fork() == 0:
            channel.close()
            _guard(json.loads(request), *files)
            return
        for file in files:
            os.close(file)


def _guard(request: dict[str, Any], out: int, err: int, telling: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(telling)
        _execute(request, out, err)
        return
    os.close(out)
    os.close(err)
    os.write(telling, f"{pid}\n".encode())
    os.write(telling, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


def _execute(request: dict[str, Any], out: int, err: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.isatty(out):
        os.setsid()
        os.dup2(out, 0)
    else:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
    for number, file in ((1, out), (2, err)):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _stream(1, "strict")
    sys.stderr = _stream(2, "backslashreplace")
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _stream(descriptor: int, errors: str) -> TextIO:
    buffered = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(buffered, "utf-8", errors, line_buffering=descriptor == 2 or os.isatty(descriptor))


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)
    main(int(sys.argv[1]))
