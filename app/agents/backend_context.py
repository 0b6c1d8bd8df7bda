"""Surroundings: what a backend has around it beside its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app import clock, errors
from app.domain import agent_sessions
from app.engine import ports
from app.processes import commands


class Supervisor(Protocol):
    """Whoever runs programs."""

    async def run(self, request: commands.Request) -> commands.Ended:
        """Run a program to its end; a cancellation ends it first, with everything it has started."""


def _no_other(name: str) -> ports.AgentBackend:
    raise errors.AgentFailed(f"There is no backend {name!r:.80}.", code="unknown_backend", detail={"backend": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """What a backend is made with beside its configuration."""

    clock: clock.Clock  # Time.
    supervisor: Supervisor  # Runs programs, and ends them with all that they have started.
    sessions: agent_sessions.AgentSessions  # What is kept of conversations.
    environ: Mapping[str, str]  # Environment of this process.
    secrets: Sequence[str] = ()  # Secret variables that every program gets beside its own keys; patterns.
    home: Path  # Home folder of whoever runs this process; programs and their settings lie below it.
    get: Callable[[str], ports.AgentBackend] = _no_other  # Another backend, by its name.
