"""Turns with an agent of the Agent Client Protocol: what it says, does and asks, and what it is allowed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.agents.programs import program
from app.domain import plain, records

if TYPE_CHECKING:
    from acp import schema

MAX_TEXT_CHARACTERS = 16 * 1024 * 1024
"""Longest reply."""

_HARMLESS_KINDS = frozenset({"think", "switch_mode"})
_BEGUN = frozenset({"in_progress", "completed"})
# It tells the tokens of a turn's last request as those of the turn; with tools there are several.
_LAST_REQUEST_ONLY = "opencode"
# Copilot says these where an agent's words stand, each in one piece.
_NOTICE = re.compile(
    r"Info: (Disabled tools: |Unknown tool name in the tool |Request failed due to a transient API error)"
)


class Turn:
    """What has been heard of one turn."""

    def __init__(self, *, tools: bool) -> None:
        self._tools = tools
        self._before = ""
        self._now = list[str]()
        self._size = 0
        self._tools_called: dict[str, Mapping[str, Any]] = {}
        self._tokens = program.Tally()
        self.cost_before: float | None = None
        """Price of the conversation before this turn in US dollars, if the agent told it when it was opened."""
        self.cost_so_far: float | None = None
        """Price of the whole conversation; None where the agent tells none."""
        self.called = 0
        """How often it has called a tool."""
        self.alarm: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done once it uses a tool though it was to use none; its result says which."""
        self.too_long = False
        """Whether it has said more than can be held."""

    def begin(self) -> None:
        """Forget what was heard before the prompt: an agent that loads a conversation tells all of it again."""
        self._before = ""
        self._now = []
        self._size = 0
        self._tools_called = {}
        self.called = 0
        self.too_long = False
        self._tokens = program.Tally()
        self.cost_before = self.cost_so_far
        self.cost_so_far = None

    def take(self, _: str, update: Mapping[str, Any]) -> None:
        """Take in an update of the session."""
        match update:
            # Qwen Code tells the tokens of each of its requests beside an empty piece of text.
            case {"_meta": {"usage": {"inputTokens": int(read), "outputTokens": int(written)}}}:
                self._tokens.add(read, written)
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": str(text)}} if (
                _NOTICE.match(text) is None
            ):
                self._size += len(text)
                self.too_long = self._size > MAX_TEXT_CHARACTERS
                if not self.too_long:
                    self._now.append(text)
            case {"sessionUpdate": "tool_call", "toolCallId": str(name)}:
                self.called += 1
                # What is said before a tool is used is no reply if something follows it.
                self._before = self.text()
                self._now = []
                self._size = 0
                self._judge(name, update)
            case {"sessionUpdate": "tool_call_update", "toolCallId": str(name)}:
                self._judge(name, update)
            case {"sessionUpdate": "usage_update", "cost": {"amount": int() | float() as amount, "currency": "USD"}}:
                self.cost_so_far = float(amount)

    def text(self) -> str:
        """Return the last that was said in one go."""
        return "".join(self._now).strip() or self._before

    def usage(self, response: schema.PromptResponse | None, known_as: str = "") -> records.Usage | None:
        """Return the tokens of the turn, as far as they were told.

        Args:
            known_as: The agent's own name for itself, in small letters.
        """
        told = self._tokens.usage()
        if response is None or (self.called and _LAST_REQUEST_ONLY in known_as):
            return told
        tokens = _quota(response.field_meta) if response.usage is None else _tokens(response.usage)
        return told if tokens is None else records.Usage(input_tokens=tokens[0], output_tokens=tokens[1])

    def _judge(self, name: str, update: Mapping[str, Any]) -> None:
        if self._tools:
            return
        told = self._tools_called[name] = {**self._tools_called.get(name, {}), **update}
        acts = told.get("status") in _BEGUN and told.get("kind") not in _HARMLESS_KINDS
        if acts and not self.alarm.done():
            self.alarm.set_result(plain.preview(str(told.get("title") or told.get("kind"))))


class Person:
    """The one whom an agent asks for permission: always allowed where it may use tools, and never where it may not."""

    def __init__(self, *, tools: bool) -> None:
        self._wanted = ("allow_once", "allow_always") if tools else ("reject_once", "reject_always")
        self.asked: list[str] = []
        """What it asked for."""

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        """Choose the option that holds for this once; a lasting one would be kept in the user's own settings."""
        from acp import schema

        self.asked.append(plain.preview(tool_call.title or tool_call.tool_call_id))
        for wanted in self._wanted:
            for option in options:
                if option.kind == wanted:
                    chosen = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
                    return schema.RequestPermissionResponse(outcome=chosen)
        return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))


def _tokens(told: schema.Usage) -> tuple[int, int]:
    """Return what was read and written; some agents count what came from a cache among what was
    read, others beside it.
    """
    written = told.output_tokens + (told.thought_tokens or 0)
    return max(told.total_tokens - written, told.input_tokens), written


def _quota(meta: Mapping[str, Any] | None) -> tuple[int, int] | None:
    match meta:
        case {"quota": {"token_count": {"input_tokens": int(read), "output_tokens": int(written)}}}:
            return max(read, 0), max(written, 0)
    return None
