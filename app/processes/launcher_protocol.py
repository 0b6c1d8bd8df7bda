"""The launcher protocol: messages between the service and its launcher, over a socket that also passes open files.

Both ends are the same version of the same program, so marshal is sufficient; it transmits bytes unchanged.
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
    """The request to start a command."""

    number: int  # Number of the command; not used before.
    run_id: str  # Run that it belongs to.
    argv: list[bytes]  # The program and its arguments.
    cwd: bytes | None  # Folder in which it runs; None: the open folder that is passed along, the first file.
    env: dict[bytes, bytes | None]  # Variables to set; None removes a variable.
    inherits: bool  # Whether they override the launcher's own variables.
    stdin: bytes | None  # Its standard input.
    reads_from_file: bool  # Whether it reads from an open file that is passed along, the one after the folder.
    timeout_seconds: float | None  # Wall-clock limit.
    idle_seconds: float | None  # Longest time without output.
    cap_bytes: int  # Size of either output at which it is ended.
    contained: bool  # Whether it gets a namespace of its own if the system allows that.
    writes_to_file: bool  # Whether its standard output is written to an open file that is passed along, the last one.
    passes_output: bool  # Whether its output is passed on while it runs.


class End(NamedTuple):
    """The request to end a command, with every process that belongs to it."""

    number: int  # Number of the command.


class Ended(NamedTuple):
    """The report that a command has ended, and that none of its processes is left."""

    number: int  # Number of the command.
    pid: int  # Its first process.
    status: int  # Wait status of that process.
    cause: Cause  # Why it was ended.
    stdout: bytes | None  # Its standard output; None: it is too long, and the open file is passed.
    stderr: bytes | None  # The same for standard error, whose file comes last.
    leftovers: int  # Processes that it left running and that were ended after it.
    survivors: int  # Processes that could not be ended.
    cpu_seconds: float  # Processor time of the command and its children.
    peak_bytes: int  # Most memory used by one of its processes.
    containment: str  # How it was contained.


class Written(NamedTuple):
    """Output of a command that is still running."""

    number: int  # Number of the command.
    stream: int  # 1 for standard output, 2 for standard error.
    content: bytes  # A part of its output since the last message.
    skipped_bytes: int  # Bytes before the content that were omitted because there were too many.


class Refused(NamedTuple):
    """The report that a command could not be started."""

    number: int  # Number of the command.
    what: str  # The cause: `program`, `cwd`, `output`, `register` or `containment`.
    errno: int  # Error number of the system.


Message = Start | End | Ended | Refused | Written  # Any message.

Received = tuple[Message, list[int]]
"""A message with the descriptors of the open files that came with it, which the receiver now owns."""

_KINDS: tuple[type[Message], ...] = (Start, End, Ended, Refused, Written)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


def frame(messages: Sequence[Message], files: int = 0) -> bytes:
    """Return messages as one frame.

    Args:
        files: Number of open files that are sent with them; they belong to the last message.
    """
    content = marshal.dumps((files, [(_NUMBERS[type(message)], *message) for message in messages]))
    return _LENGTH.pack(len(content)) + content


def send(connection: socket.socket, content: bytes | memoryview, files: Iterable[int] = ()) -> int:
    """Send a part of a frame, with its files in the first part; return the number of bytes sent."""
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
        # Before the content: the files belong to the messages of this portion or of the next ones.
        for level, kind, passed in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files.extend(array.array("i", passed))
        # A properly closed socket returns an empty portion.
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
            # The rest of a long message arrives with the next portion.
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
