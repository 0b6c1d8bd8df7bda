"""Waiting performers: perform the operations that only wait, for a time or for another run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app import clock, errors
from app.domain import operations, records, states
from app.engine import aio, child_results, ports, stores

StartChild = Callable[[ports.Call], Awaitable[str]]
"""Starts the run that a `ChildRun` requests, or finds it by a key made of parent and step, and returns its id."""

Ended = Callable[[str], Awaitable[states.RunState]]  # Waits for a run's end and returns its final state.


class Timers:
    """Performs `Timer`."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time

    async def perform(self, call: ports.Call) -> records.Result:
        """Wait for the rest of the duration, but never longer than the whole, whatever the wall clock shows."""
        assert isinstance(call.operation, operations.Timer)
        await self._clock.sleep(min(call.operation.seconds, self._left_seconds(call)))
        return records.Result()

    def _left_seconds(self, call: ports.Call) -> float:
        if call.due_at is None:
            return float("inf")
        return (clock.instant(call.due_at) - self._clock.now()).total_seconds()


class ChildRuns:
    """Performs `ChildRun`."""

    def __init__(
        self,
        start: StartChild,
        ended: Ended,
        cancel: Callable[[set[str]], Awaitable[None]],
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        time: clock.Clock,
    ) -> None:
        self._start = start
        self._ended = ended
        self._cancel = cancel
        self._clock = time
        self._store = store
        self._drivers = drivers
        self._begun: dict[str, set[str]] = {}

    async def perform(self, call: ports.Call) -> records.Result:
        """Start the child, or find it after a restart, and wait for its end."""
        starting = asyncio.ensure_future(self._begin(call))
        try:
            child = await asyncio.shield(starting)
        except errors.ControlRoomError as error:
            # E.g. the child's recipe does not exist: the error of the child becomes that of the step.
            return child_results.failed(error.code, error.message, None)
        except asyncio.CancelledError:
            # A child that exists but was not queued would wait until the next start of the service; the end of its
            # parent would not reach one that does not exist yet.
            await aio.finished(starting)
            raise
        status = await self._end(call, child)
        if status is None:
            # Otherwise the child would work on for a parent that has continued without it.
            await self._cancel({child})
            self._begun.get(call.run.run_id, set()).discard(child)
            return child_results.failed(
                "timeout", f"the run {child} did not end in time and is cancelled", {"run_id": child}
            )
        self._begun.get(call.run.run_id, set()).discard(child)
        return await child_results.result(self._store, self._drivers, child, status)

    async def _begin(self, call: ports.Call) -> str:
        child = await self._start(call)
        self._begun.setdefault(call.run.run_id, set()).add(child)
        return child

    async def _end(self, call: ports.Call, child: str) -> states.RunState | None:
        """Wait for a child's end; return None if its time runs out first."""
        if call.due_at is None:
            return await self._ended(child)
        seconds_left = (clock.instant(call.due_at) - self._clock.now()).total_seconds()
        end, over = (
            asyncio.ensure_future(self._ended(child)),
            asyncio.ensure_future(self._clock.sleep(max(seconds_left, 0))),
        )
        try:
            await asyncio.wait((end, over), return_when=asyncio.FIRST_COMPLETED)
            return end.result() if end.done() else None
        finally:
            for task in (end, over):
                task.cancel()
            # A cancelled wait must not end up in the log as an exception that was never retrieved.
            await asyncio.gather(end, over, return_exceptions=True)

    def pop_unfinished(self, run_id: str) -> set[str]:
        """Return the awaited children of a run whose end was not seen, and forget them."""
        return self._begun.pop(run_id, set())
