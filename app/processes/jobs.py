"""Jobs: commands as their launcher sees them, from their start until nothing of them is left."""

# A command is over when its processes are: whatever else belongs to it is ended when its first process ends.
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

GRACE_SECONDS = 0.2
"""Time between SIGTERM and SIGKILL."""

_AGAIN_SECONDS = 0.02
_PATIENCE_SECONDS = 5.0
_NO_REPORT = namespace_init.Report("", 0, 0, 0.0, 0, False)


class Child(NamedTuple):
    """A process that was started."""

    pid: int
    """Its id."""
    way: int | None
    """Way into its namespace, if it is a warden."""
    reports: int | None
    """Descriptor that its report comes from, if it is one."""


class Job:
    """A command that has been started."""

    __slots__ = (
        "cause", "due", "first_kill", "leftovers", "limit_at", "mark", "members", "number", "pid", "place", "report",
        "reports", "request", "started_by", "stderr", "stdout", "struck", "vital_sign", "way",
    )  # fmt: skip

    def __init__(
        self,
        request: launcher_protocol.Start,
        mark: int,
        child: Child,
        outputs: Sequence[output_files.OutputFile],
        now: float,
    ) -> None:
        self.request = request
        self.number = request.number
        self.mark = mark
        self.pid, self.way, self.reports = child
        self.stdout, self.stderr = outputs
        # Not asked of the system: to be told of a process that is being born takes as long as the birth.
        self.started_by = process_tree.ticks()
        """When it had started, in ticks."""
        self.place = 0
        """Its line in the register."""
        self.report: namespace_init.Report | None = None
        """How its first process ended; None while that lives."""
        self.cause: launcher_protocol.Cause = ""
        """Why it is being ended; empty if it ends by itself."""
        self.due: float | None = None
        """When its processes are struck next; None while nobody wants its end."""
        self.struck = self.leftovers = self.members = 0
        self.vital_sign = now
        self.limit_at = math.inf if request.timeout_seconds is None else now + request.timeout_seconds
        """When it is ended for taking too long."""
        self.first_kill = 0.0

    @property
    def has_left_others(self) -> bool:
        """Tell whether its warden has said that it has ended and left others behind."""
        return self.report is not None and self.report.lingers

    def listen(self) -> None:
        """Hear how it ended, if it has a warden and that has told it."""
        if self.reports is not None and self.report is None:
            self.report = namespace_init.heard(self.reports)

    def bury(self, status: int, usage: resource.struct_rusage) -> None:
        """Note that its first process is dead, and with a warden everybody: then the warden's word counts, if it gave
        one.
        """
        self.listen()
        if self.report is None:
            fault: Literal["", "containment"] = (
                "containment" if self.reports is not None and os.WIFEXITED(status) else ""
            )
            peak_bytes = usage.ru_maxrss * (1024 if process_tree.LINUX else 1)
            self.report = namespace_init.Report(fault, 0, status, usage.ru_utime + usage.ru_stime, peak_bytes, False)

    def end(self, cause: launcher_protocol.Cause, now: float) -> None:
        """Begin to end it; nothing if that has begun."""
        if self.due is None:
            self.cause = cause
            self.due = now

    def look(self, now: float) -> launcher_protocol.Cause:
        """Look at its outputs, and return why it must not go on: `idle`, `output`; empty if it may."""
        sizes = self.stdout.size_bytes(), self.stderr.size_bytes()
        if sizes != (self.stdout.seen_bytes, self.stderr.seen_bytes):
            (self.stdout.seen_bytes, self.stderr.seen_bytes), self.vital_sign = sizes, now
        idle = self.request.idle_seconds if self.stdout.is_held else None
        if idle is not None and now >= self.vital_sign + idle:
            return "idle"
        return "output" if max(sizes) > self.request.cap_bytes else ""

    def strike(self, members: set[int], table: process_tree.Table, now: float) -> None:
        """Send its processes the next signal: SIGTERM first, SIGKILL after the grace, and again
        until nobody is left.
        """
        number = signal.SIGTERM if self.struck == 0 else signal.SIGKILL
        for pid in members:
            process_tree.strike(pid, table[pid].started, number)
        if not process_tree.LINUX:
            process_tree.strike_group(self.pid, number)
        self.members = len(members - {self.pid})
        if not self.cause:
            self.leftovers = max(self.leftovers, self.members)
        self.struck += 1
        self.first_kill = now if self.struck == 2 else self.first_kill
        self.due = now + (GRACE_SECONDS if self.struck == 1 else _AGAIN_SECONDS)

    def is_hopeless(self, now: float) -> bool:
        """Tell whether SIGKILL has been of no use for so long that it never will be."""
        return self.struck > 1 and now > self.first_kill + _PATIENCE_SECONDS

    def told(self, survivors: int) -> tuple[launcher_protocol.Ended | launcher_protocol.Refused, list[int]]:
        """Return what came of it, with the descriptors of outputs that are too long to be said."""
        report = self.report or _NO_REPORT
        if report.fault:
            return launcher_protocol.Refused(self.number, report.fault, report.errno), []
        contents = [outlet.content() for outlet in (self.stdout, self.stderr)]
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
            containment=namespace_init.GUARD if self.way is None else namespaces.NAMES[self.way],
        )
        outputs = zip(contents, (self.stdout, self.stderr), strict=True)
        return ended, [outlet.file for content, outlet in outputs if content is None]

    def close(self) -> None:
        """Forget its outputs, and its warden."""
        if self.reports is not None:
            os.close(self.reports)
        self.stdout.close()
        self.stderr.close()
