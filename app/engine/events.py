"""
Events: the catalogue of everything that is told about a run while it happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.engine import plain


class EventType(StrEnum):
    """
    Types of events; with their fields they are part of the public contract.
    """

    RUN_CREATED = "run.created"
    """The run was accepted. Fields: recipe_id."""
    RUN_STARTED = "run.started"
    """A process took the run up. Fields: taken (how often)."""
    RUN_PAUSED = "run.paused"
    """Stopped at a step boundary, or parked. Fields: reason, error."""
    RUN_UNPAUSED = "run.unpaused"
    """A paused run goes on."""
    RUN_WAITING = "run.waiting"
    """Every open step is a gate. Fields: keys."""
    RUN_CANCEL_REQUESTED = "run.cancel_requested"
    """Somebody asked for the run's end."""
    RUN_RESUMED = "run.resumed"
    """An ended run was sent on. Fields: dead (ranges of journal lines)."""
    RUN_ENDED = "run.ended"
    """The run ended. Fields: status, error, ending."""
    STEP_STARTED = "step.started"
    """A try began. Fields: step_id, phase, attempt."""
    STEP_FINISHED = "step.finished"
    """A step succeeded or was skipped. Fields: position, step_id, status, preview, duration_ms."""
    STEP_FAILED = "step.failed"
    """A step failed for good. Fields: position, step_id, error, duration_ms."""
    STEP_RETRYING = "step.retrying"
    """A try failed and will be repeated. Fields: position, step_id, error, retry_at."""
    STEP_INTERRUPTED = "step.interrupted"
    """A try was cut off and left no record. Fields: attempt."""
    GATE_OPENED = "gate.opened"
    """
    A gate waits for an answer; told again whenever its run is taken up again. Fields: gate_id, prompt (its beginning),
    options, default, expires_at, shown_sha256.
    """
    GATE_DECIDED = "gate.decided"
    """A gate has its answer. Fields: gate_id, decision, message (its beginning), by_default, denied."""
    RECIPE_NOTE = "recipe.note"
    """The recipe's driver tells something. Fields: its own."""
    RECOVERY_TAIL_CUT = "recovery.tail_cut"
    """A torn end of a journal was cut off. Fields: file, at_byte, bytes."""
    RECOVERY_LINES_MISSING = "recovery.lines_missing"
    """Steps were begun that the journal does not lead to, so whole lines before them are gone. Fields: started."""
    RECOVERY_CORRUPT = "recovery.corrupt"
    """A journal is damaged before its end. Fields: file, line, reason."""
    RECOVERY_CONTINUED = "recovery.continued"
    """The run goes on after the process that had it went away. Fields: lines."""
    RECOVERY_ADOPTED = "recovery.adopted"
    """A folder without start.json was taken over. Fields: lines, dropped."""
    STORAGE_FAILED = "storage.failed"
    """A write failed and waits to be repeated. Fields: file, error."""
    STORAGE_HEALED = "storage.healed"
    """A write that had failed was repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """
    One thing that happened.
    """

    seq: int
    """Number within the run; rises, may have gaps, never repeats."""
    at: str
    """When."""
    type: str
    """One of `EventType`."""
    run_id: str
    """Run it belongs to."""
    key: str | None = None
    """Step it belongs to; None for the run as a whole."""
    data: Mapping[str, plain.Json] = field(default_factory=dict)
    """Fields of its type."""

    def to_json(self) -> dict[str, plain.Json]:
        """
        Return `{seq, at, type, run_id, key, data}`.
        """
        return {
            "seq": self.seq,
            "at": self.at,
            "type": self.type,
            "run_id": self.run_id,
            "key": self.key,
            "data": dict(self.data),
        }
