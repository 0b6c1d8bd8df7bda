"""Journal lines: what one finished try of a step looks like in steps.jsonl (execution-modes, appendix A, and ours
beside).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app import clock
from app.domain import plain
from app.domain.operations import AgentCall, Operation, Refusal, ToolCall
from app.domain.records import BlobRef, Record, Result
from app.domain.states import StepState
from app.engine.driver_scheduler import Ask

_RECEIPT_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """An output made ready for the disk: plain, masked, encoded once."""

    value: plain.Json
    """The output."""
    encoded: bytes
    """Its bytes: a text itself, else canonical JSON; empty without an output."""

    @property
    def text(self) -> bool:
        """Tell whether it is a text."""
        return isinstance(self.value, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try of a step, over."""

    attempt: int
    """Which try, from 1."""
    started_at: datetime
    """When it began."""
    completed_at: datetime
    """When it was over."""
    duration_seconds: float
    """How long it took, by a clock that never runs backwards."""
    result: Result
    """What the performer returned."""
    content: Content
    """Its output."""
    retry_at: str | None
    """When the next try is due; None: this one is final."""
    earlier: Sequence[Record] = ()
    """Tries before it, which were not final."""


def receipt_id(run_id: str, key: str, attempt: int) -> str:
    """Return the id of the receipt that a tool execution has, whoever writes it and however often."""
    return "rcpt_" + plain.sha256(f"{run_id}:{key}:{attempt}".encode())[:_RECEIPT_DIGITS]


def facts_of(operation: Operation) -> dict[str, plain.Json]:
    """Return `tool`, `agent_archetype` and `agent_id` as lines and views show them."""
    return {
        "tool": operation.tool if isinstance(operation, ToolCall | Refusal) else None,
        "agent_archetype": operation.archetype if isinstance(operation, AgentCall | Refusal) else None,
        "agent_id": operation.agent_id if isinstance(operation, AgentCall | Refusal) else None,
    }


def line(
    run_id: str, ask: Ask, done: Try, *, blob: BlobRef | None, operation: Mapping[str, plain.Json]
) -> dict[str, plain.Json]:
    """Make the line of one try; `batch` and `prev` are added where it is appended.

    Args:
        blob: Where an output over 64 kB is kept.
        operation: `{hash}` with `body`, or `blob` for a large one.
    """
    place, result, content = ask.place, done.result, done.content
    executed = isinstance(ask.operation, ToolCall) and result.status is not StepState.SKIPPED
    error = result.error
    return {
        "step_index": place.step_index,
        "step_id": place.step_id,
        "phase": place.phase,
        **facts_of(ask.operation),
        "status": result.status.value,
        "output_slot": place.output_slot,
        "receipt_id": receipt_id(run_id, ask.key, done.attempt) if executed else None,
        "input_slot_refs": list(place.input_slot_refs),
        "output_hash": plain.labelled_sha256(content.encoded) if content.value is not None else None,
        "output_preview": plain.preview(result.summary if result.summary is not None else content.value or ""),
        "started_at": clock.stamp(done.started_at),
        "completed_at": clock.stamp(done.completed_at),
        "error": {**error.to_json(), "key": ask.key} if error else None,
        "key": ask.key,
        "attempt": done.attempt,
        "visit": place.visit,
        "branch": ask.branch,
        "operation": dict(operation),
        "output": None if blob else content.value,
        "blob": blob.to_json() if blob else None,
        "usage": result.usage.to_json() if result.usage else None,
        "agent_session_id": result.agent_session_id,
        "duration_ms": round(done.duration_seconds * 1000, 3),
        "final": done.retry_at is None,
        "retry_at": done.retry_at,
        **({"finish": result.finish} if result.finish else {}),
        **_earlier(done.earlier),
    }


def _earlier(tries: Sequence[Record]) -> dict[str, plain.Json]:
    if not tries:
        return {}
    milliseconds = sum(float(record.line.get("duration_ms") or 0) for record in tries)
    return {"earlier": {"started_at": tries[0].started_at, "duration_ms": round(milliseconds, 3)}}
