"""Signs of a step that is not finished: its place in a queue, and its silence."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain import shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(shapes.Shape):
    """The place of a step in the queue of its backend."""

    place: int
    """Place, from 1."""
    of: int
    """Number of steps that wait, of all runs."""
    backend: str
    """Name of the backend."""
    until: shapes.Instant | None = shapes.omitted()
    """Until when its service wants no prompt, as it said with a 429."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(shapes.Shape):
    """A step whose agent or program says nothing."""

    key: str
    """Step."""
    agent_id: str | None
    """Agent that is silent; None for a program."""
    since: shapes.Instant
    """When its newest output came, or the step began."""
    silent_seconds: int
    """How long it had been silent when this was reported."""
