"""Launched: the service's end of the line to its launcher."""

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
_TOLD_BYTES = 2_000
_END_SECONDS = 10.0

Reply = tuple[launcher_protocol.Ended | launcher_protocol.Refused, list[int]]
"""What came of a command, with the descriptors of its long outputs."""


class LauncherClient:
    """A running launcher."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        line: socket.socket,
        complaints: IO[bytes],
        lost: Callable[[LauncherClient], None],
        sweep: Callable[[], object],
    ) -> None:
        self._process = process
        self._line = line
        self._complaints = complaints
        self._tell_lost = lost
        self._sweep = sweep
        self._listener = launcher_protocol.Listener(line)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._unsaid: list[launcher_protocol.Message] = []
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._scheduled = self._blocked = False
        self._burial: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._detail: dict[str, object] = {}
        self._loop.add_reader(line.fileno(), self._hear)

    @classmethod
    def start(
        cls,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        lost: Callable[[LauncherClient], None],
        sweep: Callable[[], object],
    ) -> LauncherClient:
        """Start a launcher for this process.

        Args:
            arguments: Series, files that a command may open, containment, folder of registers, folder of outputs.
            environ: What commands inherit.
            lost: Called at once when it has ended.
            sweep: Ends what is left of its commands; blocks.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the launcher
        try:
            process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, str(theirs.fileno()), str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env=environ,
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C at the terminal is the service's to judge
            )
        except BaseException:
            ours.close()
            complaints.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours, complaints, lost, sweep)

    @property
    def pid(self) -> int:
        """Return the id of the launcher's process."""
        return self._process.pid

    async def run(self, start: launcher_protocol.Start, files: Sequence[int]) -> Reply:
        """Run a command; a cancellation ends it first, whatever it has started.

        Args:
            files: Open files that go with it; they are closed.

        Raises:
            LauncherLost: the launcher ended before the command had.
        """
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[start.number] = reply
        self._say(start, files)
        try:
            return await reply
        except asyncio.CancelledError:
            if not reply.cancelled():
                _close(reply.result()[1])
            elif start.number in self._waiting:
                await self._ended(start.number)
            raise

    async def close(self) -> None:
        """Let it end every command, and then itself."""
        if self._burial is None:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._over.wait()
        except TimeoutError:
            self._process.kill()
            await self._over.wait()

    async def _ended(self, number: int) -> None:
        """Have a command ended, and wait for that, whoever else loses patience.

        A launcher that does not do so in time is killed, and its commands with it.
        """
        reply = self._waiting[number] = self._loop.create_future()
        self._say(launcher_protocol.End(number), ())
        overdue = self._loop.call_later(_END_SECONDS, self._process.kill)
        while not reply.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([reply])
        overdue.cancel()
        if reply.exception() is None:
            _close(reply.result()[1])

    # -- say

    def _say(self, message: launcher_protocol.Message, files: Sequence[int]) -> None:
        if files:
            self._pack()
            self._unsent.append((memoryview(launcher_protocol.framed([message], len(files))), files))
        else:
            self._unsaid.append(message)
        if not self._scheduled:
            # What is said in one turn of the loop goes in one piece.
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _pack(self) -> None:
        if self._unsaid:
            self._unsent.append((memoryview(launcher_protocol.framed(self._unsaid)), ()))
            self._unsaid = []

    def _send(self) -> None:
        self._scheduled = False
        self._pack()
        while self._unsent and self._burial is None and self._send_some():
            pass
        blocked = bool(self._unsent) and self._burial is None
        if blocked and not self._blocked:
            self._loop.add_writer(self._line.fileno(), self._send)
        elif self._blocked and not blocked and self._burial is None:
            self._loop.remove_writer(self._line.fileno())
        self._blocked = blocked

    def _send_some(self) -> bool:
        rest, files = self._unsent[0]
        try:
            sent = launcher_protocol.send(self._line, rest, files)
        except BlockingIOError:
            return False
        except OSError:
            # The launcher is gone; whoever listens to it finds out.
            self._drop_unsent()
            return False
        _close(files)
        if sent < len(rest):
            self._unsent[0] = (rest[sent:], ())
        else:
            self._unsent.popleft()
        return True

    def _drop_unsent(self) -> None:
        self._unsaid = []
        while self._unsent:
            _close(self._unsent.popleft()[1])

    # -- hear

    def _hear(self) -> None:
        heard = self._listener.hear()
        if heard is None:
            self._part()
            return
        for message, files in heard:
            assert isinstance(message, launcher_protocol.Ended | launcher_protocol.Refused)
            reply = self._waiting.pop(message.number)
            if reply.cancelled():
                _close(files)
            else:
                reply.set_result((message, files))

    def _part(self) -> None:
        self._loop.remove_reader(self._line.fileno())
        self._loop.remove_writer(self._line.fileno())
        self._burial = self._loop.create_task(self._bury(), name="burial of the launcher")
        self._line.close()
        self._listener.close()
        self._drop_unsent()
        self._tell_lost(self)

    async def _bury(self) -> None:
        try:
            code = await asyncio.to_thread(self._last_words)
            if code != 0:
                await asyncio.to_thread(self._sweep)
        finally:
            waiting, self._waiting = self._waiting, {}
            for reply in waiting.values():
                if not reply.done():
                    reply.set_exception(commands.LauncherLost(detail=self._detail))
            self._over.set()

    def _last_words(self) -> int:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._complaints:
            size_bytes = self._complaints.seek(0, os.SEEK_END)
            self._complaints.seek(max(size_bytes - _TOLD_BYTES, 0))
            told = self._complaints.read().decode(errors="replace").strip()
        self._detail = {"exit_code": code, "stderr": told}
        return code


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
