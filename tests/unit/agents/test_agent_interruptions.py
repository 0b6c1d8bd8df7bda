"""Agents that are cut off while the service runs: the performer does not send their prompts again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.agents.backends import Backends
from app.agents.performer import AgentPerformer
from app.domain import operations, records
from app.engine import agent_ports, ports
from app.processes import commands
from tests.unit.agents import around
from tests.unit.calls import Harness


class Breaking(Backends):
    """A backend that loses its launcher a few times before it answers."""

    def __init__(self, losses: int) -> None:
        super().__init__({}, around.surroundings())
        self._losses = losses
        self.attempts: list[int] = []

    def resolve_model(self, tier: str) -> str | None:
        """Return None: the backend has one model."""
        return None

    def get(self, name: str) -> agent_ports.AgentBackend:
        """Return this backend for any name."""
        return self  # type: ignore[return-value]

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Fail with a lost launcher, or answer."""
        self.attempts.append(prompt.attempt)
        if len(self.attempts) <= self._losses:
            raise commands.LauncherLost(detail={"exit_code": -9})
        return agent_ports.AgentReply(text="Dawn at the gate.")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(working_dir=tmp_path)


async def asked(harness: Harness, backends: Breaking, **given: Any) -> records.Result:
    """Perform an agent call."""
    call = operations.AgentCall(agent_id="writer-001", backend="any", prompt=("Write.",), **given)
    return await AgentPerformer(backends, around.conversations()).perform(harness.call(call))


async def test_a_prompt_of_an_interrupted_agent_is_not_repeated(harness: Harness) -> None:
    """A prompt whose agent was cut off is interrupted and not repeated, because the engine decides on a retry."""
    backends = Breaking(losses=2)
    with pytest.raises(ports.Interrupted):
        await asked(harness, backends)

    assert backends.attempts == [1]
