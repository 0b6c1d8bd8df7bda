"""What the supervisor is asked to run, and the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app import errors
from app.processes import launcher_protocol

CAP_BYTES = 1024 * 1024 * 1024  # Size of one output at which a command is ended.
HELD_BYTES = 8 * 1024 * 1024  # How much of each output is returned, so that both together stay within 16 MiB.


class NotStarted(errors.StepError):
    """The command could not be started."""

    default_code = "not_started"


class LauncherLost(errors.ControlRoomError):
    """The launcher ended while this command ran; none of the command's processes is left."""

    default_code = "launcher_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A command to run."""

    argv: tuple[str, ...]
    """The program, found on the command's own PATH unless it holds a slash, and its arguments."""
    run_id: str  # Run that it belongs to.
    cwd: Path | int  # Folder that it runs in, or the descriptor of one, which is taken over.
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables to set over those of this process, and to leave out where the value is None."""
    secrets: Collection[str] = ()
    """Names of the secret variables of this process that it gets; the others are left out."""
    inherits: bool = True  # Whether it inherits variables of this process; if not, it gets `env` alone.
    stdin: bytes | int | None = None
    """Its standard input, or a descriptor to read it from, which is taken over; None: empty."""
    stdout: int | None = None
    """Descriptor that its standard output goes to; it is taken over. Of a file, readable too and opened for appending,
    the output is held as well. Of a socket or a pipe nothing is held: its other end is the caller's to read.
    """
    timeout_seconds: float | None = None  # Wall-clock limit.
    idle_seconds: float | None = None  # Longest time without output to a file; checked once a second.
    cap_bytes: int = CAP_BYTES  # Size of one output at which it is ended; checked once a second.
    contained: bool = False
    """Whether it gets a namespace of its own where the system allows it, for a few milliseconds more."""
    agent_session_id: str | None = None  # Conversation of an agent that it belongs to.
    on_output: Callable[[int, bytes, int], None] | None = None
    """Called with what it writes to a file while it runs, about once a second: 1 for standard output or 2 for standard
    error, a part of it, and how many bytes were left out before.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A command that has not ended."""

    run_id: str  # Run that it belongs to.
    agent_session_id: str | None  # Conversation of an agent that it belongs to.
    program: str  # Its program; arguments are left out because they may hold secrets.
    pid: int | None  # Its first process; None if that has not been started yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One of the two outputs of a command."""

    content: bytes = b""
    """Its content up to a limit: the beginning of standard output, the end of standard error."""
    size_bytes: int = 0  # Its whole size.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended, with none of its processes left."""

    pid: int  # Its first process; in a namespace, the init.
    exit_code: int | None  # Exit code; None if a signal ended it.
    signal: int | None  # That signal.
    cause: launcher_protocol.Cause  # Why it ended.
    stdout: Output  # Standard output.
    stderr: Output  # Standard error.
    leftovers: int  # Processes that it left running, and that were ended after it.
    survivors: int  # Processes that even SIGKILL did not end within five seconds.
    cpu_seconds: float  # Processor time of it and of its children.
    peak_bytes: int  # Most memory that one of its processes held.
    containment: str = "guard"  # How it was contained: `guard`, `namespace`, `user_namespace`.
