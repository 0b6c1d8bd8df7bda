"""The launcher client: the service's end of the connection to its launcher."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from app.processes import commands, launcher_protocol

_ROOT = str(Path(__file__).resolve().parents[2])
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from app.processes import launcher; launcher.main(sys.argv[2:])"
_STDERR_BYTES = 2_000
_END_SECONDS = 10.0

OutputListener = Callable[[int, bytes, int], None]
"""Receives output of a running command: the stream, 1 or 2, a part of it, and how many bytes before were omitted."""

Reply = tuple[launcher_protocol.Ended | launcher_protocol.Refused, list[int]]
"""The result of a command, with the descriptors of its long outputs."""


class LauncherClient:
    """A running launcher, as the service uses it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        connection: socket.socket,
        stderr: IO[bytes],
        on_lost: Callable[[LauncherClient], None],
        sweep: Callable[[], object],
    ) -> None:
        self._process = process
        self._socket = connection
        self._stderr = stderr
        self._on_lost = on_lost
        self._sweep = sweep
        self._receiver = launcher_protocol.Receiver(connection)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._listeners: dict[int, OutputListener] = {}
        self._messages: list[launcher_protocol.Message] = []
        self._frames: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._scheduled = self._blocked = False
        self._exit_task: asyncio.Task[None] | None = None
        self._exited = asyncio.Event()
        self._detail: dict[str, object] = {}
        self._loop.add_reader(connection.fileno(), self._receive)

    @classmethod
    def start(
        cls,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        on_lost: Callable[[LauncherClient], None],
        sweep: Callable[[], object],
    ) -> LauncherClient:
        """Start a launcher for this process.

        Args:
            arguments: Series, most files that a command may open, containment, folder of registers, folder of outputs.
            environ: Variables that commands inherit.
            on_lost: Called as soon as the launcher has ended.
            sweep: Ends the remaining processes of its commands; blocks.

        Raises:
            OSError: the launcher cannot be started.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the launcher
        try:
            # Isolated (-I, -S): neither the environment nor site-packages can inject code into the process that ends
            # all others.
            process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, str(theirs.fileno()), str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environ,
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C at the terminal must only reach the service
            )
        except BaseException:
            ours.close()
            stderr.close()
            raise
        finally:
            # From now on only the launcher has this end, so that its close is noticed.
            theirs.close()
        return cls(process, ours, stderr, on_lost, sweep)

    @property
    def pid(self) -> int:
        """Return the process id of the launcher."""
        return self._process.pid

    async def run(
        self, start: launcher_protocol.Start, files: Sequence[int], on_output: OutputListener | None = None
    ) -> Reply:
        """Run a command; a cancellation first ends the command and every process that it has started.

        Args:
            files: Open files that are sent with it; the client closes them.
            on_output: Called about once a second with its output while it runs.

        Raises:
            commands.LauncherLost: the launcher ended before the command had.
        """
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[start.number] = reply
        if on_output is not None:
            self._listeners[start.number] = on_output
        self._queue(start, files)
        try:
            return await reply
        except asyncio.CancelledError:
            # The command is still running: this only returns when none of its processes is left, as the engine closes
            # the step, and the next one may use the same workspace at once. Or the result, or the loss of the launcher,
            # arrived together with the cancellation: then the files have no other reader, and the loss must not replace
            # the cancellation, or the cancelled step would be tried again.
            if reply.cancelled():
                if start.number in self._waiting:
                    await self._ended(start.number)
            elif reply.exception() is None:
                _close(reply.result()[1])
            raise
        finally:
            self._listeners.pop(start.number, None)

    async def close(self) -> None:
        """Make the launcher end every command and then itself."""
        if self._exit_task is None:
            # Half closed: the answers to commands that are being ended still arrive.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._exited.wait()
        except TimeoutError:
            self._process.kill()
            await self._exited.wait()

    async def _ended(self, number: int) -> None:
        """End a command and wait for its end, even if the wait is cancelled.

        A launcher that does not end it in time is killed, together with its commands.
        """
        reply = self._waiting[number] = self._loop.create_future()
        self._queue(launcher_protocol.End(number), ())
        overdue = self._loop.call_later(_END_SECONDS, self._process.kill)
        # A second cancellation (a hurried stop, a time limit) must not leave the command running unattended.
        while not reply.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([reply])
        overdue.cancel()
        if reply.exception() is None:
            _close(reply.result()[1])

    # -- send

    def _queue(self, message: launcher_protocol.Message, files: Sequence[int]) -> None:
        # Earlier messages go first: messages are sent in the order of the calls.
        if files:
            self._frame_messages()
            self._frames.append((memoryview(launcher_protocol.frame([message], len(files))), files))
        else:
            self._messages.append(message)
        if not self._scheduled:
            # Messages of one turn of the event loop share one frame.
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _frame_messages(self) -> None:
        if self._messages:
            self._frames.append((memoryview(launcher_protocol.frame(self._messages)), ()))
            self._messages = []

    def _send(self) -> None:
        self._scheduled = False
        self._frame_messages()
        while self._frames and self._exit_task is None and self._send_some():
            pass
        blocked = bool(self._frames) and self._exit_task is None
        if blocked and not self._blocked:
            self._loop.add_writer(self._socket.fileno(), self._send)
        elif self._blocked and not blocked and self._exit_task is None:
            self._loop.remove_writer(self._socket.fileno())
        self._blocked = blocked

    def _send_some(self) -> bool:
        rest, files = self._frames[0]
        try:
            sent = launcher_protocol.send(self._socket, rest, files)
        except BlockingIOError:
            return False
        except OSError:
            # The launcher is gone; the receiver will notice.
            self._drop_queued()
            return False
        # The files are sent once: the rest of the frame is sent without them.
        _close(files)
        if sent < len(rest):
            self._frames[0] = (rest[sent:], ())
        else:
            self._frames.popleft()
        return True

    def _drop_queued(self) -> None:
        self._messages = []
        while self._frames:
            _close(self._frames.popleft()[1])

    # -- receive

    def _receive(self) -> None:
        received = self._receiver.receive()
        if received is None:
            self._disconnect()
            return
        for message, files in received:
            if isinstance(message, launcher_protocol.Written):
                if (on_output := self._listeners.get(message.number)) is not None:
                    on_output(message.stream, message.content, message.skipped_bytes)
                continue
            assert isinstance(message, launcher_protocol.Ended | launcher_protocol.Refused)
            reply = self._waiting.pop(message.number)
            # The caller is gone, and no other code would close these.
            if reply.cancelled():
                _close(files)
            else:
                reply.set_result((message, files))

    def _disconnect(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._exit_task = self._loop.create_task(self._collect_exit(), name="exit of the launcher")
        self._socket.close()
        self._receiver.close()
        self._drop_queued()
        self._on_lost(self)

    async def _collect_exit(self) -> None:
        try:
            code = await asyncio.to_thread(self._wait_for_exit)
            # A killed launcher has left its commands running. They are killed before their steps learn of it;
            # otherwise a next attempt would run beside them.
            if code != 0:
                await asyncio.to_thread(self._sweep)
        finally:
            waiting, self._waiting = self._waiting, {}
            for reply in waiting.values():
                if not reply.done():
                    reply.set_exception(commands.LauncherLost(detail=self._detail))
            self._exited.set()

    def _wait_for_exit(self) -> int:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._stderr:
            size_bytes = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(size_bytes - _STDERR_BYTES, 0))
            stderr = self._stderr.read().decode(errors="replace").strip()
        self._detail = {"exit_code": code, "stderr": stderr}
        return code


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
