"""Watching: run a workflow whenever its file has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from app import clock, errors, interruption
from app.cli import exit_codes as common
from app.cli import terminal
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import exit_codes

POLL_SECONDS = 0.5  # Time between two checks.
Run = Callable[[], int]  # Runs the present workflow; returns the exit code.


class Watcher:
    """Run a workflow, and run it again whenever its file has changed since the last run began."""

    def __init__(self, path: Path, shown: str, run: Run, time: clock.Clock) -> None:
        self._path = path
        self._shown = shown
        self._run = run
        self._clock = time

    def watch(self) -> int:
        """Watch until Ctrl-C; return 0 if no run was under way, otherwise 130."""
        while True:
            began_with = _content(self._path)
            if self._run_once(began_with) == ExitCode.INTERRUPTED:
                return ExitCode.INTERRUPTED
            terminal.warn(f"watching {self._shown}; Ctrl-C ends it")
            try:
                interruption.run(self.changed(began_with))
            except KeyboardInterrupt:
                return ExitCode.DONE

    async def changed(self, since: bytes | None) -> None:
        """Wait until the file exists with different content."""
        looked_at = None
        while True:
            mark = _mark(self._path)
            if mark is not None and mark != looked_at:
                content = _content(self._path)
                if content is not None and content != since:
                    return
            looked_at = mark
            await self._clock.sleep(POLL_SECONDS)

    def _run_once(self, content: bytes | None) -> int:
        if content is None:
            terminal.warn(f"orchestrate: {self._shown} cannot be read")
            return ExitCode.USAGE
        try:
            return self._run()
        except (errors.ControlRoomError, errors.Fault) as error:
            terminal.warn(*(f"orchestrate: {line}" for line in common.sentences(error)))
            return exit_codes.of_error(error)


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
