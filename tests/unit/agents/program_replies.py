"""Golden replies: recorded results of programs' processes, and the replies expected from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.agents import counting
from app.agents.programs import catalogue, verdicts
from app.domain import agent_sessions
from app.engine import agent_ports

FOLDER = Path(__file__).parent / "replies"
LIMITS = {"timeout": 3600.0, "idle": 0.5, "output": 1000}


def names() -> list[str]:
    """Return `program/case` of every golden reply."""
    return [f"{path.parent.name}/{path.stem}" for path in sorted(FOLDER.glob("*/*.json"))]


def golden(name: str) -> dict[str, Any]:
    """Return a golden reply."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def left(given: dict[str, Any]) -> verdicts.ProcessResult:
    """Return the result of a program's process; lines that are objects or arrays are written as JSON."""
    return verdicts.ProcessResult(
        stdout=iter([f"{line if isinstance(line, str) else json.dumps(line)}\n".encode() for line in given["stdout"]]),
        stderr="\n".join(given["stderr"]).encode(),
        exit_code=given["exit_code"],
        signal=given["signal"],
        cause=given["cause"],
        limits=LIMITS,
        extra=json.dumps(given["extra"]).encode() if "extra" in given else b"",
    )


def verdict(name: str, given: dict[str, Any]) -> agent_ports.AgentReply:
    """Return the reply that a golden result leads to."""
    return reply(verdicts.verdict(catalogue.PROGRAMS[name.partition("/")[0]], left(given)))


def reply(found: verdicts.TurnResult) -> agent_ports.AgentReply:
    """Return the reply of a conversation's first turn."""
    return counting.counted(found.reply, found.sums, agent_sessions.NOTHING_SPENT)


def golden_form(reply: agent_ports.AgentReply) -> dict[str, Any]:
    """Return a reply in the form of golden files."""
    usage, error = reply.usage, reply.error
    return {
        "text": reply.text,
        "session_id": reply.agent_session_id,
        "usage": usage and [usage.input_tokens, usage.output_tokens, usage.cost_usd],
        "code": error and error.code,
        "message": error and error.message,
        "status": error and error.detail.get("status"),
        **({"finish": reply.finish} if reply.finish else {}),
    }
