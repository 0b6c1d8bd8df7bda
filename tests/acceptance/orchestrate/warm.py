"""
The program `orchestrate` in processes forked from a warm one, which spares each of them a second of imports.

It runs the same code as the program itself, in a process of its own; kills and signals are tried on the program.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.acceptance import programs

IMPORTED = ("app.cli.orchestrate.command", "app.bootstrap", "app.execution.embedded.pool", "uvloop")


class Warm:
    """
    A process that forks others; it ends with this one.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.orchestrate.warm"],
            cwd=programs.ROOT,
            env=programs.environment(None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def execute(self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """
        Execute a command line, and return the exit code and both outputs.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            asked = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return code, out.read_bytes(), err.read_bytes()


@functools.cache
def process() -> Warm:
    """
    Return the warm process of this one.
    """
    return Warm()


def _serve() -> None:
    for name in IMPORTED:
        __import__(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(asked: Mapping[str, Any]) -> None:
    from app.cli.orchestrate import command

    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    out, err = (os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out", "err"))
    for held, wanted in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(held, wanted)
        os.close(held)
    sys.argv = ["orchestrate", *asked["arguments"]]
    code = 70
    try:
        code = int(command.execute())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
