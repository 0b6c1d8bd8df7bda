"""Verdicts about turns with agents of the Agent Client Protocol, whose own word for success does
not always mean one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from app import errors
from app.agents.servers import acp_turns
from app.domain import plain, records
from app.engine import ports

if TYPE_CHECKING:
    import acp
    from acp import schema

_AUTHENTICATION = -32000
_CODES = {401: "unauthorized", 403: "unauthorized", 413: "prompt_too_large", 429: "rate_limited"}
_STATUS = re.compile(r"\b(401|403|413|429)\b")
_WORDS = (
    (re.compile(r"authenticat|unauthori[sz]ed|invalid api key", re.IGNORECASE), "unauthorized"),
    (re.compile(r"rate.?limit|too many requests", re.IGNORECASE), "rate_limited"),
)
# Copilot ends a turn in the usual way when its model's service fails, and says so where a reply would stand.
_DISGUISED = re.compile(r"Error: ")
_OWNER_OF_DISGUISES = "copilot"
_BY_ANYBODY = "Error: Authentication fail"
_MODE_NOTICE = re.compile(r"\A(\[MODE_UPDATE\] \S+\s*)+")


def refused(name: str, error: acp.RequestError) -> records.StepError:
    """Return what it means that an agent answered a request with an error."""
    told = plain.preview(f"{error} {_details(error)}".strip())
    code = "unauthorized" if error.code == _AUTHENTICATION else _CODES.get(error.code) or _code(told)
    return records.StepError(
        code=code, message=f"The agent {name} refused: {told}", detail={"rpc_code": error.code, "told": told}
    )


def reply(name: str, turn: acp_turns.Turn, response: schema.PromptResponse, known_as: str) -> ports.AgentReply:
    """Return what came of a turn.

    Args:
        known_as: The agent's own name for itself.
    """
    text = _MODE_NOTICE.sub("", turn.text())
    error = _unfinished(name, turn, response) or _disguised(name, turn, text, known_as)
    finish = records.LENGTH if response.stop_reason == "max_tokens" else None
    return ports.AgentReply(
        text="" if error else text, usage=turn.usage(response, known_as), finish=finish, error=error
    )


def unknown_session(name: str, session_id: str, why: str) -> errors.AgentFailed:
    """Return what it means that a conversation cannot go on."""
    message = f"The agent {name} cannot go on with the conversation {session_id:.80}: {why}."
    return errors.AgentFailed(message, code="unknown_agent_session", detail={"agent_session_id": session_id})


def _unfinished(name: str, turn: acp_turns.Turn, response: schema.PromptResponse) -> records.StepError | None:
    if turn.too_long:
        return records.StepError(code="reply_unreadable", message=f"The agent {name} said more than can be held.")
    match response.stop_reason:
        case "end_turn" | "max_tokens":
            return None
        case "refusal":
            return records.StepError(code="prompt_refused", message=f"The agent {name} refused the prompt.")
    reason = response.stop_reason
    message = f"The agent {name} ended its turn early: {reason}."
    return records.StepError(code="agent_error", message=message, detail={"stop_reason": reason})


def _disguised(name: str, turn: acp_turns.Turn, text: str, known_as: str) -> records.StepError | None:
    pattern = _DISGUISED if _OWNER_OF_DISGUISES in known_as else re.compile(re.escape(_BY_ANYBODY))
    if turn.called or not pattern.match(text):
        return None
    told = plain.preview(text)
    return records.StepError(code=_code(told), message=f"The agent {name} failed: {told}", detail={"told": told})


def _code(told: str) -> str:
    if (status := _STATUS.search(told)) is not None:
        return _CODES[int(status[1])]
    return next((code for words, code in _WORDS if words.search(told)), "agent_error")


def _details(error: acp.RequestError) -> str:
    match error.data:
        case {"details": str(details)} | {"message": str(details)} | str(details):
            return details
        case None:
            return ""
    return plain.preview(plain.plain(error.data))
