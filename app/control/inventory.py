"""
Inventory: the tools and agents that recipes can name, and what each agent is at.
"""

from __future__ import annotations

from collections.abc import Callable

from app.engine import library, plain, pool_port, states, stores


class Inventory:
    """
    Show tools and agents.
    """

    def __init__(
        self, *, library: Callable[[], library.Library], store: stores.RunStore, engine: pool_port.RunEngine
    ) -> None:
        self._library = library
        self._store = store
        self._engine = engine

    def tools(self) -> list[dict[str, plain.Json]]:
        """
        Return every tool with the JSON Schema of its arguments, by name.
        """
        tools = self._library().tools
        return [
            {"name": tool.name, "description": tool.description, "args_schema": plain.plain(tool.args_schema)}
            for _, tool in sorted(tools.items())
        ]

    async def agents(self) -> list[dict[str, plain.Json]]:
        """
        Return every agent; a busy one with the run and step that it speaks in.
        """
        speaking = await self._speaking()
        return [agent.to_json() | _activity(speaking.get(agent.id)) for agent in self._library().agents]

    async def _speaking(self) -> dict[str, tuple[str, str]]:
        speaking: dict[str, tuple[str, str]] = {}
        async for row in stores.every_run(self._store, stores.RunQuery(status=states.RunState.RUNNING)):
            shown = self._engine.view(row.run_id) or self._engine.standing(row.run_id)
            for step in shown.open if shown else ():
                agent_id = step.facts.get("agent_id")
                if isinstance(agent_id, str):
                    speaking.setdefault(agent_id, (row.run_id, step.key))
        return speaking


def _activity(speaking: tuple[str, str] | None) -> dict[str, plain.Json]:
    run_id, key = speaking or (None, None)
    return {"state": "busy" if speaking else "idle", "run": run_id, "key": key}
