"""
Agents that are cut off while the service goes on: they are asked again, or not, as their operation says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.agents.backends import Backends
from app.agents.performer import AgentPerformer
from app.engine import operations, ports, records, states, stepping
from app.processes import commands
from tests.unit.agents import around
from tests.unit.calls import Desk


class Breaking(Backends):
    """
    Backends whose only one loses its launcher a few times before it answers.
    """

    def __init__(self, losses: int) -> None:
        super().__init__({}, around.surroundings())
        self._losses = losses
        self.attempts: list[int] = []

    def get(self, name: str) -> ports.AgentBackend:
        """
        Return it, whatever its name.
        """
        return self  # type: ignore[return-value]

    async def prompt(self, prompt: ports.AgentPrompt) -> ports.AgentReply:
        """
        Be cut off, or answer.
        """
        self.attempts.append(prompt.attempt)
        if len(self.attempts) <= self._losses:
            raise commands.LauncherLost(detail={"exit_code": -9})
        return ports.AgentReply(text="Dawn at the gate.")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(working_dir=tmp_path)


async def asked(desk: Desk, backends: Breaking, **given: Any) -> records.Result:
    """
    Perform a call.
    """
    call = operations.AgentCall(agent_id="writer-001", backend="any", prompt=("Write.",), **given)
    return await AgentPerformer(backends, around.conversations()).perform(desk.call(call))


async def test_an_agent_that_was_cut_off_is_asked_again(desk: Desk) -> None:
    """The prompt goes out anew, told as a further attempt, since it may have arrived."""
    backends = Breaking(losses=2)
    result = await asked(desk, backends)

    assert (result.status, result.output) == (states.StepState.DONE, "Dawn at the gate.")
    assert backends.attempts == [1, 2, 3]


async def test_an_agent_that_must_not_be_asked_again_fails(desk: Desk) -> None:
    """`fail` makes a failed step of it."""
    backends = Breaking(losses=1)
    result = await asked(desk, backends, on_interrupted="fail")

    assert result.error is not None
    assert (result.error.code, backends.attempts) == ("interrupted", [1])


@pytest.mark.parametrize(
    ("on_interrupted", "reason", "times"), [("ask", "step_interrupted", 1), ("rerun", "crash_loop", 3)]
)
async def test_a_person_is_asked(desk: Desk, on_interrupted: Any, reason: str, times: int) -> None:
    """`ask` parks the run, and so does an agent that is cut off again and again."""
    backends = Breaking(losses=9)
    with pytest.raises(stepping.Parked) as parked:
        await asked(desk, backends, on_interrupted=on_interrupted)

    assert (parked.value.reason, len(backends.attempts)) == (reason, times)
