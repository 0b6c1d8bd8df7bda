"""What `agents.json` says, as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from app import clock, errors
from app.domain import agent_sessions, library, plain
from app.engine import ports
from app.processes import commands

T = TypeVar("T")

TIERS = ("haiku", "sonnet", "opus")  # Names for a small, a medium and a large model of any backend.


Part = str | tuple[str, ...]
"""An argument, or several that are left out together where one of their placeholders has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Where the replies of another backend are kept."""

    backend: str  # Name of the backend that is asked.
    file: Path  # File that its replies are appended to, one JSON object a line.


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """A configured way to reach agents."""

    name: str  # Name that agents refer to.
    type: str  # Kind of backend; a key of `backends.TYPES`.
    command: tuple[Part, ...] = ()  # Program and leading arguments, for backends that are programs; empty: searched.
    resume: tuple[Part, ...] = ()  # The same for a continued conversation, for programs called by a template.
    arguments: tuple[str, ...] = ()  # Further arguments of a program.
    allowed_tools: tuple[str, ...] = ()  # Tools that a program may use unasked, in place of all of them.
    tools_on: tuple[str, ...] = ()  # Arguments of a template that let the program use its tools unasked.
    tools_off: tuple[str, ...] | None = None  # Arguments of a template that forbid them; None: there are none.
    reply: Mapping[str, str] | None = None  # Dotted paths into a program's JSON; None: its output is the reply.
    idle_seconds: float | None = None  # Longest silence of one prompt; None: no limit.
    max_cost_per_call: float | None = None  # Most that a prompt may cost, in US dollars; None: not known.
    max_per_minute: int | None = None  # Prompts to one model that begin within a minute; None: no limit.
    max_parallel: int | None = None  # Prompts to one model at the same time; None: no limit.
    base_url: str | None = None  # Address of the service, for backends that are one.
    api_key_env: str | None = None  # Environment variable that holds the key; the key itself is never written down.
    secrets: tuple[str, ...] = ()  # Further secret variables that the program gets; patterns.
    models: Mapping[str, str] = field(default_factory=dict)  # Model of the backend for haiku, sonnet and opus.
    file: Path | None = None  # File of replies, for a scripted backend.
    record: Recording | None = None  # Backend to record, for a scripted backend.


def with_idle(config: BackendConfig, prompt: ports.AgentPrompt) -> BackendConfig:
    """Return a backend with the limit of silence of a prompt that sets one."""
    return config if prompt.idle_seconds is None else dataclasses.replace(config, idle_seconds=prompt.idle_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenFile:
    """A file that was left out, and why."""

    path: Path  # The file.
    flaws: tuple[errors.Flaw, ...]  # Everything found wrong with it.
    foreign: bool = False  # Whether it was written for another program, so that nothing is kept from starting by it.
    errno: str | None = None  # Error of the system where the file could not be read, e.g. `EIO`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All agents and backends of a project."""

    agents: tuple[library.Agent, ...] = ()  # Agents, those of the project first; the first of an archetype is used.
    backends: Mapping[str, BackendConfig] = field(default_factory=dict)  # Backends by name.
    broken: tuple[BrokenFile, ...] = ()  # Files that were left out.
    default_backend: str | None = None  # The project's backend of agents and recipes that name none; None: not set.

    @property
    def secret_variables(self) -> frozenset[str]:
        """Return the environment variables whose values must never be shown."""
        return frozenset(config.api_key_env for config in self.backends.values() if config.api_key_env)

    @property
    def secret_patterns(self) -> frozenset[str]:
        """Return patterns of further variables that backends name as secrets."""
        return frozenset(pattern for config in self.backends.values() for pattern in config.secrets)


class Supervisor(Protocol):
    """Runs programs."""

    async def run(self, request: commands.Request) -> commands.Ended:
        """Run a program to its end; a cancellation ends it first, with everything it has started."""

    def withheld_from(self, request: commands.Request) -> frozenset[str]:
        """Return the names of the secret variables of this process that a program does not get."""


def _no_other(name: str) -> ports.AgentBackend:
    raise errors.AgentFailed(f"There is no backend {name!r:.80}.", code="unknown_backend", detail={"backend": name})


def _unlimited(_backend: str, _model: str | None, _seconds: float) -> None:
    pass


class PauseFile(Protocol):
    """The file that keeps pauses; its methods wait for the disk."""

    def read(self) -> Any:
        """Return its document; None if there is no file."""

    def write(self, document: plain.Json) -> None:
        """Replace its document."""

    def signature(self) -> tuple[int, ...] | None:
        """Return what differs whenever it has changed; None if there is none."""

    def renew(self) -> None:
        """Make sure that what is read next is what other processes have written last."""


class RateStore(Protocol):
    """What several processes know of each other's prompts."""

    @property
    def process(self) -> str:
        """Return the name of this process among them."""

    async def change(self, decide: Callable[[Any, float], tuple[plain.Json, T]]) -> T:
        """Replace the document, None: leave it, by its present state and the time; `Unavailable` if that cannot be."""

    async def alone(self, job: Callable[[], T]) -> T:
        """Do a job on a thread while no other process does one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """What a backend is made with beside its configuration."""

    clock: clock.Clock  # Time.
    supervisor: Supervisor  # Runs programs, and ends them with all that they have started.
    sessions: agent_sessions.AgentSessions  # Records of conversations.
    environ: Mapping[str, str]  # Environment of this process.
    secrets: Sequence[str] = ()  # Secret variables that every program gets beside its own keys; patterns.
    home: Path  # Home folder of the user of this process; it holds programs and their settings.
    get: Callable[[str], ports.AgentBackend] = _no_other  # Another backend, by its name.
    pauses: PauseFile | None = None  # Keeps the pauses that services ask for.
    rates: RateStore | None = None  # Counts prompts over all processes; None: only those of this one are limited.
    limited: Callable[[str, str | None, float], None] = _unlimited  # Told of a 429: backend, model, seconds to wait.
