"""Messages between the service and its launcher, over a socket that also passes open files.

Both ends are the same version of the same program, so marshal is enough; it carries bytes unchanged.
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
"""Why a command was ended: not at all, by request, or by its limit of time, silence or output."""


class Start(NamedTuple):
    """Start a command."""

    number: int  # Which one; not used before.
    run_id: str  # Run that it belongs to.
    argv: list[bytes]  # The program and its arguments.
    cwd: bytes | None  # Folder that it runs in; None: the open folder passed along, the first file.
    env: dict[bytes, bytes | None]  # Variables to set, and to leave out where the value is None.
    inherits: bool  # Whether they are set over the launcher's own.
    stdin: bytes | None  # Its standard input.
    reads_from_file: bool  # Whether it reads from an open file passed along, the one after the folder.
    timeout_seconds: float | None  # Wall-clock limit.
    idle_seconds: float | None  # Longest time without output.
    cap_bytes: int  # Size of either output at which it is ended.
    contained: bool  # Whether it gets a namespace of its own where the system allows it.
    writes_to_file: bool  # Whether its standard output goes to the open file passed along, the last one.
    passes_output: bool  # Whether what it writes is passed on while it runs.


class End(NamedTuple):
    """End a command, with every process that belongs to it."""

    number: int  # Which one.


class Ended(NamedTuple):
    """A command has ended, and none of its processes is left."""

    number: int  # Which one.
    pid: int  # Its first process.
    status: int  # Wait status of that process.
    cause: Cause  # Why it was ended.
    stdout: bytes | None  # Its standard output; None: too long, the open file is passed.
    stderr: bytes | None  # The same for standard error; that file comes last.
    leftovers: int  # Processes that it left running and that were ended after it.
    survivors: int  # Processes that could not be ended.
    cpu_seconds: float  # Processor time of it and its children.
    peak_bytes: int  # Most memory that one of its processes held.
    containment: str  # How it was contained.


class Written(NamedTuple):
    """A command that still runs has written something."""

    number: int  # Which one.
    stream: int  # 1 for standard output, 2 for standard error.
    content: bytes  # A part of what it wrote since the last message.
    skipped_bytes: int  # Bytes before the content that were left out because there were too many.


class Refused(NamedTuple):
    """A command could not be started."""

    number: int  # Which one.
    what: str  # The cause: `program`, `cwd`, `output` or `containment`.
    errno: int  # The system's reason.


Message = Start | End | Ended | Refused | Written  # Any message.

Received = tuple[Message, list[int]]
"""A message, and the descriptors of the open files that came with it, now the receiver's."""

_KINDS: tuple[type[Message], ...] = (Start, End, Ended, Refused, Written)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


def frame(messages: Sequence[Message], files: int = 0) -> bytes:
    """Return messages as one frame.

    Args:
        files: Open files that go with them; they are the last message's.
    """
    content = marshal.dumps((files, [(_NUMBERS[type(message)], *message) for message in messages]))
    return _LENGTH.pack(len(content)) + content


def send(connection: socket.socket, content: bytes | memoryview, files: Iterable[int] = ()) -> int:
    """Send a part of a frame, its files with the first part of it; return the number of bytes sent."""
    descriptors = array.array("i", files)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
    return connection.sendmsg([content], ancillary)


class Receiver:
    """The receiving side of one end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._unread = bytearray()
        self._files: deque[int] = deque()

    def receive(self) -> list[Received] | None:
        """Return the messages that have arrived, without waiting; None once the other end is closed."""
        try:
            content, ancillary, _, _ = self._socket.recvmsg(
                _READ_BYTES, socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize), _CLOSED_ON_EXEC
            )
        except BlockingIOError:
            return []
        except OSError:
            return None
        # Before the content: files belong to the messages of this portion or of the next ones.
        for level, kind, passed in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files.extend(array.array("i", passed))
        # A socket that is closed in order returns nothing.
        if not content:
            return None
        self._unread += content
        return self._complete()

    def close(self) -> None:
        """Close the files whose message has not arrived."""
        while self._files:
            os.close(self._files.popleft())

    def _complete(self) -> list[Received]:
        received: list[Received] = []
        begin = 0
        while len(self._unread) >= begin + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._unread, begin)
            end = begin + _LENGTH.size + length
            # The rest of a long message comes with the next portion.
            if len(self._unread) < end:
                break
            received += self._unpacked(self._unread[begin + _LENGTH.size : end])
            begin = end
        del self._unread[:begin]
        return received

    def _unpacked(self, content: bytearray) -> list[Received]:
        files, messages = marshal.loads(content)  # noqa: S302 - the other end is the same program
        received: list[Received] = [(_KINDS[message[0]](*message[1:]), []) for message in messages]
        for _ in range(files):
            received[-1][1].append(self._files.popleft())
        return received
