"""Input of a conference: its configuration, which is the recipe's document, and its message."""

from __future__ import annotations

from app.domain import plain

NAME = "conference"
"""Name of the driver and of its only recipe; also the mode in which agents take part, and the kind of its issues."""

CHIEF = "chief"  # Archetype of the agent that gathers the evidence.
MESSAGE_CHARACTERS = 20_000  # Longest message.
MOST_AGENTS = 20  # Most participants.

USUAL_TOOL_CALLS, MOST_TOOL_CALLS = 5, 20
"""Most tool calls of the chief: the default, and the highest that a request may set."""

USUAL_EVIDENCE_CHARACTERS = 16_000
"""Characters of all tool payloads in a prompt. Together with the list of the tools and a reply, this is
about what the local model can hold.
"""

_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}}

DOCUMENT: plain.Object = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Conference",
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "agents", "allowed_tools", "require_tool", "max_tool_calls", "evidence_characters"],
    "properties": {
        "id": {"const": NAME, "description": "There is one recipe of this kind."},
        "agents": _NAMES | {"description": "Ids of the agents that are asked."},
        "allowed_tools": _NAMES | {"type": ["array", "null"], "description": "Tools; null: all, empty: none."},
        "require_tool": {"type": "boolean", "description": "Whether at least one tool call must bring something."},
        "max_tool_calls": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_TOOL_CALLS,
            "description": "Calls that the chief may make, refused ones included.",
        },
        "evidence_characters": {
            "type": "integer",
            "minimum": 1_000,
            "maximum": 1_000_000,
            "description": "Characters of payloads that a prompt shows.",
        },
    },
}
"""JSON Schema of the recipe's document."""

ARGS: plain.Object = {
    "type": "object",
    "additionalProperties": False,
    "required": ["message"],
    "properties": {
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": MESSAGE_CHARACTERS,
            "pattern": r"\S",
            "description": "What the conference is asked.",
        }
    },
}
"""JSON Schema of the arguments."""
