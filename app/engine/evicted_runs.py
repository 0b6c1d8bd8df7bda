"""Asleep: what is kept of a run that only waits, while its runner and its folder are let go of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from app.domain import views
from app.domain.states import RunState
from app.engine.open_steps import Work
from app.engine.run_projection import open_step
from app.engine.step_executor import StepExecutor


@dataclass(slots=True, kw_only=True, eq=False)
class EvictedRun:
    """The open steps of a run, each with its performer, and what is shown beside its folder."""

    stepper: StepExecutor
    """Carries out its steps; they wait for its home when they are over."""
    works: dict[str, Work]
    """Open steps by key."""
    status: RunState
    """Where the run stands."""
    updated_at: str
    """When it last changed."""

    @property
    def idle(self) -> bool:
        """Tell whether nothing is open but what only waits."""
        return all(work.idle for work in self.works.values())

    def open(self) -> list[views.OpenStep]:
        """Return the open steps as views show them."""
        return [open_step(work) for work in self.works.values()]

    def give_up(self) -> list[asyncio.Task[None]]:
        """Cut off every open step, and return their tasks; nobody will take the run up again from here."""
        self.stepper.writer.desert()
        return [*self._cut()]

    def _cut(self) -> Iterator[asyncio.Task[None]]:
        for work in self.works.values():
            if work.task is not None:
                work.task.cancel()
                yield work.task
