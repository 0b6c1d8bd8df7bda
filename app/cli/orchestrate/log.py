"""The log of a run: `logs/orchestrator.log`, one JSON object per line (workflow-dsl, execution logs)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from app import telemetry
from app.cli import terminal
from app.cli.orchestrate import keys
from app.domain import plain

NAME = "orchestrator.log"  # Name of the log in the run's `logs/`.
LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR,
}  # fmt: skip
"""Levels by their names on the command line."""

_LEVEL_OF = {
    "step.failed": logging.ERROR,
    "step.retrying": logging.WARNING,
    "step.interrupted": logging.WARNING,
    "run.paused": logging.WARNING,
    "recipe.note": logging.DEBUG,
    "storage.failed": logging.ERROR,
}
_LEVEL_OF_NOTE = {keys.WAITING: logging.INFO, keys.LEFT_BEHIND: logging.WARNING, keys.UNMOVED: logging.WARNING}
_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Names with a special meaning for log records."""
_log = logging.getLogger("orchestrate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a run."""

    run_id: str  # The run.
    trace: bool  # Whether lines have trace ids.

    def write_event(self, event: Mapping[str, Any]) -> None:
        """Log an event of the run."""
        key, type, facts = event.get("key"), event["type"], event.get("data") or {}
        level = _LEVEL_OF.get(type, logging.INFO)
        if type == "run.ended" and facts.get("error"):
            level = logging.ERROR
        part = keys.read(key).part if key else ""
        if type == "recipe.note":
            level = _LEVEL_OF_NOTE.get(part.rpartition(".")[2], level)
        if part and type in ("step.started", "step.finished"):
            level = logging.DEBUG
        self.say(level, type, facts, step=key)

    def say(self, level: int, message: str, facts: Mapping[str, Any], *, step: str | None = None) -> None:
        """Log a further message."""
        line: dict[str, Any] = {"run_id": self.run_id} | ({"step": step} if step else {})
        if self.trace:
            line["trace_id"] = self.run_id
            if step:
                line["span_id"] = f"{step}#{facts.get('attempt', 1)}"
        known = {name: value for name, value in facts.items() if value is not None and name not in line}
        line |= {f"{name}_" if name in _TAKEN else name: value for name, value in known.items()}
        _log.log(level, message, extra=line)


@contextmanager
def kept(run_root: Path, level: str, masker: plain.Masker, *, verbose: bool) -> Iterator[None]:
    """Write the log of a run within the block, including all other log lines of the process.

    Args:
        verbose: Whether stderr gets the same lines.
    """
    # Loggers belong to the process, and `watch` executes several runs in one.
    root = logging.getLogger()
    earlier, root_level = list(root.handlers), root.level
    with _opened(run_root / "logs") as file:
        telemetry.write_logs(logging.getLevelName(LEVELS[level]), file, masker.mask)
        if verbose:
            root.addHandler(telemetry.handler(sys.stderr, masker.mask))
        try:
            yield
        finally:
            root.handlers[:] = earlier
            root.setLevel(root_level)


def _opened(folder: Path) -> TextIO:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        return open(folder / NAME, "a", encoding="utf-8", opener=_private)
    except OSError as error:
        terminal.warn(f"orchestrate: no log is kept: {error}")
        return open(os.devnull, "w", encoding="utf-8")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
