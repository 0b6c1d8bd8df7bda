"""Tool policy: prevents an agent of the Agent Client Protocol from using tools, or lets it use them without asking.

The protocol has no message for either. Agents ask permission only for what they consider risky, and their users'
settings may allow anything. So each known agent has its own hold, and an agent without one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.agents import programs

UNASKED_MODES = ("bypassPermissions", "agent-full-access", "full-access", "yolo")
"""Modes in which agents use their tools without asking; the first that an agent offers is taken."""

_POLICY = Path(programs.__file__).with_name("gemini_without_tools.toml")

_SPEAKER = "control-room-speaker"

_SPEAKER_WITHOUT_TOOLS = {"agent": {_SPEAKER: {"mode": "primary", "permission": {"*": "deny"}, "tools": {"*": False}}}}

_QWEN_TOOLS = (
    "agent,ask_user_question,cron_create,cron_delete,cron_list,enter_plan_mode,enter_worktree,exit_plan_mode,"
    "exit_worktree,get_goal,list_agents,loop_wakeup,record_artifact,report_findings,send_message,skill,task_stop,"
    "tool_call,tool_search,update_goal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """How one agent is prevented from using tools."""

    name: str  # Text that is in its command and in its own name.
    arguments: tuple[str, ...] = ()  # Arguments after its command.
    env: Mapping[str, str] = field(default_factory=dict)  # Environment variables that it gets.
    meta: Mapping[str, Any] = field(default_factory=dict)  # Extra fields of the request that opens a conversation.
    mode: str | None = None  # Mode that it is set to; None: its initial one.


HOLDS = (
    Hold(name="claude", meta={"disableBuiltInTools": True, "claudeCode": {"options": {"tools": []}}}, mode="default"),
    Hold(
        name="gemini",
        arguments=("--approval-mode=default", f"--admin-policy={_POLICY}", "--allowed-mcp-server-names=none"),
        mode="default",
    ),
    Hold(name="opencode", env={"OPENCODE_CONFIG_CONTENT": json.dumps(_SPEAKER_WITHOUT_TOOLS)}, mode=_SPEAKER),
    Hold(name="copilot", arguments=("--available-tools=none", "--disable-builtin-mcps")),
    Hold(
        name="qwen",
        # An empty list of core tools still allows the tools outside the core, so those are excluded by name.
        arguments=(
            *("--core-tools", "none", "--exclude-tools", _QWEN_TOOLS),
            *("--allowed-mcp-server-names", "none", "--approval-mode", "default"),
        ),
        mode="default",
    ),
)
"""Every agent that can be prevented from using tools."""


def of(command: Sequence[str]) -> Hold | None:
    """Return the hold for the agent that a command starts; None if none is known."""
    return next((hold for hold in HOLDS if any(hold.name in word.lower() for word in command)), None)


def unasked(offered: Iterable[str]) -> str | None:
    """Return the mode in which an agent uses its tools without asking; None if it offers none."""
    known = set(offered)
    return next((mode for mode in UNASKED_MODES if mode in known), None)
