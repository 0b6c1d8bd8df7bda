"""
The log of a run: `logs/orchestrator.log`, one JSON object a line (workflow-dsl, execution logs).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import telemetry
from app.cli.orchestrate import keys
from app.engine import plain

NAME = "orchestrator.log"
"""Name of the log in the run's `logs/`."""
LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR,
}  # fmt: skip
"""Levels by the names that the command line has for them."""

_LEVEL_OF = {
    "step.failed": logging.ERROR,
    "step.retrying": logging.WARNING,
    "step.interrupted": logging.WARNING,
    "run.paused": logging.WARNING,
    "recipe.note": logging.DEBUG,
    "storage.failed": logging.ERROR,
}
_log = logging.getLogger("orchestrate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """
    What is logged of a run.
    """

    run_id: str
    """The run."""
    trace: bool
    """Whether lines carry trace ids."""

    def tell(self, event: Mapping[str, Any]) -> None:
        """
        Log an event of the run.
        """
        key, type, told = event.get("key"), event["type"], event.get("data") or {}
        level = _LEVEL_OF.get(type, logging.INFO)
        if type == "run.ended" and told.get("error"):
            level = logging.ERROR
        if key and keys.read(key).part and type in ("step.started", "step.finished"):
            level = logging.DEBUG
        self.say(level, type, step=key, **{name: value for name, value in told.items() if value is not None})

    def say(self, level: int, message: str, *, step: str | None = None, **facts: Any) -> None:
        """
        Log something else.
        """
        known: dict[str, Any] = {"run_id": self.run_id} | ({"step": step} if step else {})
        if self.trace:
            known["trace_id"] = self.run_id
            if step:
                known["span_id"] = f"{step}#{facts.get('attempt', 1)}"
        # Names that log records have themselves are no extras.
        taken = {f"{name}_" if name in ("name", "message", "args", "module") else name: facts[name] for name in facts}
        _log.log(level, message, extra=known | taken)


@contextmanager
def kept(run_root: Path, level: str, masker: plain.Masker, *, verbose: bool) -> Iterator[None]:
    """
    Keep the log of a run within the block, and everything that the process logs beside it.

    Args:
        verbose: Whether stderr gets the same lines.
    """
    root = logging.getLogger()
    earlier, root_level = list(root.handlers), root.level
    telemetry.write_logs(logging.getLevelName(LEVELS[level]), sys.stderr, masker.mask)
    on_stderr = root.handlers[0]
    folder = run_root / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / NAME, "a", encoding="utf-8", opener=_private) as file:
        in_file = logging.StreamHandler(file)
        in_file.setFormatter(telemetry.JsonLines(masker.mask))
        root.handlers[:] = [in_file, on_stderr] if verbose else [in_file]
        try:
            yield
        finally:
            root.handlers[:] = earlier
            root.setLevel(root_level)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
