"""Turns with an agent of the Agent Client Protocol: its words, actions, requests and permissions."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from app import errors, printable
from app.agents.programs import program
from app.domain import json_text, plain, records
from app.engine import agent_ports

if TYPE_CHECKING:
    import acp
    from acp import schema

MAX_TEXT_CHARACTERS = 16 * 1024 * 1024  # Longest reply.

_HARMLESS_KINDS = frozenset({"think", "switch_mode"})
_BEGUN = frozenset({"in_progress", "completed"})
# OpenCode reports the tokens of the last request as those of the turn; a turn with tools has several requests.
_LAST_REQUEST_ONLY = "opencode"
# Copilot writes these notices between the agent's words, each in one piece.
_NOTICE = re.compile(
    r"Info: (Disabled tools: |Unknown tool name in the tool |Request failed due to a transient API error)"
)


class Turn:
    """The messages received in one turn."""

    def __init__(self, *, tools: bool) -> None:
        self._tools = tools
        self.cost_so_far: float | None = None  # Price of the whole conversation; None if the agent reports none.
        self.alarm: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the agent uses a tool although it must not use any; the result names the tool."""
        self.begin()

    def begin(self, hear: Callable[[str], None] = agent_ports.unheard) -> None:
        """Discard all updates before the prompt: an agent that loads a conversation repeats all of it.

        Args:
            hear: Takes in what the agent writes and does from now on.
        """
        self._hear = hear
        self._before = ""
        self._now = list[str]()
        self._size = 0
        self._tools_called: dict[str, Mapping[str, Any]] = {}
        self._tokens = program.Tally()
        self.called = 0  # Number of its tool calls.
        self.too_long = False  # Whether the text is too long to store.
        # Price of the conversation before this turn in US dollars, if the agent reported it at the opening.
        self.cost_before, self.cost_so_far = self.cost_so_far, None

    def feed(self, _: str, update: Mapping[str, Any]) -> None:
        """Take in an update of the session."""
        # Thoughts and the output of tools are signs of life, too.
        self._hear("")
        match update:
            # Qwen Code reports the tokens of each request beside an empty piece of text.
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
                    self._hear(text)
            case {"sessionUpdate": "tool_call", "toolCallId": str(name)}:
                self.called += 1
                self._hear(f"\n[{plain.preview(str(update.get('title') or update.get('kind') or name))}]\n")
                # Text before a tool call is not the reply if text follows the call.
                self._before = self.text()
                self._now = []
                self._size = 0
                self._judge(name, update)
            case {"sessionUpdate": "tool_call_update", "toolCallId": str(name)}:
                self._judge(name, update)
            case {
                "sessionUpdate": "usage_update",
                "cost": {"amount": int() | float() as amount, "currency": "USD"},
            } if 0 <= amount < math.inf:
                self.cost_so_far = float(amount)

    def text(self) -> str:
        """Return the last uninterrupted text."""
        return json_text.joined(self._now).strip() or self._before

    def usage(self, response: schema.PromptResponse | None, known_as: str = "") -> records.Usage | None:
        """Return the tokens of the turn, as far as the agent reports them."""
        reported = self._tokens.usage()
        if response is None or (self.called and _LAST_REQUEST_ONLY in known_as):
            return reported
        tokens = _quota(response.field_meta) if response.usage is None else _tokens(response.usage)
        return reported if tokens is None else records.Usage(input_tokens=tokens[0], output_tokens=tokens[1])

    def _judge(self, name: str, update: Mapping[str, Any]) -> None:
        # Not every agent asks before it acts, and a refusal stops only one that asks. So its reports are watched as
        # well; the alarm ends its turn.
        if self._tools:
            return
        # An update contains only the fields that have changed.
        reported = self._tools_called[name] = {**self._tools_called.get(name, {}), **update}
        acts = reported.get("status") in _BEGUN and reported.get("kind") not in _HARMLESS_KINDS
        if acts and not self.alarm.done():
            self.alarm.set_result(plain.preview(str(reported.get("title") or reported.get("kind"))))


class Person:
    """Answer requests for permission: always allow an agent that may use tools, never one that may not."""

    def __init__(self, *, tools: bool) -> None:
        self._wanted = ("allow_once", "allow_always") if tools else ("reject_once", "reject_always")
        self.asked: list[str] = []  # Permissions that it requested.

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        """Choose the option that applies once; a lasting one would be stored in the user's own settings."""
        from acp import schema

        self.asked.append(plain.preview(tool_call.title or tool_call.tool_call_id))
        # Prefer one-time options, and grant no lasting permission: the next run decides anew.
        for wanted in self._wanted:
            for option in options:
                if option.kind == wanted:
                    chosen = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
                    return schema.RequestPermissionResponse(outcome=chosen)
        # The protocol's refusal if no option refuses.
        return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))


def _tokens(reported: schema.Usage) -> tuple[int, int]:
    """Return tokens read and written; some agents include cached tokens, others list them separately."""
    written = reported.output_tokens + (reported.thought_tokens or 0)
    return max(reported.total_tokens - written, reported.input_tokens), written


def _quota(meta: Mapping[str, Any] | None) -> tuple[int, int] | None:
    match meta:
        case {"quota": {"token_count": {"input_tokens": int(read), "output_tokens": int(written)}}}:
            return max(read, 0), max(written, 0)
    return None


_AUTHENTICATION = -32000
_STATUS = re.compile(rf"\b({'|'.join(map(str, program.STATUS_CODES))})\b")
_WORDS = (
    (re.compile(r"authenticat|unauthori[sz]ed|invalid api key", re.IGNORECASE), "unauthorized"),
    (re.compile(r"rate.?limit|too many requests", re.IGNORECASE), "rate_limited"),
    (re.compile(r"overloaded|service unavailable", re.IGNORECASE), "backend_unavailable"),
)
# Copilot ends a turn normally when its model's service fails, and writes the error where the reply would be.
_DISGUISED = re.compile(r"Error: ")
_OWNER_OF_DISGUISES = "copilot"
_BY_ANYBODY = "Error: Authentication fail"
_DETAIL_CHARACTERS = 500
_MODE_NOTICE = re.compile(r"\A(\[MODE_UPDATE\] \S+\s*)+")


def refused(name: str, error: acp.RequestError) -> records.StepError:
    """Return the step error for an agent's answer with a protocol error."""
    reported = " ".join(f"{error} {_details(error)}".split())[:_DETAIL_CHARACTERS]
    code = "unauthorized" if error.code == _AUTHENTICATION else program.STATUS_CODES.get(error.code) or _code(reported)
    return records.StepError(
        code=code, message=f"The agent {name} refused: {reported}", detail={"rpc_code": error.code, "told": reported}
    )


def reply(name: str, turn: Turn, response: schema.PromptResponse, known_as: str) -> agent_ports.AgentReply:
    """Return the reply of a turn."""
    text = _MODE_NOTICE.sub("", turn.text())
    error = _unfinished(name, turn, response) or _disguised(name, turn, text, known_as)
    finish = records.LENGTH if response.stop_reason == "max_tokens" else None
    return agent_ports.AgentReply(
        text="" if error else text, usage=turn.usage(response, known_as), finish=finish, error=error
    )


def unknown_session(name: str, session_id: str, why: str) -> errors.AgentFailed:
    """Return the error for a conversation that cannot continue."""
    message = printable.sentence(f"The agent {name} cannot continue the conversation {session_id:.80}: {why}")
    return errors.AgentFailed(message, code="unknown_agent_session", detail={"agent_session_id": session_id})


def _unfinished(name: str, turn: Turn, response: schema.PromptResponse) -> records.StepError | None:
    if turn.too_long:
        return records.StepError(code="reply_unreadable", message=f"The agent {name} wrote more than can be stored.")
    match response.stop_reason:
        case "end_turn" | "max_tokens":
            return None
        case "refusal":
            return records.StepError(code="prompt_refused", message=f"The agent {name} refused the prompt.")
    reason = response.stop_reason
    message = f"The agent {name} ended its turn early: {reason}."
    return records.StepError(code="agent_error", message=message, detail={"stop_reason": reason})


def _disguised(name: str, turn: Turn, text: str, known_as: str) -> records.StepError | None:
    pattern = _DISGUISED if _OWNER_OF_DISGUISES in known_as else re.compile(re.escape(_BY_ANYBODY))
    if turn.called or not pattern.match(text):
        return None
    reported = plain.preview(text)
    return records.StepError(
        code=_code(reported), message=f"The agent {name} failed: {reported}", detail={"told": reported}
    )


def _code(reported: str) -> str:
    if (status := _STATUS.search(reported)) is not None:
        return program.STATUS_CODES[int(status[1])]
    return next((code for words, code in _WORDS if words.search(reported)), "agent_error")


def _details(error: acp.RequestError) -> str:
    match error.data:
        case {"details": str(details)} | {"message": str(details)} | str(details):
            return details
        case None:
            return ""
    return plain.preview(plain.plain(error.data))
