"""Journal lines: builds the line of one finished attempt of a step in steps.jsonl (execution-modes, appendix A)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from app import clock
from app.domain import gates, plain
from app.domain.events import Event, EventType
from app.domain.operations import AgentCall, Command, Operation, Refusal, ToolCall
from app.domain.records import BlobRef, Record, Result
from app.domain.states import StepState
from app.engine.active_step import ActiveStep

_RECEIPT_DIGITS = 20
_NO_FACTS: Mapping[str, plain.Json] = {"tool": None, "agent_archetype": None, "agent_id": None}


def receipt_id(run_id: str, key: str, attempt: int) -> str:
    """Return the id of a tool execution's receipt; it stays the same however often the receipt is written."""
    return "rcpt_" + plain.sha256(f"{run_id}:{key}:{attempt}".encode())[:_RECEIPT_DIGITS]


def facts_of(operation: Operation) -> dict[str, plain.Json]:
    """Return `tool`, `agent_archetype` and `agent_id` as lines and views show them."""
    return {
        "tool": operation.tool if isinstance(operation, ToolCall | Refusal) else None,
        "agent_archetype": operation.archetype if isinstance(operation, AgentCall | Refusal) else None,
        "agent_id": operation.agent_id if isinstance(operation, AgentCall | Refusal) else None,
    }


def line(
    run_id: str, step: ActiveStep, encoded: bytes, *, blob: BlobRef | None, operation: Mapping[str, plain.Json]
) -> dict[str, plain.Json]:
    """Return the line of one attempt; `batch`, `prev` and the checksum are added when the line is appended.

    Args:
        encoded: Bytes of the output: of a text the text itself, otherwise canonical JSON.
        blob: Handle of an output over 64 kB.
        operation: `{hash}` with `body`, or with `blob` for a large operation.
    """
    ask, result = step.ask, step.result
    place, performed, output = ask.place, ask.operation, result.output
    tool = isinstance(performed, ToolCall)
    fields = {
        "step_index": place.step_index,
        "step_id": place.step_id,
        "phase": place.phase,
        **(facts_of(performed) if tool or isinstance(performed, Refusal | AgentCall) else _NO_FACTS),
        # `value` of an enum is a property implemented in Python, and every step would call it.
        "status": result.status._value_,
        "output_slot": place.output_slot,
        "receipt_id": receipt_id(run_id, ask.key, step.attempt)
        if tool and result.status is not StepState.SKIPPED
        else None,
        "input_slot_refs": list(place.input_slot_refs),
        "output_hash": plain.labelled_sha256(encoded) if output is not None else None,
        "output_preview": plain.preview(result.summary if result.summary is not None else output or ""),
        "started_at": step.announced_at or clock.stamp(step.started_at),
        "completed_at": clock.stamp(step.completed_at),
        "error": {**result.error.to_json(), "key": ask.key} if result.error else None,
        "key": ask.key,
        "attempt": step.attempt,
        "visit": place.visit,
        "branch": ask.branch,
        "operation": dict(operation),
        "output": None if blob else output,
        "blob": blob.to_json() if blob else None,
        "usage": result.usage.to_json() if result.usage else None,
        "agent_session_id": result.agent_session_id,
        "duration_ms": round(step.duration_seconds * 1000, 3),
        "final": step.retry_at is None,
        "retry_at": step.retry_at,
    }
    if isinstance(performed, AgentCall) and performed.model is not None and "body" not in operation:
        # A long prompt is not stored in the line, but sums of usage are grouped by model.
        fields["model"] = performed.model
    if isinstance(performed, Command) and performed.provider is not None:
        fields["provider"] = performed.provider
    if result.finish:
        fields["finish"] = result.finish
    if result.covers is not None:
        fields["covers"] = result.covers
    if step.history:
        fields["earlier"] = _earlier(step.history)
    return fields


def most_events(output: Mapping[str, plain.Json]) -> int:
    """Return how many events a line with this output can have; `events` decides once the line is durable."""
    return 2 if "gate_id" in output else 1


def events(run_id: str, record: Record, number: int) -> list[Event]:
    """Return the events of a step's line, the first with the number that the line has reserved; 0: no numbers."""
    line, at = record.line, record.completed_at
    facts: dict[str, plain.Json] = {
        "position": record.position,
        "step_id": line.get("step_id"),
        "duration_ms": line.get("duration_ms"),
        "attempt": record.attempt,
    }
    line_events: list[Event] = []
    if not record.final:
        type, facts["error"], facts["retry_at"] = EventType.STEP_RETRYING, line.get("error"), record.retry_at
    elif record.status is StepState.FAILED:
        type, facts["error"] = EventType.STEP_FAILED, line.get("error")
    else:
        type, facts["status"], facts["preview"] = EventType.STEP_FINISHED, record.status._value_, record.summary
    if isinstance(record.output, dict) and (answer := gates.answer_in(record)) is not None:
        decided = EventType.GATE_DECIDED._value_
        line_events.append(
            Event(seq=number, at=at, type=decided, run_id=run_id, key=record.key, data=gates.answer_facts(answer))
        )
        number += number > 0
    line_events.append(Event(seq=number, at=at, type=type._value_, run_id=run_id, key=record.key, data=facts))
    return line_events


def masked(masker: plain.Masker, result: Result) -> Result:
    """Return a result without secrets."""
    output, error, summary = masker.mask(plain.plain(result.output)), result.error, result.summary
    if output is result.output and error is None and summary is None:
        return result
    if error is not None:
        facts = plain.plain({"message": error.message, "detail": error.detail})
        error = dataclasses.replace(error, **masker.mask_cut(facts))
    summary = None if summary is None else masker.mask_cut(plain.plain(summary))
    return dataclasses.replace(result, output=output, summary=summary, error=error)


def _earlier(attempts: Sequence[Record]) -> dict[str, plain.Json]:
    milliseconds = sum(float(record.line.get("duration_ms") or 0) for record in attempts)
    return {"started_at": attempts[0].started_at, "duration_ms": round(milliseconds, 3)}
