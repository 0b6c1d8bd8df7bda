"""Wire: what the service and its launcher say to each other over a socket, with open files beside the words.

Both ends are the same program in the same version, alone with each other, so Python's own compact form of plain
values will do; it carries bytes as they are.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

_LENGTH = struct.Struct("<I")
_READ_BYTES = 256 * 1024
_MOST_FILES = 64
_CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


Cause = Literal["", "asked", "timeout", "idle", "output"]
"""Why a command was ended: by itself, because it was asked for, or for a limit of time, of silence, of output."""


class Start(NamedTuple):
    """Start a command."""

    number: int
    """Which one; not used before."""
    run_id: str
    """Run that it belongs to."""
    argv: list[bytes]
    """The program and its arguments."""
    cwd: bytes | None
    """Folder that it runs in; None: the open folder passed along, the first file."""
    env: dict[bytes, bytes | None]
    """Variables to set, and to leave out where the value is None."""
    inherits: bool
    """Whether they are set over the launcher's own."""
    stdin: bytes | None
    """What it reads."""
    reads_from_file: bool
    """Whether it reads from an open file passed along, the one after the folder."""
    timeout_seconds: float | None
    """Wall-clock limit."""
    idle_seconds: float | None
    """Longest time without output."""
    cap_bytes: int
    """Size of either output at which it is ended."""
    contained: bool
    """Whether it is to have a namespace of its own, where the system lets it."""
    writes_to_file: bool
    """Whether its standard output goes to the open file passed along, the last one."""


class End(NamedTuple):
    """End a command, with every process that belongs to it."""

    number: int
    """Which one."""


class Ended(NamedTuple):
    """A command has ended, and nothing of it is left."""

    number: int
    """Which one."""
    pid: int
    """Its first process."""
    status: int
    """Wait status of that process."""
    cause: Cause
    """Why it was ended."""
    stdout: bytes | None
    """What it wrote; None: too much to be said, the open file is passed along."""
    stderr: bytes | None
    """The same for its complaints; that file comes last."""
    leftovers: int
    """Processes that it left behind and that were ended after it."""
    survivors: int
    """Processes that could not be ended."""
    cpu_seconds: float
    """Processor time of it and its children."""
    peak_bytes: int
    """Most memory that one of its processes held."""
    containment: str
    """How it was kept together."""


class Refused(NamedTuple):
    """A command could not be started."""

    number: int
    """Which one."""
    what: str
    """`program`, `cwd`, `output` or `containment`: what was at fault."""
    errno: int
    """The system's reason."""


Message = Start | End | Ended | Refused
"""Everything that is said."""

Heard = tuple[Message, list[int]]
"""A message, and the descriptors of the open files that came with it, now the listener's."""

_KINDS: tuple[type[Message], ...] = (Start, End, Ended, Refused)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


def framed(messages: Sequence[Message], files: int = 0) -> bytes:
    """Return messages as they travel.

    Args:
        files: Open files that go with them; they are the last message's.
    """
    content = marshal.dumps((files, [(_NUMBERS[type(message)], *message) for message in messages]))
    return _LENGTH.pack(len(content)) + content


def send(line: socket.socket, content: bytes | memoryview, files: Iterable[int] = ()) -> int:
    """Send a part of a frame, its files with the first part of it; return how many bytes went."""
    beside = array.array("i", files)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, beside)] if beside else []
    return line.sendmsg([content], ancillary)


class Listener:
    """One end of a line, as far as it is listened to."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._unread = bytearray()
        self._files: deque[int] = deque()

    def hear(self) -> list[Heard] | None:
        """Return what has arrived, without waiting for more; None once the other end is closed."""
        try:
            content, beside, _, _ = self._line.recvmsg(
                _READ_BYTES, socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize), _CLOSED_ON_EXEC
            )
        except BlockingIOError:
            return []
        except OSError:
            return None
        for level, kind, passed in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files.extend(array.array("i", passed))
        if not content:
            return None
        self._unread += content
        return self._complete()

    def close(self) -> None:
        """Close the files that nobody was told of."""
        while self._files:
            os.close(self._files.popleft())

    def _complete(self) -> list[Heard]:
        heard: list[Heard] = []
        begin = 0
        while len(self._unread) >= begin + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._unread, begin)
            end = begin + _LENGTH.size + length
            if len(self._unread) < end:
                break
            heard += self._unpacked(self._unread[begin + _LENGTH.size : end])
            begin = end
        del self._unread[:begin]
        return heard

    def _unpacked(self, content: bytearray) -> list[Heard]:
        files, messages = marshal.loads(content)  # noqa: S302 - the other end is the same program
        heard: list[Heard] = [(_KINDS[message[0]](*message[1:]), []) for message in messages]
        for _ in range(files):
            heard[-1][1].append(self._files.popleft())
        return heard
