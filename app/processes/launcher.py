"""The launcher: a small process that starts and ends commands for a service, and outlives it just long enough to end
them.

It is started with an isolated interpreter and imports nothing but its neighbours and the standard library. Every
process of a command descends from it, those that lost their parents included, since it adopts them. One thread, one
loop: hear, bury, tend, tell.
"""

# Why: docs/decisions/0060.

from __future__ import annotations

import math
import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from app.processes import (
    command_register,
    jobs,
    launcher_protocol,
    namespace_init,
    process_markers,
    process_tree,
    spawning,
)

_LOOK_SECONDS = 1.0
_FULL_ROUND = 16


def main(arguments: list[str]) -> NoReturn:
    """Serve until the service is gone.

    Args:
        arguments: Descriptor of the line, process id of the service, series, files that a command may open, how
            commands are contained, folders of registers and of outputs.
    """
    line, owner, series, files = (int(argument) for argument in arguments[:4])
    containment, folder, temporary = arguments[4:]
    end = socket.socket(fileno=line)
    end.setblocking(False)
    end.set_inheritable(False)
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(ending, _wake)
    process_tree.adopt_orphans()
    written = command_register.Register(folder, series, command_register.current(owner))
    spawner = spawning.Spawner(temporary, files, namespace_init.Containment(containment))
    Launcher(end, owner, series, written, spawner).live()
    written.discard()
    sys.exit(0)


class Launcher:
    """The commands of one service."""

    def __init__(
        self,
        line: socket.socket,
        owner: int,
        series: int,
        written: command_register.Register,
        spawner: spawning.Spawner,
    ) -> None:
        self._line = line
        self._owner = owner
        self._series = series
        self._written = written
        self._spawner = spawner
        self._listener = launcher_protocol.Listener(line)
        self._jobs: dict[int, jobs.Job] = {}
        self._mains: dict[int, jobs.Job] = {}
        self._left: dict[int, jobs.Job] = {}
        self._ending: dict[int, jobs.Job] = {}
        self._reporting: dict[int, jobs.Job] = {}
        self._adopted: dict[int, int | None] = {}
        self._replies: list[launcher_protocol.Message] = []
        self._alone = False
        self._stirred = False
        self._look_at = self._check_at = math.inf
        self._poll = select.poll()
        self._wakes = _wakes()
        self._poll.register(self._wakes, select.POLLIN)
        self._poll.register(line, select.POLLIN)

    def live(self) -> None:
        """Start and end commands as told; once nobody is there to tell, end them all."""
        while not self._alone or self._jobs or self._adopted:
            woken = {file for file, _ in self._poll.poll(self._patience_ms())}
            if self._wakes.fileno() in woken:
                self._notice_wakes()
            if not self._alone and (self._line.fileno() in woken or os.getppid() != self._owner):
                self._hear()
            for job in [job for file, job in self._reporting.items() if file in woken]:
                self._attend(job)
            self._bury()
            self._tend()
            self._tell()

    def _patience_ms(self) -> int | None:
        dues = (job.due for job in self._ending.values() if job.due is not None)
        next_at = min(dues, default=self._check_at)
        if self._adopted:
            next_at = min(next_at, time.monotonic() + _LOOK_SECONDS)
        if next_at == math.inf:
            return None
        return max(int((min(next_at, self._check_at) - time.monotonic()) * 1000) + 1, 0)

    def _notice_wakes(self) -> None:
        self._stirred = True
        while True:
            try:
                if len(self._wakes.recv(4096)) < 4096:
                    return
            except BlockingIOError:
                return

    # -- hear

    def _hear(self) -> None:
        heard = self._listener.hear()
        if heard is None or os.getppid() != self._owner:
            self._part()
            return
        for count, (message, files) in enumerate(heard, 1):
            if isinstance(message, launcher_protocol.Start):
                self._start(message, files)
            elif isinstance(message, launcher_protocol.End) and message.number in self._jobs:
                self._end(self._jobs[message.number], "asked", time.monotonic())
            if count % _FULL_ROUND == 0:
                # What has ended meanwhile need not wait for the rest of a long list.
                self._bury()
                self._tend()
                self._tell()

    def _start(self, request: launcher_protocol.Start, files: list[int]) -> None:
        try:
            if not self._alone:
                self._add(request, files)
        except spawning.Refusal as refusal:
            self._replies.append(launcher_protocol.Refused(request.number, refusal.what, refusal.errno))
        except OSError as error:
            self._replies.append(launcher_protocol.Refused(request.number, "output", error.errno or 0))
        finally:
            for file in files:
                os.close(file)

    def _add(self, request: launcher_protocol.Start, files: list[int]) -> None:
        now = time.monotonic()
        place = self._written.announce(request.number, request.run_id)
        try:
            job = self._spawner.start(request, process_markers.mark(self._series, request.number), files, now)
        except BaseException:
            self._written.release(place)
            raise
        job.place = place
        self._written.complete(place, command_register.Entry(job.number, request.run_id, job.pid, job.started_by))
        if not self._jobs:
            self._look_at = self._check_at = now + _LOOK_SECONDS
        self._jobs[job.number] = self._mains[job.pid] = job
        if job.reports is not None:
            self._reporting[job.reports] = job
            self._poll.register(job.reports, select.POLLIN)
        self._check_at = min(self._check_at, job.limit_at)

    def _end(self, job: jobs.Job, cause: launcher_protocol.Cause, now: float) -> None:
        job.end(cause, now)
        self._ending[job.number] = job

    def _part(self) -> None:
        """Go on alone: the service is gone, and nothing of it may last."""
        if not self._alone:
            self._alone = True
            self._stirred = True
            self._poll.unregister(self._line)
            self._listener.close()
            for job in self._jobs.values():
                self._end(job, "asked", time.monotonic())

    # -- bury

    def _attend(self, job: jobs.Job) -> None:
        """Listen to the warden of a command, which speaks once."""
        job.listen()
        self._part_from_warden(job)
        if job.has_left_others:
            self._left[job.number] = job

    def _part_from_warden(self, job: jobs.Job) -> None:
        if job.reports is not None and self._reporting.pop(job.reports, None) is not None:
            self._poll.unregister(job.reports)

    def _bury(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._stirred = True
            self._adopted.pop(pid, None)
            if (job := self._mains.pop(pid, None)) is not None:
                self._part_from_warden(job)
                job.bury(status, usage)
                self._left[job.number] = job

    # -- tend

    def _tend(self) -> None:
        now = time.monotonic()
        if now >= self._check_at:
            self._check(now)
        if self._stirred:
            self._stirred = False
            self._adopt()
        for job in list(self._left.values()):
            if self._lingers(job):
                self._end(job, "", now)
            else:
                self._release(job)
        for job in [job for job in self._ending.values() if job.is_hopeless(now)]:
            self._release(job, survivors=job.members)
        self._strike(now)

    def _check(self, now: float) -> None:
        """End what has taken too long; now and then, look at outputs and orphans too."""
        looks = now >= self._look_at
        if looks:
            self._stirred = True
            self._look_at = now + _LOOK_SECONDS
        self._check_at = self._look_at if self._jobs else math.inf
        for job in self._jobs.values():
            if job.due is not None:
                continue
            cause: launcher_protocol.Cause = "timeout" if now >= job.limit_at else job.look(now) if looks else ""
            if cause:
                self._end(job, cause, now)
            else:
                self._check_at = min(self._check_at, job.limit_at)

    def _adopt(self) -> None:
        if process_tree.LINUX:
            for pid in process_tree.children() - self._mains.keys() - self._adopted.keys():
                self._adopted[pid] = process_markers.of(pid)

    def _lingers(self, job: jobs.Job) -> bool:
        if job.reports is not None:
            return job.pid in self._mains
        return job.mark in self._adopted.values() if process_tree.LINUX else process_tree.has_group(job.pid)

    def _strike(self, now: float) -> None:
        wanted = [job for job in self._ending.values() if job.due is not None and job.due <= now]
        running = {job.mark for job in self._jobs.values()}
        strangers = {pid for pid, mark in self._adopted.items() if mark not in running}
        if not wanted and not strangers:
            return
        table = process_tree.table()
        for job in wanted:
            roots = {pid for pid, mark in self._adopted.items() if mark == job.mark} | {job.pid}
            job.strike(process_tree.descendants(table, roots), table, now)
        # Nobody runs whom they belong to: leftovers of leftovers, or of a launcher below that was killed.
        for pid in process_tree.descendants(table, strangers):
            process_tree.strike(pid, table[pid].started, signal.SIGKILL)

    # -- tell

    def _release(self, job: jobs.Job, survivors: int = 0) -> None:
        for listed in (self._jobs, self._left, self._ending):
            listed.pop(job.number, None)
        self._mains.pop(job.pid, None)
        self._part_from_warden(job)
        self._written.release(job.place)
        ended, files = job.told(survivors)
        if files:
            self._tell()
            self._say(launcher_protocol.framed([ended], len(files)), files)
        else:
            self._replies.append(ended)
        job.close()

    def _tell(self) -> None:
        if self._replies:
            replies, self._replies = self._replies, []
            self._say(launcher_protocol.framed(replies), [])

    def _say(self, content: bytes, files: list[int]) -> None:
        rest = memoryview(content)
        while rest and not self._alone:
            try:
                rest = rest[launcher_protocol.send(self._line, rest, files) :]
                files = []
            except BlockingIOError:
                _writable(self._line)
            except OSError:
                self._part()


def _wakes() -> socket.socket:
    """Return a socket that every signal makes readable."""
    ear, mouth = socket.socketpair()
    ear.setblocking(False)
    mouth.setblocking(False)
    signal.set_wakeup_fd(mouth.detach(), warn_on_full_buffer=False)
    return ear


def _writable(line: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(line, select.POLLOUT)
    waiting.poll()


def _wake(number: int, frame: object) -> None:
    """Let a signal interrupt a wait; what it means is found out there."""
