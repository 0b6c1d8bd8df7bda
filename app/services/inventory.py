"""Inventory: the tools and agents that recipes can name, and what each agent is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.domain import library, operations, plain, states, views
from app.engine import run_engine, stores

_IDLE: dict[str, plain.Json] = {"state": "idle", "run": None, "key": None}


class Inventory:
    """Show tools and agents."""

    def __init__(
        self, *, library: Callable[[], library.Library], store: stores.RunStore, engine: run_engine.RunEngine
    ) -> None:
        self._library = library
        self._store = store
        self._engine = engine

    def tools(self) -> list[dict[str, plain.Json]]:
        """Return every tool with the JSON Schema of its arguments, by name."""
        tools = self._library().tools
        return [
            {"name": tool.name, "description": tool.description, "args_schema": plain.plain(tool.args_schema)}
            for _, tool in sorted(tools.items())
        ]

    async def agents(self) -> list[dict[str, plain.Json]]:
        """Return every agent with its state: `executing`, `processing` or `idle`, and the run and step that it works
        in.
        """
        working = await self._working()
        return [agent.to_json() | working.get(agent.id, _IDLE) for agent in self._library().agents]

    async def _working(self) -> dict[str, dict[str, plain.Json]]:
        working: dict[str, dict[str, plain.Json]] = {}
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
        # In phase 1 of a conference the service calls tools for the chief; a pipeline's tools are nobody's.
        chief = shown.start.frozen.get("chief")
        if isinstance(chief, dict):
            yield chief["id"], "executing"
