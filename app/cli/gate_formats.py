"""Gates as text: the inbox, a question, and the result of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import printable
from app.cli import formats


def gates(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of open gates."""
    rows = [(gate["gate_id"], gate["recipe_id"], "/".join(gate["options"]), gate["prompt"]) for gate in found]
    return formats.table(("gate_id", "recipe_id", "options", "question"), rows, none="nothing waits for an answer")


def gate(found: Mapping[str, Any]) -> str:
    """Return a gate with its question and, if it has them, its votes and its answer."""
    names = ("gate_id", "run_id", "recipe_id", "key", "status", "asked_at", "expires_at", "default")
    heading = [(name, found[name]) for name in names if found[name]]
    heading += [("votes", f"{votes(found)} of {found['approvals']['needed']}")] if is_voted_on(found) else []
    parts = [formats.facts([*heading, ("options", ", ".join(found["options"]))]), printable.quoted(found["prompt"])]
    return "\n\n".join(parts if found["decision"] is None else [*parts, decided(found)])


def answered(found: Mapping[str, Any], decision: str) -> str:
    """Return the result of an answer: what was decided, or how many votes are missing.

    Args:
        found: The gate after the answer.
        decision: The decision that was sent.
    """
    if not is_voted_on(found):
        return decided(found)
    needed = found["approvals"]["needed"]
    agreeing = len({name_of(vote) for vote in found["approvals"]["given"] if vote["decision"] == decision})
    missing = max(needed - agreeing, 0)
    message = f"{found['key']} is still open: your vote counts, {decision} has {agreeing} of {needed} votes"
    return printable.one_line(f"{message}, and {missing} {'is' if missing == 1 else 'are'} missing")


def decided(found: Mapping[str, Any]) -> str:
    """Return what was decided at a gate."""
    how = " by default" if found["by_default"] else ""
    said = f": {found['message']}" if found["message"] else ""
    return printable.one_line(f"{found['key']} decided{how} at {found['decided_at']}: {found['decision']}{said}")


def is_voted_on(found: Mapping[str, Any]) -> bool:
    """Return whether a gate needs several keys and has no decision yet."""
    return found["decision"] is None and found.get("approvals") is not None


def votes(found: Mapping[str, Any]) -> str:
    """Return the votes that were given so far."""
    given = [f"{vote['decision']} by {name_of(vote)}" for vote in found["approvals"]["given"]]
    return f"{len(given)} ({', '.join(given)})" if given else "0"


def name_of(vote: Mapping[str, Any]) -> str:
    """Return whose vote it is."""
    return str((vote["author"] or {}).get("name"))
