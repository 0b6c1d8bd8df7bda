"""Slots: the named outputs of a run, in the form of cache.json (execution-modes, appendix A)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app.domain import plain, shapes
from app.domain.records import BlobRef, Record
from app.domain.states import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A named output: a pointer to a receipt, or an artifact with its text."""

    type: Literal["pointer", "artifact"]
    """`pointer`: the payload is in a receipt; `artifact`: the slot contains the text."""
    sha256: str  # Bare hash of the payload or text.
    summary: str  # One-line summary.
    key: str  # Step that filled it.
    receipt_id: str | None = None  # Receipt of a pointer.
    agent_id: str | None = None  # Agent that wrote an artifact.
    text: str | None = None  # Text of an artifact; None for a pointer, and if `blob` refers to it.
    blob: BlobRef | None = None  # Handle of an artifact's text over 64 kB.
    data: bool | None = None  # Whether the text is the JSON of a value that is not a text; None: unknown.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the slot in the form of cache.json."""
        return snapshot({"": self})[""]


def snapshot(filled: Mapping[str, Slot]) -> dict[str, dict[str, plain.Json]]:
    """Return slots in the form of cache.json (execution-modes, appendix A)."""
    shown: dict[str, dict[str, plain.Json]] = {}
    for name, slot in filled.items():
        proof = {"sha256": slot.sha256, "summary": slot.summary}
        if slot.type == "pointer":
            shown[name] = {"type": "pointer", "receipt_id": slot.receipt_id, **proof}
        elif slot.blob is None:
            shown[name] = {"type": "artifact", "agent_id": slot.agent_id, "text": slot.text, **proof}
        else:
            blob = slot.blob.to_json()
            shown[name] = {"type": "artifact", "agent_id": slot.agent_id, "text": slot.text, "blob": blob, **proof}
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerSlot(shapes.Shape):
    """A slot that names a receipt, which contains the payload."""

    slot: str  # Name of the slot.
    type: Literal["pointer"]  # `pointer`.
    receipt_id: str | None  # The receipt.
    sha256: str  # Hash of the payload.
    summary: str  # One-line summary of the payload.


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSlot(shapes.Shape):
    """A slot that contains its text."""

    slot: str  # Name of the slot.
    type: Literal["artifact"]  # `artifact`.
    agent_id: str | None  # Agent that wrote the text.
    text: str | None  # The text.
    sha256: str  # Hash of the text.
    summary: str  # One-line summary of the text.


def pointer(record: Record) -> Slot:
    """Return the slot that a tool call fills, which refers to its receipt."""
    return Slot(
        type="pointer",
        receipt_id=record.receipt_id,
        sha256=record.output_sha256 or "",
        summary=record.summary,
        key=record.key,
    )


def artifact(record: Record, agent_id: str) -> Slot:
    """Return the slot that an agent's reply fills."""
    return Slot(
        type="artifact",
        agent_id=agent_id,
        text=record.output,
        blob=record.blob,
        sha256=record.output_sha256 or "",
        summary=record.summary,
        key=record.key,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run according to its driver."""

    phase: str | None = None  # `a`, `b` or `dod` in pipelines.
    finished_steps: int = 0  # Number of finished steps; `current_step_index` in run.json.
    total_steps: int | None = None  # Number of steps of the recipe; None if its flow can loop.
    machine: Mapping[str, plain.Json] | None = None
    """State of a recipe that is a state machine; None for other recipes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownState:
    """Facts about a run that its driver does not know but its files in the run folder show."""

    status: RunState  # State of the run.
    updated_at: str  # When it last changed.


Projection: TypeAlias = Callable[[ShownState], Mapping[str, plain.Json]]
"""Makes further files of the run folder, by name, from what the driver has seen; without side effects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What the driver shows of its run; rebuilt by every replay, so never trusted from disk."""

    progress: Progress = field(default_factory=Progress)  # The progress of the run.
    slots: Mapping[str, Slot] = field(default_factory=dict)
    """Its named outputs, in the order in which they were filled."""
    files: Mapping[str, plain.Json] = field(default_factory=dict)
    """Further projections by file name, e.g. `state.json`."""
