"""Inventory: the tools and agents that recipes can name, and the activity of each agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.domain import library, operations, plain, states, views
from app.engine import run_engine, stores
from app.services import workspaces

_IDLE: dict[str, Any] = {"state": "idle", "run": None, "key": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentListed(library.Agent):
    """An agent with its activity."""

    state: Literal["executing", "processing", "idle"]
    """`executing`: tools run for the agent; `processing`: it works on a prompt without tools."""
    run: str | None  # Run that it works in.
    key: str | None  # Step that it works in.
    fault: str | None  # Why its backend cannot be used here, and what to install; None: it can be used.


class Inventory:
    """Shows tools and agents."""

    def __init__(
        self,
        *,
        library: Callable[[], library.Library],
        backend_fault: Callable[[str, str | None], str | None],
        files: Callable[[str | None, str], workspaces.FilesListed],
        store: stores.RunStore,
        engine: run_engine.RunEngine,
    ) -> None:
        self._library = library
        self._backend_fault = backend_fault
        self._files = files
        self._store = store
        self._engine = engine

    def tools(self) -> list[dict[str, plain.Json]]:
        """Return every tool with the JSON Schema of its arguments, by name."""
        return [tool.to_json() for _, tool in sorted(self._library().tools.items())]

    async def files(self, working_dir: str | None, text: str) -> workspaces.FilesListed:
        """Return files that arguments can name.

        Raises:
            errors.RequestInvalid: `working_dir_refused` or `working_dir_missing`.
        """
        return await asyncio.to_thread(self._files, working_dir, text)

    async def agents(self) -> list[dict[str, plain.Json]]:
        """Return every agent with its state, its run and step, and the reason if its backend is unusable."""
        working = await self._working()
        return await asyncio.to_thread(self._listed, working)

    def _listed(self, working: Mapping[str, dict[str, Any]]) -> list[dict[str, plain.Json]]:
        agents = self._library().agents
        asked = {agent.id: (agent.backend, agent.model or library.USUAL_MODEL) for agent in agents}
        faults = {each: self._backend_fault(*each) for each in {*asked.values()}}
        return [
            AgentListed(**agent.to_json(), **working.get(agent.id, _IDLE), fault=faults[asked[agent.id]]).to_json()
            for agent in agents
        ]

    async def _working(self) -> dict[str, dict[str, Any]]:
        working: dict[str, dict[str, Any]] = {}
        async for row in stores.every_run(self._store, stores.RunQuery(status=states.RunState.RUNNING)):
            shown = self._engine.view(row.run_id) or self._engine.standing(row.run_id)
            for step in shown.open if shown else ():
                for agent_id, state in _acting(step, shown):
                    working.setdefault(agent_id, {"state": state, "run": row.run_id, "key": step.key})
        return working


def _acting(step: views.OpenStep, shown: views.RunView | run_engine.Standing | None) -> Iterator[tuple[str, str]]:
    agent_id = step.facts.get("agent_id")
    if isinstance(agent_id, str):
        yield agent_id, "executing" if step.tools else "processing"
    elif step.kind == operations.ToolCall.kind and isinstance(shown, views.RunView):
        # In phase 1 of a conference the service calls tools for the chief; a pipeline's tools belong to no agent.
        chief = shown.start.frozen.get("chief")
        if isinstance(chief, dict):
            yield chief["id"], "executing"
