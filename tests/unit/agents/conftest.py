"""Fixtures for agents' programs: the real supervisor, a workspace and conversations in memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app import clock, settings
from app.agents import backends
from app.agents.configuration import BackendConfig
from app.engine import agent_ports
from app.processes import supervisor
from app.storage.agent_sessions import MemoryAgentSessions
from tests.unit.agents import around

Speaking = Callable[..., agent_ports.AgentBackend]


@pytest.fixture
def sessions() -> MemoryAgentSessions:
    return MemoryAgentSessions()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "novel").mkdir()
    return tmp_path / "novel"


@pytest.fixture
async def speaking(tmp_path: Path, sessions: MemoryAgentSessions) -> AsyncIterator[Speaking]:
    started: list[supervisor.Supervisor] = []

    def make(type_name: str, *, environ: Mapping[str, str] | None = None, **given: Any) -> agent_ports.AgentBackend:
        environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "IS_SANDBOX": "1", **(environ or {})}
        secrets = [*settings.SECRET_NAMES, *backends.key_variables()]
        started.append(supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), environ, secrets=secrets))
        place = around.surroundings(running=started[-1], sessions=sessions, environ=environ, home=tmp_path)
        return backends.Backends({"one": BackendConfig(name="one", type=type_name, **given)}, place).get("one")

    yield make
    for each in started:
        await each.close()
