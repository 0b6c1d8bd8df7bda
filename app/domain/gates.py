"""Gates: questions to people, with their ids and their recorded answers."""

# Why: docs/decisions/0170.

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from app import clock
from app.domain import approvals, authors, plain
from app.domain.authors import Author
from app.domain.decisions import Decisions
from app.domain.operations import Gate
from app.domain.records import Record
from app.domain.runs import RunStart

APPROVAL_DENIED = "approval_denied"  # Code of a run that ended because its approval was not given.

DENIED = "denied"  # Reason of a failed run that a person's denial ended.
PARTIAL = "partial"  # Reason of a run that is only partly done.

_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGate:
    """A question that waits for a person's answer."""

    start: RunStart  # The facts with which the asking run began.
    key: str  # Step that asks it.
    attempt: int  # Number of the attempt.
    gate: Gate  # The question.
    asked_at: str | None  # When the run first asked it; the same after a restart.
    expires_at: str | None  # When its default is taken; None: never.

    @classmethod
    def of(cls, start: RunStart, key: str, attempt: int, gate: Gate, decided: Decisions) -> OpenGate:
        """Return an open gate, from the decisions recorded for its run."""
        return cls(
            start=start,
            key=key,
            attempt=attempt,
            gate=gate,
            # From the `started` line, never from the clock: a restart must not give a gate more time.
            asked_at=decided.asked.get(key),
            expires_at=decided.due.get(key) if gate.default is not None else None,
        )

    @property
    def run_id(self) -> str:
        """Return the id of the run that asks."""
        return self.start.run_id

    @property
    def gate_id(self) -> str:
        """Return the id of the gate."""
        return gate_id(self.run_id, self.key, self.attempt)

    @property
    def shown_sha256(self) -> str:
        """Return the hash of the shown content, without a label."""
        return shown_sha256(self.gate)

    def masked(self, masker: plain.Masker) -> OpenGate:
        """Return the gate with secrets masked; the hash of the shown content stays the same."""
        # An answer is bound to what the run asks, not to the part of it that may be shown.
        prompt: str = masker.mask(self.gate.prompt)
        if prompt == self.gate.prompt:
            return self
        return dataclasses.replace(
            self, gate=dataclasses.replace(self.gate, prompt=prompt, shown_sha256=self.shown_sha256)
        )

    def facts(self) -> dict[str, plain.Json]:
        """Return the fields of the gate's event."""
        return {
            "gate_id": self.gate_id,
            "prompt": plain.preview(self.gate.prompt),
            "options": list(self.gate.options),
            "default": self.gate.default,
            "expires_at": self.expires_at,
            "shown_sha256": self.shown_sha256,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The decision at a gate, with its author."""

    of: ClassVar[type[Gate]] = Gate  # Operation that it answers.

    decision: str  # One of the gate's options.
    message: str = ""  # Text that the person adds, for later steps.
    by_default: bool = False  # Whether the default was taken because no answer arrived in time.
    idempotency_key: str | None = None  # Key under which the same answer may be repeated.
    author: Author | None = None  # Who decided, if known.
    votes: tuple[approvals.Vote, ...] = ()  # All votes, if several keys decided.

    def on(self, asked: OpenGate) -> dict[str, plain.Json]:
        """Return the recorded form of the answer to a gate: the output of its step, bound to the shown content."""
        return {
            "gate_id": asked.gate_id,
            "decision": self.decision,
            "message": self.message,
            "by_default": self.by_default,
            "denied": self.decision in asked.gate.denials,
            "shown_sha256": asked.shown_sha256,
            "idempotency_key": self.idempotency_key,
            **authors.facts(self.author),
            **({"approvals": approvals.written(self.votes)} if self.votes else {}),
        }


def gate_id(run_id: str, key: str, attempt: int) -> str:
    """Return the id of a gate: its run, and a hash of step and attempt. A gate that is asked anew gets another id."""
    return f"{run_id}.{_digits(key, attempt)}"


def run_of(gate_id: str) -> str | None:
    """Return the run that a gate's id names; None if it cannot be a gate's id."""
    run_id, dot, digits = gate_id.rpartition(".")
    return run_id if dot and len(digits) == _DIGITS else None


def shown_sha256(gate: Gate) -> str:
    """Return the hash of the content a person decides on: the driver's own, or that of prompt and options."""
    shown: plain.Json = {"prompt": gate.prompt, "options": list(gate.options)}
    return gate.shown_sha256 or plain.sha256(plain.canonical(shown))


def answer_in(record: Record) -> Mapping[str, plain.Json] | None:
    """Return the answer that a journal line records; None for any other line."""
    output = record.output
    if not isinstance(output, dict) or "gate_id" not in output or not _is_gates(record.line.get("operation")):
        return None
    return output if str(output["gate_id"]).endswith(f".{_digits(record.key, record.attempt)}") else None


def restored(start: RunStart, record: Record, question: Mapping[str, Any]) -> OpenGate:
    """Return the gate that a journal line answers.

    Args:
        question: The gate's operation as plain JSON.
    """
    answer: Any = record.output
    known = {field.name for field in dataclasses.fields(Gate)} & question.keys()
    asked = Gate(**{name: _listed(question[name]) for name in known} | {"shown_sha256": answer["shown_sha256"]})
    return OpenGate(
        start=start,
        key=record.key,
        attempt=record.attempt,
        gate=asked,
        asked_at=record.started_at,
        expires_at=_expiry(asked, record.started_at),
    )


def answer_facts(answer: Mapping[str, plain.Json]) -> dict[str, plain.Json]:
    """Return the fields of an answer's event."""
    shown = {name: answer[name] for name in ("gate_id", "decision", "by_default", "denied")}
    return shown | {"message": plain.preview(answer["message"]), "author": authors.in_line(answer)}


def end_reason(error: Mapping[str, Any] | None, ending: Mapping[str, Any] | None = None) -> str | None:
    """Return the reason of an ending that the status alone does not show; None if there is none.

    `denied`: a person's denial ended the run; `partial`: the run is only partly done.
    """
    detail = (error or {}).get("detail")
    by_person = isinstance(detail, Mapping) and detail.get("by_default") is False
    if error is not None and error.get("code") == APPROVAL_DENIED and by_person:
        return DENIED
    return PARTIAL if error is None and (ending or {}).get("partial") else None


def is_denial(record: Record) -> bool:
    """Return whether a journal line records a decision past which no run continues."""
    answer = answer_in(record)
    return answer is not None and answer["denied"] is True


def _expiry(gate: Gate, asked_at: str) -> str | None:
    if gate.default is None or gate.expires_seconds is None:
        return None
    return clock.stamp(clock.instant(asked_at) + timedelta(seconds=gate.expires_seconds))


def _listed(field: Any) -> Any:
    return tuple(field) if isinstance(field, list) else field


def _is_gates(operation: plain.Json) -> bool:
    # The body of an operation that is too large for its line is in a blob.
    body = operation.get("body") if isinstance(operation, dict) else None
    return body is None or body["kind"] == Gate.kind


def _digits(key: str, attempt: int) -> str:
    return plain.sha256(f"{key}:{attempt}".encode())[:_DIGITS]
