"""
Agents as runs hold them: configured when the run began, and asked as they were then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.engine import operations, plain


def call(
    agent: Mapping[str, Any], prompt: tuple[plain.Json, ...], system: str | None, **more: Any
) -> operations.AgentCall:
    """
    Return what asks an agent that was frozen as `library.Agent.to_json` has it.

    Args:
        system: Standing instruction; nothing is sent where it is empty.
        more: Further fields of the call.
    """
    return operations.AgentCall(
        agent_id=agent["id"],
        archetype=agent["archetype"],
        backend=agent["backend"],
        model=agent["model"],
        prompt=prompt,
        system=system or None,
        **more,
    )
