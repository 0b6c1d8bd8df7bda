"""Explanations: why a run does not move, as one sentence and the chain of causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain import shapes
from app.domain.states import RunState

CauseKind: TypeAlias = Literal[
    "queued",
    "workspace_busy",
    "concurrency",
    "recovering",
    "gate",
    "input",
    "child_run",
    "timer",
    "files",
    "retry",
    "no_worker",
    "backend_queue",
    "budget",
    "agent",
    "agent_silent",
    "step",
    "between_steps",
    "pausing",
    "cancelling",
    "paused",
    "parked",
    "storage",
    "unreadable",
    "damaged",
    "not_executed",
    "ended",
    "more",
]
"""Kinds of causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest(shapes.Shape):
    """The request of a step at work, and its receiver; secrets are masked."""

    key: str  # Name of the step within its run.
    attempt: int  # Number of the attempt, from 1.
    kind: str  # Kind of operation, e.g. `agent_call`, `command` or `tool_call`.
    agent_id: str | None = shapes.omitted()  # Agent that receives it.
    backend: str | None = shapes.omitted()  # Backend of the agent.
    model: str | None = shapes.omitted()  # Requested model; absent: the default of the backend.
    tool: str | None = shapes.omitted()  # Tool that it calls.
    text: str  # The prompt, the command, or the arguments as JSON.
    truncated: bool  # Whether the text is only the beginning.


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(shapes.Shape):
    """One link of the chain."""

    run_id: shapes.RunId  # Run that the cause concerns.
    kind: CauseKind  # Kind of the cause.
    text: str  # The cause in plain words.
    key: str | None = shapes.omitted()  # Step that the cause concerns.
    since: shapes.Instant | None  # When it began, if known.
    until: shapes.Instant | None = shapes.omitted()  # When it ends by itself, if known.
    act: str | None = shapes.omitted()  # Command that lets the run continue.


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(shapes.Shape):
    """The explanation of why a run does not move."""

    run_id: shapes.RunId  # The run that the question is about.
    status: RunState  # Its state.
    sentence: str  # The answer in plain words.
    chain: tuple[Cause, ...]  # Causes, from the run itself to the root.
    halted_at: tuple[shapes.RunId, ...]
    """Runs, it or below it, of which a person must answer a gate or end a pause before any step moves; empty: one
    does."""
