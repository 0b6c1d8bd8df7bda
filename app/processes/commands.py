"""Commands: the requests to the supervisor, and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app import errors
from app.processes import launcher_protocol

CAP_BYTES = 1024 * 1024 * 1024  # Size of one output at which a command is ended.
HELD_BYTES = 8 * 1024 * 1024  # Bytes returned of each output, so that both together stay within 16 MiB.


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
    """The program, searched on the command's own PATH unless it contains a slash, and its arguments."""
    run_id: str  # Run that it belongs to.
    cwd: Path | int  # Folder in which it runs, or an open descriptor of one, which the supervisor takes over.
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables that override those of this process; None removes a variable."""
    secrets: Collection[str] = ()
    """Names of this process's secret variables that the command receives; other secrets are withheld."""
    inherits: bool = True  # Whether it inherits variables of this process; if not, it only receives `env`.
    stdin: bytes | int | None = None
    """Its standard input, or a descriptor to read it from, which the supervisor takes over; None: empty."""
    stdout: int | None = None
    """Descriptor for its standard output, which the supervisor takes over. The output in a file, which must be readable
    and opened for appending, is also returned. The caller itself reads the other end of a socket or a pipe.
    """
    timeout_seconds: float | None = None  # Wall-clock limit.
    idle_seconds: float | None = None  # Longest time without output to a file; checked once a second.
    cap_bytes: int = CAP_BYTES  # Size of one output at which the command is ended; checked once a second.
    contained: bool = False
    """Whether it gets a namespace of its own if the system allows that, which takes a few milliseconds more."""
    agent_session_id: str | None = None  # Conversation of an agent to which it belongs.
    on_output: Callable[[int, bytes, int], None] | None = None
    """Called about once a second with output that it writes to a file while it runs: 1 for standard output or 2 for
    standard error, a part of the output, and how many bytes before that were omitted.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A command that has not ended."""

    run_id: str  # Run that it belongs to.
    agent_session_id: str | None  # Conversation of an agent to which it belongs.
    program: str  # Its program, without the arguments, because these may contain secrets.
    pid: int | None  # Its first process; None if it has not been started yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One of the two outputs of a command."""

    content: bytes = b""
    """Its content up to a limit: the beginning of standard output, the end of standard error."""
    size_bytes: int = 0  # Its whole size.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended, with none of its processes left."""

    pid: int  # Its first process; in a namespace, the init process.
    exit_code: int | None  # Exit code; None if a signal ended it.
    signal: int | None  # Signal that ended it; None if it exited.
    cause: launcher_protocol.Cause  # Why the supervisor ended it; empty if it ended by itself.
    stdout: Output  # Standard output.
    stderr: Output  # Standard error.
    leftovers: int  # Processes that it left running, and that were ended after it.
    survivors: int  # Processes that even SIGKILL did not end within five seconds.
    cpu_seconds: float  # Processor time of the command and its children.
    peak_bytes: int  # Most memory used by one of its processes.
    containment: str = "guard"  # How it was contained: `guard`, `namespace`, `user_namespace`.
