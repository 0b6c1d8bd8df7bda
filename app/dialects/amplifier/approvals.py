"""Approvals: the question of a stage, and what its answer means."""

from __future__ import annotations

from app import errors
from app.dialects.amplifier import schema, templates
from app.domain import operations, plain, records

NONE_YET: plain.Object = {"stage": "", "decision": "", "message": "", "by_default": False}
"""What `approval` stands for before the first one."""


def gate(approval: plain.Object, scope: templates.Scope) -> operations.Gate:
    """Return the question that an approval asks."""
    prompt = templates.text(approval["prompt"], scope)
    seconds = schema.of("approval", approval, "timeout")
    return operations.Gate(
        prompt=prompt,
        options=(schema.APPROVE, schema.DENY),
        default=schema.of("approval", approval, "default") if seconds else None,
        expires_seconds=float(seconds) if seconds else None,
        shown_sha256=plain.sha256(prompt.encode()),
    )


def answer(stage: str, record: records.Record) -> dict[str, plain.Json]:
    """Return what `approval` stands for after an answer."""
    params = record.output if isinstance(record.output, dict) else {}
    return {
        "stage": stage,
        "decision": params.get("decision", schema.DENY),
        "message": params.get("message") or "",
        "by_default": bool(params.get("by_default")),
    }


def denied(key: str, answer: plain.Object) -> errors.RunFailed:
    """Return the end of a run whose approval was denied; nothing caused it that a resume could repeat."""
    who = "nobody answered in time" if answer["by_default"] else "a person denied it"
    reply_text = f": {answer['message']}" if answer["message"] else ""
    message = f"the stage {answer['stage']} was not approved; {who}{reply_text}"
    return errors.RunFailed(message, code="approval_denied", key=key, detail=dict(answer))
