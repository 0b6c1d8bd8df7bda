"""Counting: the usage of one turn, if a backend reports the sums of the whole conversation."""

# Added up over 20 equal steps, sums of the whole conversation are ten times the real price. The conversation's file
# holds two sums: those that journals account for (`counted`), and the last ones reported with their run, step and
# attempt (`told`). The next turn starts from `told`, unless that attempt left no journal line; then it starts from
# `counted` and pays for both. A first turn in a conversation begun elsewhere has no start: it is null.

from __future__ import annotations

import dataclasses
from typing import Any

from app.domain import agent_sessions, records
from app.engine import agent_ports

UNTOLD = records.Usage(input_tokens=None, output_tokens=None)  # Usage if the backend reported none.

_TOKENS = ("input_tokens", "output_tokens")
_FIELDS = (*_TOKENS, "cost_usd")
# Prices are sums of floats: smaller differences are noise.
_DECIMALS = 12


def counted(
    reply: agent_ports.AgentReply,
    sums: records.Usage | None,
    before: records.Usage | None,
    covers: int | None = None,
) -> agent_ports.AgentReply:
    """Return a reply with the usage of its turn.

    Args:
        sums: Reported sums of the whole conversation; None: the backend reported none.
        before: The sums that journals account for; None: unknown.
        covers: Earlier try whose usage the backend reported, though no journal accounts for it.
    """
    # A program that reports no sums of the conversation has reported the usage of the turn.
    if sums is None:
        return reply
    reported = reply.usage or UNTOLD
    # If the program began the conversation anew, its sums start at zero again.
    if before is not None and _counts_anew(reported, sums, before):
        before, covers = agent_sessions.NOTHING_SPENT, None
    usage = records.Usage(**{name: _difference(name, reported, sums, before) for name in _FIELDS})
    return dataclasses.replace(reply, usage=None if usage == UNTOLD else usage, covers=covers)


def kept(
    session: agent_sessions.AgentSession,
    prompt: agent_ports.AgentPrompt,
    sums: records.Usage | None,
    before: records.Usage | None,
) -> agent_sessions.AgentSession:
    """Return a conversation with the sums reported after a turn."""
    if sums is None:
        return session
    now = {name: _amount(sums, name) for name in _FIELDS}
    usage = records.Usage(
        **{name: _amount(before, name) if reported is None else reported for name, reported in now.items()}
    )
    reported = agent_sessions.ReportedUsage(
        usage=usage, run_id=prompt.run_id, key=prompt.key, attempt=prompt.line_attempt
    )
    return dataclasses.replace(session, counted=before, told=reported)


def before(session: agent_sessions.AgentSession | None, prompt: agent_ports.AgentPrompt) -> records.Usage | None:
    """Return the sums that journals account for before this prompt; None: unknown."""
    return None if session is None else session.spent(prompt.run_id, prompt.key, prompt.recorded)


def left_out(session: agent_sessions.AgentSession | None, prompt: agent_ports.AgentPrompt) -> int | None:
    """Return the earlier attempt at a prompt's step that reported sums but left no line; None if none did."""
    last = None if session is None else session.told
    if last is None or (last.run_id, last.key) != (prompt.run_id, prompt.key) or last.attempt in prompt.recorded:
        return None
    return last.attempt if last.attempt < prompt.line_attempt else None


def _counts_anew(reported: records.Usage, sums: records.Usage, before: records.Usage) -> bool:
    for name in _FIELDS:
        now, then = _amount(sums, name), _amount(before, name)
        if now is None or then is None:
            continue
        least = _amount(reported, name) or 0 if name in _TOKENS else 0
        # Sums that grew by less than the usage of this turn do not continue the earlier ones.
        if now - then < least:
            return True
    return False


def _difference(name: str, reported: records.Usage, sums: records.Usage, before: records.Usage | None) -> Any:
    now, then = _amount(sums, name), _amount(before, name)
    if now is None or then is None:
        return _amount(reported, name)
    return round(now - then, _DECIMALS)


def _amount(usage: records.Usage | None, name: str) -> Any:
    return getattr(usage, name, None)
