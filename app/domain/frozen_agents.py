"""Frozen agents: agents in a run's start, as they were configured when the run began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.domain import library, operations, plain

MOST_IDLE_SECONDS = 86_400
"""Longest silence that a step can allow; a step that sets none ends by its time limit alone."""

IDLE_FIELDS: Mapping[str, plain.Json] = {
    "idle_seconds": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": MOST_IDLE_SECONDS,
        "description": "Maximum silence of the agent, in seconds; then the step fails with `agent_idle`. Default: "
        "the backend's.",
    },
}
"""Field of a step, by JSON Schema, for the longest silence of its agent."""

LENGTH_FIELDS: Mapping[str, plain.Json] = {
    "max_output_tokens": {
        "type": "integer",
        "minimum": 1,
        "maximum": library.MOST_OUTPUT_TOKENS,
        "description": "Maximum length of the reply, in tokens; by default the agent's, then the backend's.",
    },
    "on_cut_off": {
        "type": "string",
        "enum": ["fail", "keep"],
        "description": "What to do with a reply that reaches the length limit: fail the step (default) or keep "
        "the reply.",
    },
}
"""Fields of a step, by JSON Schema, for the longest reply of its agent."""


def limits(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's settings for the length of the reply and for silence, as fields of the call."""
    names = {"max_output_tokens": "max_tokens", "on_cut_off": "on_cut_off", "idle_seconds": "idle_seconds"}
    return {field: step[name] for name, field in names.items() if name in step}


def call(
    agent: Mapping[str, Any], prompt: tuple[plain.Json, ...], system: str | None, **more: Any
) -> operations.AgentCall:
    """Return the call of an agent that was frozen in the form of `library.Agent.to_json`.

    Args:
        system: System prompt; an empty one is not sent.
        more: Further fields of the call; for the reply's length they take precedence over the agent's settings.
    """
    # Agents that were frozen before these fields existed lack them.
    length = {"max_tokens": agent.get("max_output_tokens"), "on_cut_off": agent.get("on_cut_off", "fail")}
    return operations.AgentCall(
        agent_id=agent["id"],
        archetype=agent["archetype"],
        backend=agent["backend"],
        model=agent["model"],
        prompt=prompt,
        system=system or None,
        **(length | more),
    )
