"""Configuration: the content of `agents.json`, as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from app import clock, errors
from app.domain import agent_sessions, library, plain
from app.engine import agent_ports
from app.processes import commands

T = TypeVar("T")

TIERS = ("haiku", "sonnet", "opus")  # Names for a small, a medium and a large model of any backend.


Part = str | tuple[str, ...]
"""An argument, or several that are left out together if one of their placeholders has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The recording of another backend's replies."""

    backend: str  # Name of the backend that is recorded.
    file: Path  # File that its replies are appended to, one JSON object a line.


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """A configured way to reach agents."""

    name: str  # Name that agents refer to.
    type: str  # Kind of backend; a key of `backends.TYPES`.
    command: tuple[Part, ...] = ()  # Program and leading arguments, for backends that are programs; empty: searched.
    resume: tuple[Part, ...] = ()  # The same for a continued conversation, for programs called by a template.
    arguments: tuple[str, ...] = ()  # Further arguments of a program.
    allowed_tools: tuple[str, ...] = ()  # Tools that a program may use without permission, instead of all tools.
    tools_on: tuple[str, ...] = ()  # Arguments of a template that let the program use its tools without permission.
    tools_off: tuple[str, ...] | None = None  # Arguments of a template that forbid tools; None: the program has none.
    reply: Mapping[str, str] | None = None  # Dotted paths into a program's JSON output; None: the output is the reply.
    idle_seconds: float | None = None  # Longest silence of a prompt; None: no limit.
    max_cost_per_call: float | None = None  # Most that a prompt may cost, in US dollars; None: not known.
    max_per_minute: int | None = None  # Prompts to one model that may begin within a minute; None: no limit.
    max_parallel: int | None = None  # Prompts to one model that may be under way at the same time; None: no limit.
    base_url: str | None = None  # Address of the service, for backends that are services.
    api_key_env: str | None = None  # Environment variable that holds the key; the key itself is never stored.
    secrets: tuple[str, ...] = ()  # Patterns of further secret variables that the program gets.
    models: Mapping[str, str] = field(default_factory=dict)  # The backend's models for haiku, sonnet and opus.
    file: Path | None = None  # File of replies, for a scripted backend.
    record: Recording | None = None  # Backend to record, and the file for its replies, for a scripted backend.


def with_idle(config: BackendConfig, prompt: agent_ports.AgentPrompt) -> BackendConfig:
    """Return a backend with the prompt's limit of silence, if the prompt sets one."""
    return config if prompt.idle_seconds is None else dataclasses.replace(config, idle_seconds=prompt.idle_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenFile:
    """A file that was left out, and why."""

    path: Path  # The file.
    flaws: tuple[errors.Flaw, ...]  # Every flaw that was found in it.
    foreign: bool = False  # Whether it was written for another program; then it does not prevent a start.
    errno: str | None = None  # System error, e.g. `EIO`, if the file could not be read.


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All agents and backends of a project."""

    agents: tuple[library.Agent, ...] = ()  # Agents, those of the project first; the first of an archetype is used.
    backends: Mapping[str, BackendConfig] = field(default_factory=dict)  # Backends by name.
    broken: tuple[BrokenFile, ...] = ()  # Files that were left out.
    default_backend: str | None = None  # The project's backend for agents and recipes that name none; None: not set.

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
        """Run a program to its end; a cancellation first ends the program and all processes that it has started."""

    def withheld_from(self, request: commands.Request) -> frozenset[str]:
        """Return the names of the secret variables of this process that a program does not get."""


def _no_other(name: str) -> agent_ports.AgentBackend:
    raise errors.AgentFailed(f"There is no backend {name!r:.80}.", code="unknown_backend", detail={"backend": name})


def _unlimited(_backend: str, _model: str | None, _seconds: float) -> None:
    pass


class PauseFile(Protocol):
    """The file that stores pauses; its methods block on the disk."""

    def read(self) -> Any:
        """Return the file's document; None if the file does not exist."""

    def write(self, document: plain.Json) -> None:
        """Replace the file's document."""

    def signature(self) -> tuple[int, ...] | None:
        """Return a value that changes with every change of the file; None if the file does not exist."""

    def renew(self) -> None:
        """Make sure that the next read returns what other processes have written last."""


class RateStore(Protocol):
    """The store in which several processes share the state of their prompts."""

    @property
    def process(self) -> str:
        """Return this process's name in the store."""

    async def change(self, decide: Callable[[Any, float], tuple[plain.Json, T]]) -> T:
        """Replace the document by what `decide` makes of it and the time (None: keep it), or raise `Unavailable`."""

    async def alone(self, job: Callable[[], T]) -> T:
        """Do a job on a thread, while no other process does a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """What a backend gets at its creation, besides its configuration."""

    clock: clock.Clock  # Clock.
    supervisor: Supervisor  # Runs programs, and ends them with all processes that they have started.
    sessions: agent_sessions.AgentSessions  # Records of conversations.
    environ: Mapping[str, str]  # Environment of this process.
    secrets: Sequence[str] = ()  # Patterns of secret variables that every program gets, besides its own keys.
    home: Path  # Home folder of the user of this process; it contains programs and their settings.
    get: Callable[[str], agent_ports.AgentBackend] = _no_other  # Return another backend by its name.
    pauses: PauseFile | None = None  # Stores the pauses that services ask for.
    rates: RateStore | None = None  # Counts the prompts of all processes; None: the limits count only this process.
    limited: Callable[[str, str | None, float], None] = _unlimited  # Called for a 429: backend, model, seconds to wait.
