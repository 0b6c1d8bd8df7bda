"""Jobs: the commands of a launcher, from their start until none of their processes runs."""

# A command has ended when all its processes have: when its first process ends, all others are ended.
# Leftovers would change the workspace while the next step reads it, and after a crash it would be unknown whether
# to wait for them.

from __future__ import annotations

import math
import os
import resource
import signal
from collections.abc import Sequence
from typing import Literal, NamedTuple

from app.processes import launcher_protocol, namespace_init, namespaces, output_files, process_tree

GRACE_SECONDS = 0.2  # Time between SIGTERM and SIGKILL.

_KILL_AGAIN_SECONDS = 0.02
_KILL_SECONDS = 5.0
_NO_REPORT = namespace_init.Report("", 0, 0, 0.0, 0, False)


class Child(NamedTuple):
    """A started process."""

    pid: int  # Its id.
    flags: int | None  # Namespace flags, if it is a namespace init.
    reports: int | None  # Descriptor from which its report is read, if it is a namespace init.


class Job:
    """A command that has been started."""

    __slots__ = (
        "cause", "deadline_at", "first_kill_at", "flags", "last_output_at", "leftovers", "marker", "members",
        "next_signal_at", "number", "pid", "place", "report", "reports", "request", "signals_sent", "started_by",
        "stderr", "stdout",
    )  # fmt: skip

    def __init__(
        self,
        request: launcher_protocol.Start,
        marker: int,
        child: Child,
        outputs: Sequence[output_files.OutputFile],
        now: float,
    ) -> None:
        self.request = request
        self.number = request.number
        self.marker = marker
        self.pid, self.flags, self.reports = child
        self.stdout, self.stderr = outputs
        # Not read from /proc, since that would wait until the new process has finished its exec.
        self.started_by = process_tree.ticks()
        """Time by which the command had started, in clock ticks."""
        self.place = 0
        """Its place in the register."""
        self.report: namespace_init.Report | None = None
        """The report on the end of its first process; None while that runs."""
        self.cause: launcher_protocol.Cause = ""
        """Why it is being ended; empty if it ends by itself."""
        self.next_signal_at: float | None = None
        """When its processes get their next signal; None while it may continue."""
        self.signals_sent = self.leftovers = self.members = 0
        self.last_output_at = now
        self.deadline_at = math.inf if request.timeout_seconds is None else now + request.timeout_seconds
        """When its time limit ends it."""
        self.first_kill_at = 0.0

    @property
    def has_leftovers(self) -> bool:
        """Return whether its namespace init reported that the command left other processes."""
        return self.report is not None and self.report.has_leftovers

    def read_report(self) -> None:
        """Read the report of its namespace init, if there is one to read."""
        if self.reports is not None and self.report is None:
            self.report = namespace_init.read_report(self.reports)

    def record_exit(self, status: int, usage: resource.struct_rusage) -> None:
        """Record the exit of its first process; the report of a namespace init takes precedence."""
        # An init reports how the command itself ended, which the init's own exit status does not show.
        self.read_report()
        if self.report is None:
            fault: Literal["", "containment"] = (
                "containment" if self.reports is not None and os.WIFEXITED(status) else ""
            )
            peak_bytes = usage.ru_maxrss * (1024 if process_tree.LINUX else 1)
            self.report = namespace_init.Report(fault, 0, status, usage.ru_utime + usage.ru_stime, peak_bytes, False)

    def end(self, cause: launcher_protocol.Cause, now: float) -> None:
        """Begin to end the command, unless that has begun already."""
        if self.next_signal_at is None:
            self.cause = cause
            self.next_signal_at = now

    def exceeded(self, now: float, *, checks_output: bool) -> launcher_protocol.Cause:
        """Return the limit that the command exceeds; empty if none, or if it is being ended or has ended by itself.

        Args:
            checks_output: Whether to check the limits of its output, too.
        """
        # A launcher that had no processor time learns of the end and of the limit in one round; the end came first.
        if self.next_signal_at is not None or self.report is not None:
            return ""
        if now >= self.deadline_at:
            return "timeout"
        return self._output_limit(now) if checks_output else ""

    def _output_limit(self, now: float) -> launcher_protocol.Cause:
        sizes = self.stdout.size_bytes(), self.stderr.size_bytes()
        # Sizes are compared: any output shows that a program is working.
        if sizes != (self.stdout.seen_bytes, self.stderr.seen_bytes):
            (self.stdout.seen_bytes, self.stderr.seen_bytes), self.last_output_at = sizes, now
        idle = self.request.idle_seconds if self.stdout.is_held else None
        if idle is not None and now >= self.last_output_at + idle:
            return "idle"
        return "output" if max(sizes) > self.request.cap_bytes else ""

    @property
    def has_passed_output(self) -> bool:
        """Return whether a part of its output was passed on while it ran, so that the rest must follow."""
        return bool(self.stdout.passed_bytes or self.stderr.passed_bytes)

    def news(self) -> list[launcher_protocol.Message]:
        """Return its output since the last call, if the service listens to it."""
        found: list[launcher_protocol.Message] = []
        for stream, output in ((1, self.stdout), (2, self.stderr)) if self.request.passes_output else ():
            content, skipped = output.news()
            if content:
                found.append(launcher_protocol.Written(self.number, stream, content, skipped))
        return found

    def send_next_signal(self, members: set[int], table: process_tree.Table, now: float) -> None:
        """Send its processes the next signal: SIGTERM first, then SIGKILL until none is left."""
        # The first signal is a request; processes that do not obey in time are killed.
        number = signal.SIGTERM if self.signals_sent == 0 else signal.SIGKILL
        for pid in members:
            process_tree.send_signal(pid, table[pid].started, number)
        if not process_tree.LINUX:
            process_tree.signal_group(self.pid, number)
        self.members = len(members - {self.pid})
        # If the command is ended on request, its living processes are parts of it and not leftovers.
        if not self.cause:
            self.leftovers = max(self.leftovers, self.members)
        self.signals_sent += 1
        self.first_kill_at = now if self.signals_sent == 2 else self.first_kill_at
        self.next_signal_at = now + (GRACE_SECONDS if self.signals_sent == 1 else _KILL_AGAIN_SECONDS)

    def is_unkillable(self, now: float) -> bool:
        """Return whether SIGKILL has had no effect for so long that it is useless to wait."""
        return self.signals_sent > 1 and now > self.first_kill_at + _KILL_SECONDS

    def reply(self, survivors: int) -> tuple[launcher_protocol.Ended | launcher_protocol.Refused, list[int]]:
        """Return its result, with the descriptors of outputs that are too long for a message."""
        report = self.report or _NO_REPORT
        if report.fault:
            return launcher_protocol.Refused(self.number, report.fault, report.errno), []
        contents = [output.content() for output in (self.stdout, self.stderr)]
        ended = launcher_protocol.Ended(
            number=self.number,
            pid=self.pid,
            status=report.status,
            cause=self.cause,
            stdout=contents[0],
            stderr=contents[1],
            leftovers=self.leftovers,
            survivors=survivors,
            cpu_seconds=report.cpu_seconds,
            peak_bytes=report.peak_bytes,
            containment=namespace_init.GUARD if self.flags is None else namespaces.NAMES[self.flags],
        )
        outputs = zip(contents, (self.stdout, self.stderr), strict=True)
        return ended, [output.file for content, output in outputs if content is None]

    def close(self) -> None:
        """Close its outputs and its report."""
        if self.reports is not None:
            os.close(self.reports)
        self.stdout.close()
        self.stderr.close()
