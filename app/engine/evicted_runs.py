"""Evicted runs: what stays in memory of a run that only waits, while its runner and its folder are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from app.domain import views
from app.domain.states import RunState
from app.engine import open_steps
from app.engine.step_attempt import StepAttempt
from app.engine.step_executor import StepExecutor


@dataclass(slots=True, kw_only=True, eq=False)
class EvictedRun:
    """The open steps of a run, each with its performer, and what is shown beside its folder."""

    executor: StepExecutor
    """Executes its steps; one that comes to its end waits there until the run is loaded."""
    steps: dict[str, StepAttempt]
    """Open steps by key."""
    status: RunState
    """The run's state."""
    updated_at: str
    """When it last changed."""

    @property
    def idle(self) -> bool:
        """Return whether every open step only waits."""
        return all(step.idle for step in self.steps.values())

    def open(self) -> list[views.OpenStep]:
        """Return the open steps as views show them."""
        return [open_steps.shown(step) for step in self.steps.values()]

    def waits(self) -> list[open_steps.StepWait]:
        """Return what the open steps wait for; when they are due is in the folder."""
        return open_steps.waits(self.steps.values(), {})

    def give_up(self) -> list[asyncio.Task[None]]:
        """Cancel every open step and return their tasks; no runner continues from here."""
        self.executor.writer.abandon()
        return [*self._cut()]

    def _cut(self) -> Iterator[asyncio.Task[None]]:
        for step in self.steps.values():
            if step.task is not None:
                step.task.cancel()
                yield step.task
