"""Capabilities: what a worker must be able to do to perform a step, and which steps call agents."""

from __future__ import annotations

from collections.abc import Collection

from app.domain import operations

TOOLS = "tools"  # Capability of every step that is neither a command nor a prompt.

COMMANDS = "commands"  # Capability of commands.


def of_backend(name: str) -> str:
    """Return the capability needed for prompts to a backend."""
    return f"backend:{name}"


def needed(operation: operations.Operation) -> str:
    """Return the capability that a step needs."""
    match operation:
        case operations.AgentCall():
            return of_backend(operation.backend)
        case operations.Command():
            return COMMANDS
        case _:
            return TOOLS


def calls_agent(operation: operations.Operation) -> bool:
    """Return whether an operation is a call of an agent, which limits and budgets count."""
    match operation:
        case operations.AgentCall():
            return True
        case operations.Command():
            return operation.provider is not None
        case _:
            return False


def is_anywhere(operation: operations.Operation, services: Collection[str]) -> bool:
    """Return whether a step needs neither a workspace nor the record of a conversation.

    Args:
        services: Backends that are models behind HTTP.
    """
    if not isinstance(operation, operations.AgentCall):
        return False
    return operation.backend in services and operation.agent_session_id is None
