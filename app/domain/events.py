"""Events: the catalogue of all events that are published about a run while it executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain import plain, shapes


class EventType(StrEnum):
    """Types of events; with their fields they are part of the public contract."""

    RUN_CREATED = "run.created"  # The run was accepted.
    RUN_STARTED = "run.started"  # A process took the run up.
    RUN_PAUSED = "run.paused"  # The run stopped at a step boundary, or was parked.
    RUN_UNPAUSED = "run.unpaused"  # A paused run continues.
    RUN_LIMITED = "run.limited"  # The limits of the run were changed.
    RUN_WAITING = "run.waiting"  # Every open step only waits, at least one for an input.
    RUN_STALLED = "run.stalled"
    """An agent or program at work has been silent for too long; reported once per silence."""
    RUN_CANCEL_REQUESTED = "run.cancel_requested"  # A person requested the run's cancellation.
    RUN_RESUMED = "run.resumed"  # An ended run was resumed.
    RUN_ENDED = "run.ended"  # The run ended.
    RUN_LABELLED = "run.labelled"  # A person changed the run's labels or its pin; may follow the ending.
    STEP_STARTED = "step.started"  # An attempt began.
    STEP_FINISHED = "step.finished"  # A step succeeded or was skipped.
    STEP_FAILED = "step.failed"  # A step failed for good.
    STEP_RETRYING = "step.retrying"  # An attempt failed and will be repeated.
    STEP_INTERRUPTED = "step.interrupted"  # An attempt was cut off and left no record.
    GATE_OPENED = "gate.opened"  # A gate waits for an answer; repeated whenever its run is taken up again.
    GATE_VOTED = "gate.voted"  # A key gave its decision at a gate that needs several.
    GATE_DECIDED = "gate.decided"  # A gate has its answer.
    RECIPE_NOTE = "recipe.note"  # A note of the recipe's driver.
    RECOVERY_TAIL_CUT = "recovery.tail_cut"  # A torn end of a journal was cut off.
    RECOVERY_LINES_MISSING = "recovery.lines_missing"  # Another source proves journal lines that are gone.
    RECOVERY_CORRUPT = "recovery.corrupt"  # A journal is damaged before its end.
    RECOVERY_CONTINUED = "recovery.continued"  # The run continues after its previous process ended.
    RECOVERY_ADOPTED = "recovery.adopted"  # A folder without start.json was taken over.
    STORAGE_FAILED = "storage.failed"  # A write failed and waits to be repeated.
    STORAGE_HEALED = "storage.healed"  # A write that had failed was repeated.


_LINE = ("position", "step_id", "duration_ms", "attempt")

FIELDS: Mapping[EventType, tuple[str, ...] | None] = {
    EventType.RUN_CREATED: ("recipe_id",),
    EventType.RUN_STARTED: ("taken",),
    EventType.RUN_PAUSED: ("reason", "error", "author"),
    EventType.RUN_UNPAUSED: ("author",),
    EventType.RUN_LIMITED: ("limits", "author"),
    EventType.RUN_WAITING: ("keys",),
    EventType.RUN_STALLED: ("agent_id", "silent_seconds"),
    EventType.RUN_CANCEL_REQUESTED: ("author",),
    EventType.RUN_RESUMED: ("dead", "author"),
    EventType.RUN_ENDED: ("status", "error", "ending"),
    EventType.RUN_LABELLED: ("labels", "pinned", "author"),
    EventType.STEP_STARTED: ("step_id", "phase", "attempt"),
    EventType.STEP_FINISHED: (*_LINE, "status", "preview"),
    EventType.STEP_FAILED: (*_LINE, "error"),
    EventType.STEP_RETRYING: (*_LINE, "error", "retry_at"),
    EventType.STEP_INTERRUPTED: ("attempt",),
    EventType.GATE_OPENED: ("gate_id", "prompt", "options", "default", "expires_at", "shown_sha256"),
    EventType.GATE_VOTED: ("gate_id", "decision", "author"),
    EventType.GATE_DECIDED: ("gate_id", "decision", "by_default", "denied", "message", "author"),
    EventType.RECIPE_NOTE: None,
    EventType.RECOVERY_TAIL_CUT: ("file", "at_byte", "bytes"),
    EventType.RECOVERY_LINES_MISSING: ("file", "lines", "known_lines", "told_by"),
    EventType.RECOVERY_CORRUPT: ("run_id", "file", "line", "reason"),
    EventType.RECOVERY_CONTINUED: ("lines",),
    EventType.RECOVERY_ADOPTED: ("lines", "dropped"),
    EventType.STORAGE_FAILED: ("error",),
    EventType.STORAGE_HEALED: (),
}
"""Fields of each type's `data`, part of the public contract; None if the recipe's language defines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a run, as the data of a Server-Sent Event contains it."""

    seq: int  # Number within the run; it rises, may have gaps, and never repeats.
    at: shapes.Instant  # When it happened.
    type: str  # One of `EventType`.
    run_id: str  # Run that the event belongs to.
    key: str | None = None  # Step that the event belongs to; None: the run as a whole.
    data: Mapping[str, plain.Json] = field(default_factory=dict)  # Fields of its type.

    def to_json(self) -> dict[str, plain.Json]:
        """Return `{seq, at, type, run_id, key, data}`."""
        return {
            "seq": self.seq,
            "at": self.at,
            "type": self.type,
            "run_id": self.run_id,
            "key": self.key,
            "data": dict(self.data),
        }
