"""Failures: exceptions that end a step or the flow, raised at an operation and handled where the step began."""

from __future__ import annotations

from collections.abc import Sequence

from app import errors
from app.dialects.amplifier import schema, templates
from app.domain import gates, operations, plain, records


class StepFailed(errors.StepError):
    """A step failed; its `on_error` decides what follows."""

    def __init__(
        self,
        message: str,
        *,
        key: str,
        code: str,
        causes: Sequence[str] = (),
        detail: plain.Object | None = None,
        printed: str | None = None,
    ) -> None:
        super().__init__(message, code=code, key=key, detail=detail)
        self.printed = printed  # Output that a command had printed before.
        self.causes = tuple(causes) or (key,)  # Keys of the journal lines that a resume repeats.

    @classmethod
    def of(cls, record: records.Record, causes: Sequence[str] = (), printed: str | None = None) -> StepFailed:
        """Return the failure that a record reports."""
        error = record.error
        if error is None:
            return cls("the step failed", key=record.key, code="step_failed", causes=causes)
        return cls(error.message, key=record.key, code=error.code, causes=causes, detail=error.detail, printed=printed)

    def run_failed(self) -> errors.RunFailed:
        """Return the failure of the run."""
        message = f"step {self.key} failed: {self.message}"
        return errors.RunFailed(message, code=self.code, key=self.key, causes=self.causes, detail=self.detail)


class Remaining(errors.ControlRoomError):
    """A step with an `on_error` that skips the remaining steps failed."""


NONE_YET: plain.Object = {"stage": "", "decision": "", "message": "", "by_default": False}
"""Value of `approval` before the first approval."""


def gate(approval: plain.Object, scope: templates.Scope) -> operations.Gate:
    """Return the gate of an approval."""
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
    """Return the value of `approval` after an answer."""
    params = record.output if isinstance(record.output, dict) else {}
    return {
        "stage": stage,
        "decision": params.get("decision", schema.DENY),
        "message": params.get("message") or "",
        "by_default": bool(params.get("by_default")),
    }


def denied(key: str, answer: plain.Object) -> errors.RunFailed:
    """Return the failure of a run whose approval was denied; it has no cause that a resume could repeat."""
    who = "nobody answered in time" if answer["by_default"] else "a person denied it"
    reply_text = f": {answer['message']}" if answer["message"] else ""
    message = f"the stage {answer['stage']} was not approved; {who}{reply_text}"
    return errors.RunFailed(message, code=gates.APPROVAL_DENIED, key=key, detail=dict(answer))
