"""Members of a cluster: start, watch and end processes together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app import errors
from app.processes import process_tree

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_SHOWN_BYTES = 2000
_MOST_RESTARTS = 10
_RESTART_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of a member."""

    name: str  # Name for messages, and of its log.
    command: Sequence[str]  # Command line.
    environ: Mapping[str, str]  # Its environment.
    user: int | None = None  # User that it runs as; None: that of this process.
    folder: Path | None = None  # Folder that it starts in; None: that of this process.
    stop: signal.Signals = signal.SIGTERM  # Signal that ends it.


@dataclass(slots=True, kw_only=True)
class _Member:
    program: Program
    process: subprocess.Popen[bytes]
    restarts: int = 0


@dataclass(slots=True)
class Members:
    """The processes, in the order of their start; they end in reverse order, and also when this process is killed."""

    logs: Path  # Folder of their logs.
    _running: list[_Member] = field(default_factory=list)

    def start(self, program: Program, is_ready: Callable[[], bool]) -> int:
        """Start a process, wait until it is ready, and return its id.

        Raises:
            errors.ConfigurationError: `member_not_started`, with the end of its log.
        """
        # The log grows over restarts; only the output of this start is shown.
        begin = self._log(program).stat().st_size if self._log(program).exists() else 0
        process = self._begin(program)
        self._running.append(_Member(program=program, process=process))
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if is_ready():
                return process.pid
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
        output = self._log(program).read_bytes()[begin:].decode(errors="replace").strip()[-_SHOWN_BYTES:]
        last = " | ".join(output.splitlines()[-3:])
        message = f"{program.name} did not become ready; its log {self._log(program)} ends with: {last}"
        raise errors.ConfigurationError(message, code="member_not_started")

    def watch(self, say: Callable[[str], None]) -> None:
        """Restart processes that have ended, until a signal ends the wait.

        Args:
            say: Called with a line about each restart.

        Raises:
            errors.ConfigurationError: `member_ended`, one has ended too often.
        """
        while True:
            for member in self._running:
                self._restart_if_ended(member, say)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running[0].process.wait(_LOOK_SECONDS)

    def stop(self) -> None:
        """End all processes, the last first; those that ignore their signal are killed."""
        # In reverse order: while they stop, workers still need the server, and the server its database.
        while self._running:
            member = self._running.pop()
            member.process.send_signal(member.program.stop)
            try:
                member.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(member.process.pid, signal.SIGKILL)
                member.process.wait()

    def has_logged(self, name: str, text: str) -> bool:
        """Return whether a member has written a text into its log."""
        with contextlib.suppress(FileNotFoundError):
            return text in (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return False

    def _restart_if_ended(self, member: _Member, say: Callable[[str], None]) -> None:
        code, name = member.process.poll(), member.program.name
        if code is None:
            return
        ending = f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        if member.restarts == _MOST_RESTARTS:
            message = f"{name} {ending} after {_MOST_RESTARTS} restarts; see {self._log(member.program)}"
            raise errors.ConfigurationError(message, code="member_ended")
        say(f"{name} {ending}; starting it again")
        # A killed Postgres leaves processes that must end before the next one may use its files.
        threading.Event().wait(_RESTART_SECONDS)
        member.process, member.restarts = self._begin(member.program), member.restarts + 1
        say(f"{name} is process {member.process.pid}")

    def _begin(self, program: Program) -> subprocess.Popen[bytes]:
        with self._log(program).open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - programs of the cluster
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(program.environ),
                cwd=program.folder,
                user=program.user,
                group=program.user,
                extra_groups=None if program.user is None else [],
                # In a session of its own: Ctrl-C reaches only the command, which ends the members in order.
                start_new_session=True,
                preexec_fn=process_tree.ended_with_parent(program.stop),  # noqa: PLW1509 - there are no threads
            )

    def _log(self, program: Program) -> Path:
        return self.logs / f"{program.name}.log"
