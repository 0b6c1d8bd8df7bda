"""Evicted runs: keeps what remains in memory of a waiting run whose runner and folder are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from app.domain import gates, operations, views
from app.domain.records import Place
from app.domain.runs import RunStart
from app.domain.states import RunState
from app.engine import open_steps
from app.engine.active_step import ActiveStep
from app.engine.journal_lines import facts_of
from app.engine.step_executor import StepExecutor


@dataclass(slots=True, kw_only=True, eq=False)
class EvictedRun:
    """The open steps of a run, each with its performer, and the fields that views need beside the run's folder."""

    executor: StepExecutor
    """Executes the steps; a step that finishes waits there until the run is loaded."""
    steps: dict[str, ActiveStep]  # Open steps by key.
    status: RunState  # The run's state.
    updated_at: str  # When it last changed.

    taken: ClassVar[bool] = True

    @property
    def wanted(self) -> bool:
        """Return whether the run is to be loaded."""
        return self.executor.link.wanted

    def want(self) -> None:
        """Request that the run is loaded, even while its folder is still being closed."""
        self.executor.link.wanted = True

    @property
    def idle(self) -> bool:
        """Return whether every open step only waits."""
        return all(step.idle for step in self.steps.values())

    def open(self) -> list[views.OpenStep]:
        """Return the open steps as views show them."""
        return [open_steps.shown(step) for step in self.steps.values()]

    def waits(self) -> list[open_steps.StepWait]:
        """Return what the open steps wait for; only the folder records when they are due."""
        return open_steps.waits(self.steps.values(), {})

    def give_up(self) -> list[asyncio.Task[None]]:
        """Cancel every open step and return their tasks; no runner will continue this run."""
        self.executor.link.abandon()
        return [*self._cut()]

    def _cut(self) -> Iterator[asyncio.Task[None]]:
        for step in self.steps.values():
            # The cancelled task keeps its frames, and these refer to the step: together they would form a cycle.
            task, step.task = step.task, None
            if task is not None:
                task.cancel()
                yield task


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingInput:
    """An input at which a run rests."""

    key: str  # Key of the step.
    attempt: int  # Number of the attempt.
    operation: operations.Input  # The awaited input.
    place: Place  # Position of the step in the recipe.
    asked_at: str  # When the run first asked for it.

    def shown(self) -> views.OpenStep:
        """Return the input as views show it."""
        return views.OpenStep(
            key=self.key,
            attempt=self.attempt,
            kind=self.operation.kind,
            place=self.place,
            facts=facts_of(self.operation),
            started_at=self.asked_at,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class RestingRun:
    """A run that only awaits inputs without a deadline: it has no task, and only what views show remains in memory."""

    start: RunStart  # The facts that the run began with.
    inputs: tuple[RestingInput, ...]  # The inputs that the run awaits.
    updated_at: str  # When it last changed.
    taken: bool  # Whether this process has executed the run; if not, it has only read it.
    wanted: bool = False  # Whether the run is to be loaded.

    status: ClassVar[RunState] = RunState.WAITING
    idle: ClassVar[bool] = True
    executor: ClassVar[None] = None

    def want(self) -> None:
        """Request that the run is loaded, even while its folder is still being closed."""
        self.wanted = True

    def open(self) -> list[views.OpenStep]:
        """Return the open steps as views show them."""
        return [one.shown() for one in self.inputs]

    def open_gates(self) -> Iterator[gates.OpenGate]:
        """Return the gates that wait for an answer."""
        for one in self.inputs:
            if isinstance(one.operation, operations.Gate):
                yield gates.OpenGate(
                    start=self.start,
                    key=one.key,
                    attempt=one.attempt,
                    gate=one.operation,
                    asked_at=one.asked_at,
                    expires_at=None,
                )

    def waits(self) -> list[open_steps.StepWait]:
        """Return what the open steps wait for."""
        return [
            open_steps.StepWait(key=one.key, operation=one.operation, attempt=one.attempt, since=one.asked_at)
            for one in self.inputs[: open_steps.MOST]
        ]

    def give_up(self) -> list[asyncio.Task[None]]:
        """Return an empty list: a resting run has no tasks."""
        return []


Evicted: TypeAlias = EvictedRun | RestingRun  # A run without a runner, which its next runner continues.
