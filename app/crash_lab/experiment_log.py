"""The log of an experiment: accepted requests and executed steps, written outside the data directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import errors
from app.domain import records
from app.engine import ports

Try = tuple[str, str, int]  # Run, key and attempt.


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The content of an experiment log."""

    accepted: tuple[str, ...] = ()  # The run of each accepted request.
    new: int = 0  # Number of these requests that created a run.
    executed: tuple[Try, ...] = ()  # Every performed try, in order.
    trouble: tuple[str, ...] = field(default=())  # The last messages of processes that ended by themselves.


class ExperimentLog:
    """Append to an experiment log; a written line survives the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def accepted(self, run_id: str, existed: bool) -> None:
        """Note that a request was accepted."""
        self._write("existed" if existed else "accepted", run_id)

    def executed(self, call: ports.Call) -> None:
        """Note that a try is about to be performed."""
        self._write("executed", call.run.run_id, call.key, call.attempt)

    def withdrawn(self, call: ports.Call) -> None:
        """Note that a try has no result because a write failed, and is repeated."""
        self._write("withdrawn", call.run.run_id, call.key, call.attempt)

    def trouble(self, text: str) -> None:
        """Note why a process ended by itself."""
        self._write("trouble", text)

    def _write(self, *line: str | int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


class Noted:
    """A performer that notes each try before it performs it."""

    def __init__(self, inner: ports.Performer, experiment_log: ExperimentLog) -> None:
        self._inner = inner
        self._experiment_log = experiment_log

    async def perform(self, call: ports.Call) -> records.Result:
        """Note the try, and perform it."""
        self._experiment_log.executed(call)
        try:
            return await self._inner.perform(call)
        except errors.StorageFault:
            self._experiment_log.withdrawn(call)
            raise


def read(path: Path) -> Told:
    """Return the content of an experiment log; an empty one if the file does not exist."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    return Told(
        accepted=tuple(line[1] for line in lines if line[0] in ("accepted", "existed")),
        new=sum(line[0] == "accepted" for line in lines),
        executed=tuple(_executed(lines)),
        trouble=tuple(line[1] for line in lines if line[0] == "trouble"),
    )


def _executed(lines: Iterable[list[Any]]) -> list[Try]:
    tried: list[Try] = []
    for kind, *facts in lines:
        if kind == "executed":
            tried.append((facts[0], facts[1], facts[2]))
        elif kind == "withdrawn":
            tried.remove((facts[0], facts[1], facts[2]))
    return tried
