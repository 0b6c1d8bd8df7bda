"""The launcher: a small process that starts and ends commands for a service, and ends them if the service dies.

It runs in an isolated interpreter and only imports this package and the standard library. As a subreaper it adopts
orphans, so every process of a command descends from it. One thread runs one loop: receive, reap, supervise, reply.
"""

# Why: docs/decisions/0060.

from __future__ import annotations

import functools
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
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

_FULL_CHECK_SECONDS = 1.0
_FULL_ROUND = 16


def main(arguments: list[str]) -> NoReturn:
    """Run commands until the service is gone.

    Args:
        arguments: Descriptor of the connection, process id of the service, series, number of files that a command may
            open, containment of commands, folder of registers, folder of outputs.
    """
    connection, owner, series, files = (int(argument) for argument in arguments[:4])
    containment, folder, temporary = arguments[4:]
    end = socket.socket(fileno=connection)
    end.setblocking(False)
    end.set_inheritable(False)
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(ending, _interrupt)
    process_tree.become_subreaper()
    create = functools.partial(command_register.Register, folder, series, command_register.current(owner))
    spawner = spawning.Spawner(temporary, files, namespace_init.Containment(containment))
    Launcher(end, owner, series, create, spawner).run()
    sys.exit(0)


class Launcher:
    """Starts and ends the commands of one service."""

    def __init__(
        self,
        connection: socket.socket,
        owner: int,
        series: int,
        create_register: Callable[[], command_register.Register],
        spawner: spawning.Spawner,
    ) -> None:
        self._socket = connection
        self._owner = owner
        self._series = series
        self._create_register = create_register
        self._register: command_register.Register | None = None
        self._spawner = spawner
        self._receiver = launcher_protocol.Receiver(connection)
        self._jobs: dict[int, jobs.Job] = {}
        self._by_pid: dict[int, jobs.Job] = {}
        self._exited: dict[int, jobs.Job] = {}
        self._ending: dict[int, jobs.Job] = {}
        self._reporting: dict[int, jobs.Job] = {}
        self._adopted: dict[int, int | None] = {}
        self._replies: list[launcher_protocol.Message] = []
        self._is_detached = False
        self._has_changed = False
        self._next_full_check_at = self._next_check_at = math.inf
        self._poll = select.poll()
        self._wakeup = _wakeup_socket()
        self._poll.register(self._wakeup, select.POLLIN)
        self._poll.register(connection, select.POLLIN)

    def run(self) -> None:
        """Start and end commands on request; end all of them once the service is gone."""
        while not self._is_detached or self._jobs or self._adopted:
            # One round has a fixed order: exits are reaped before orphans are adopted and leftovers judged, so that a
            # command has only ended when none of its processes is left. Replies come last, with the round's results.
            ready = {file for file, _ in self._poll.poll(self._poll_timeout_ms())}
            if self._wakeup.fileno() in ready:
                self._drain_wakeup()
            # The end of the connection does not always show that the service is gone: a process that has inherited the
            # service's end keeps it open. Then the kernel's SIGTERM (`become_subreaper`) wakes the poll, and the
            # launcher has another parent.
            if not self._is_detached and (self._socket.fileno() in ready or os.getppid() != self._owner):
                self._receive()
            for job in [job for file, job in self._reporting.items() if file in ready]:
                self._read_report(job)
            self._reap()
            self._supervise()
            self._send_replies()
        if self._register is not None:
            self._register.discard()

    def _poll_timeout_ms(self) -> int | None:
        times = (job.next_signal_at for job in self._ending.values() if job.next_signal_at is not None)
        next_at = min(times, default=self._next_check_at)
        if self._adopted:
            next_at = min(next_at, time.monotonic() + _FULL_CHECK_SECONDS)
        if next_at == math.inf:
            return None
        return max(int((min(next_at, self._next_check_at) - time.monotonic()) * 1000) + 1, 0)

    def _drain_wakeup(self) -> None:
        self._has_changed = True
        while True:
            try:
                if len(self._wakeup.recv(4096)) < 4096:
                    return
            except BlockingIOError:
                return

    # -- receive

    def _receive(self) -> None:
        received = self._receiver.receive()
        # The end of the connection and the death of the parent mean the same, whichever shows first.
        if received is None or os.getppid() != self._owner:
            self._detach()
            return
        for count, (message, files) in enumerate(received, 1):
            if isinstance(message, launcher_protocol.Start):
                self._start(message, files)
            elif isinstance(message, launcher_protocol.End) and message.number in self._jobs:
                self._end(self._jobs[message.number], "asked", time.monotonic())
            if count % _FULL_ROUND == 0:
                # Commands that have ended meanwhile are answered before the rest of a long list is read.
                self._reap()
                self._supervise()
                self._send_replies()

    def _start(self, request: launcher_protocol.Start, files: list[int]) -> None:
        try:
            if not self._is_detached:
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
        # Registered before it exists: if the launcher is killed in between, the next sweep finds the run's name, and
        # a full disk refuses the command before it is started.
        register, place = self._announce(request)
        try:
            job = self._spawner.start(request, process_markers.marker(self._series, request.number), files, now)
        except BaseException:
            register.release(place)
            raise
        job.place = place
        register.complete(place, command_register.Entry(job.number, request.run_id, job.pid, job.started_by))
        # Without commands there is nothing to check: the launcher sleeps.
        if not self._jobs:
            self._next_full_check_at = self._next_check_at = now + _FULL_CHECK_SECONDS
        self._jobs[job.number] = self._by_pid[job.pid] = job
        if job.reports is not None:
            self._reporting[job.reports] = job
            self._poll.register(job.reports, select.POLLIN)
        self._next_check_at = min(self._next_check_at, job.deadline_at)

    def _announce(self, request: launcher_protocol.Start) -> tuple[command_register.Register, int]:
        # Created with the first command, and again after a failure: a disk without room must refuse commands and not
        # end this launcher, or a command that never began would count as one that was cut off.
        try:
            self._register = self._register or self._create_register()
            return self._register, self._register.announce(request.number, request.run_id)
        except FileExistsError as error:
            # The series is another launcher's: this one ends, and the next one gets another series.
            raise RuntimeError("the series is taken") from error
        except OSError as error:
            raise spawning.Refusal("register", error.errno) from error

    def _end(self, job: jobs.Job, cause: launcher_protocol.Cause, now: float) -> None:
        job.end(cause, now)
        self._ending[job.number] = job

    def _detach(self) -> None:
        """Continue without the service, which is gone: end all of its commands."""
        if not self._is_detached:
            self._is_detached = True
            self._has_changed = True
            self._poll.unregister(self._socket)
            self._receiver.close()
            for job in self._jobs.values():
                self._end(job, "asked", time.monotonic())

    # -- reap

    def _read_report(self, job: jobs.Job) -> None:
        """Read the only report of a command's namespace init."""
        job.read_report()
        self._unwatch(job)
        if job.has_leftovers:
            self._exited[job.number] = job

    def _unwatch(self, job: jobs.Job) -> None:
        if job.reports is not None and self._reporting.pop(job.reports, None) is not None:
            self._poll.unregister(job.reports)

    def _reap(self) -> None:
        while True:
            try:
                # All waiting children are reaped at once: one signal may announce several of them.
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._has_changed = True
            self._adopted.pop(pid, None)
            if (job := self._by_pid.pop(pid, None)) is not None:
                self._unwatch(job)
                job.record_exit(status, usage)
                self._exited[job.number] = job

    # -- supervise

    def _supervise(self) -> None:
        now = time.monotonic()
        if now >= self._next_check_at:
            self._check_limits(now)
        if self._has_changed:
            self._has_changed = False
            self._adopt()
        for job in list(self._exited.values()):
            if self._has_processes(job):
                self._end(job, "", now)
            else:
                self._release(job)
        # A process in an uninterruptible sleep dies when the kernel lets it; the step does not wait for that.
        for job in [job for job in self._ending.values() if job.is_unkillable(now)]:
            self._release(job, survivors=job.members)
        self._send_signals(now)

    def _check_limits(self, now: float) -> None:
        """End commands over their time limit; once a second, also check outputs and orphans."""
        is_due = now >= self._next_full_check_at
        if is_due:
            self._has_changed = True
            self._next_full_check_at = now + _FULL_CHECK_SECONDS
        self._next_check_at = self._next_full_check_at if self._jobs else math.inf
        for job in self._jobs.values():
            if is_due and not self._is_detached:
                self._replies += job.news()
            if cause := job.exceeded(now, checks_output=is_due):
                self._end(job, cause, now)
            elif job.next_signal_at is None:
                self._next_check_at = min(self._next_check_at, job.deadline_at)

    def _adopt(self) -> None:
        if process_tree.LINUX:
            for pid in process_tree.children() - self._by_pid.keys() - self._adopted.keys():
                self._adopted[pid] = process_markers.read(pid)

    def _has_processes(self, job: jobs.Job) -> bool:
        if job.reports is not None:
            return job.pid in self._by_pid
        return job.marker in self._adopted.values() if process_tree.LINUX else process_tree.group_exists(job.pid)

    def _send_signals(self, now: float) -> None:
        wanted = [job for job in self._ending.values() if job.next_signal_at is not None and job.next_signal_at <= now]
        running = {job.marker for job in self._jobs.values()}
        unowned = {pid for pid, marker in self._adopted.items() if marker not in running}
        if not wanted and not unowned:
            return
        orphans = {job: {pid for pid, marker in self._adopted.items() if marker == job.marker} for job in wanted}
        for job in (job for job in wanted if job.signals_sent):
            # Processes that fork in bulk can outrun signals to each of them, but not a kill of their group.
            process_tree.kill_groups(orphans[job] | ({job.pid} & self._by_pid.keys()))
        # Read anew each time: processes fork while they are being killed, and only a fresh table has their children.
        table = process_tree.table()
        for job in wanted:
            roots = orphans[job] | {job.pid}
            job.send_next_signal(process_tree.descendants(table, roots), table, now)
        # No running command owns these: they are leftovers of leftovers, or of a killed launcher further down.
        for pid in process_tree.descendants(table, unowned):
            process_tree.send_signal(pid, table[pid].started, signal.SIGKILL)

    # -- reply

    def _release(self, job: jobs.Job, survivors: int = 0) -> None:
        for listed in (self._jobs, self._exited, self._ending):
            listed.pop(job.number, None)
        self._by_pid.pop(job.pid, None)
        self._unwatch(job)
        if self._register is not None:
            self._register.release(job.place)
        # Output since the last check precedes the result.
        if job.has_passed_output:
            self._replies += job.news()
        ended, files = job.reply(survivors)
        # In order: descriptors belong to the message with which they are sent.
        if files:
            self._send_replies()
            self._send(launcher_protocol.frame([ended], len(files)), files)
        else:
            self._replies.append(ended)
        job.close()

    def _send_replies(self) -> None:
        if self._replies:
            replies, self._replies = self._replies, []
            self._send(launcher_protocol.frame(replies), [])

    def _send(self, content: bytes, files: list[int]) -> None:
        rest = memoryview(content)
        while rest and not self._is_detached:
            try:
                rest = rest[launcher_protocol.send(self._socket, rest, files) :]
                files = []
            except BlockingIOError:
                # A service that reads slowly must not lose an answer.
                _writable(self._socket)
            except OSError:
                self._detach()


def _wakeup_socket() -> socket.socket:
    """Return a socket that becomes readable with every signal."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    return reader


def _writable(connection: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(connection, select.POLLOUT)
    waiting.poll()


def _interrupt(number: int, frame: object) -> None:
    """Interrupt the poll; the loop then checks what has changed."""
