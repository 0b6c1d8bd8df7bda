"""A plain prompt to a scripted agent: the real driver and the real runner."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from app import clock
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig
from app.agents.performer import AgentPerformer
from app.domain import plain
from app.domain.states import RunState
from app.engine import probes, runner
from app.engine.run_equipment import Equipment
from app.flows import prompt
from app.flows.registry import DRIVERS
from tests.unit.agents import around
from tests.unit.engine import logs, samples

ARGS = {"text": "Hello?", "backend": "script", "agent_session_id": "conv-1", "session_created": False}


class Prompted:
    """One prompt."""

    def __init__(self, folder: Path, reply: Any, **args: Any) -> None:
        script = folder / "script.json"
        script.write_text(json.dumps({prompt.NAME: reply}), encoding="utf-8")
        given: dict[str, Any] = {"recipe_id": prompt.NAME, "recipe": {"id": prompt.NAME}, "args": ARGS | args}
        self.disk = logs.Disk(samples.start(dialect=prompt.NAME, frozen={}, **given))
        config = BackendConfig(name="script", type="scripted", file=script)
        self._backends = Backends({"script": config}, around.surroundings())

    async def run(self) -> RunState:
        """Send the prompt, and continue until the run rests."""
        equipment = Equipment(
            performers={"agent_call": AgentPerformer(self._backends, around.conversations())},
            clock=clock.FakeClock(),
            masker=plain.Masker(),
            probes=probes.NoProbes(),
        )
        log: Any = logs.ListLog(self.disk)
        spoken = runner.Runner(log, DRIVERS[prompt.NAME], equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(spoken.run(), 60)
        return state
