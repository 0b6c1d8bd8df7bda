"""Prompts as backends receive them."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from app.engine import agent_ports

SLOW = "Count from one to ten thousand, in words. " * 150
"""A prompt that keeps a small model busy for many seconds."""


def prompt(text: str = "Say hello to Kael.", **given: Any) -> agent_ports.AgentPrompt:
    """Return a prompt, with usual values for fields that are not given."""
    usual: dict[str, Any] = {
        "text": text,
        "system": None,
        "model": None,
        "tools": False,
        "working_dir": PurePath("/nowhere"),
        "agent_session_id": None,
        "session_created": False,
        "reply_schema": None,
        "max_tokens": 12,
        "timeout_seconds": None,
        "run_id": "20260210T143000Z-abc123",
        "key": "brief",
        "attempt": 1,
    }
    return agent_ports.AgentPrompt(**(usual | given))
