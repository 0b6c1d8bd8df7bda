"""Halting: where a run stands still until a person does something, in itself or in the runs that it waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from app import errors
from app.domain import operations, runs, states, views
from app.engine import open_steps, stores


class Halting:
    """Find the runs that hold up a run.

    Args:
        waits: Returns what the open steps of a run wait for.
        obstacle: Returns the fault of the data directory because of which a run waits; it passes by itself.
    """

    def __init__(
        self,
        store: stores.RunStore,
        view: Callable[[str], Awaitable[views.RunView]],
        waits: Callable[[str], Awaitable[Sequence[open_steps.StepWait]]],
        obstacle: Callable[[str], errors.StorageFault | None],
    ) -> None:
        self._store = store
        self._view = view
        self._waits = waits
        self._obstacle = obstacle

    async def runs(self, run_id: str) -> tuple[str, ...]:
        """Return the runs, itself or those it waits for, of which a person must answer a gate or end a pause before
        any step moves; none while one does.
        """
        try:
            return tuple(await self._held_by(run_id))
        except (errors.ControlRoomError, errors.StorageFault):
            # It was deleted meanwhile, or cannot be read now.
            return ()

    async def _held_by(self, run_id: str) -> list[str]:
        view = await self._view(run_id)
        if view.status.finished or view.unreadable is not None or self._obstacle(run_id) is not None:
            return []
        if view.status is states.RunState.PAUSED:
            return [run_id]
        waits = await self._waits(run_id)
        if not waits or any(_moves(wait) for wait in waits):
            return []
        awaited = sum(isinstance(wait.operation, operations.ChildRun) for wait in waits)
        below = await self._store.unfinished_under(runs.child_keys(run_id)) if awaited else []
        held = [await self._held_by(child) for child in below]
        # One that is about to be started, or has just ended, moves its parent.
        if len(below) < awaited or not all(held):
            return []
        asks = [run_id] if awaited < len(waits) else []
        return asks + list(dict.fromkeys(each for part in held for each in part))


def _moves(wait: open_steps.StepWait) -> bool:
    """Return whether a step comes to its end, or to its next attempt, without a person."""
    if wait.failed is not None or not wait.attempt:
        return True
    return not isinstance(wait.operation, operations.Gate | operations.ChildRun)
