"""Output times: when steps that other processes perform last had output, queried at a limited rate."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from app import clock
from app.domain import operations, views

if TYPE_CHECKING:
    from app.engine import run_engine

LOOK_SECONDS = 5.0  # Shortest time between two queries for the same run, however many clients show it.
ANSWER_SECONDS = 0.5  # Longest time for which a client waits for an answer; then it gets the last known times.

_RUNS_KNOWN = 256
_SAME = timedelta(seconds=1)
_WRITING = frozenset((operations.AgentCall.kind, operations.Command.kind))

_log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Known:
    asked: float
    times: Mapping[str, str]


class OutputTimes:
    """Adds the times of the last output to the open steps of runs that other processes execute."""

    def __init__(self, engine: run_engine.RunEngine, time: clock.Clock) -> None:
        self._engine = engine
        self._clock = time
        self._runs: OrderedDict[str, _Known] = OrderedDict()

    def known(self, run_id: str) -> tuple[object, ...]:
        """Return the known times of a run's steps, for comparison with earlier ones."""
        found = self._runs.get(run_id)
        return () if found is None else tuple(found.times.items())

    async def refresh(self, run_id: str) -> None:
        """Query again for a run that was shown with such steps, unless that was done a moment ago."""
        known, remote = self._runs.get(run_id), self._engine.remote
        if known is None or remote is None or self._clock.monotonic() - known.asked < LOOK_SECONDS:
            return
        known.asked = self._clock.monotonic()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await remote.last_outputs(run_id)
        except TimeoutError:
            # A poll waits only a moment for another process.
            _log.info("not known in time when steps had output", extra={"run_id": run_id})
            return
        known.times = {key: _steady(at, known.times.get(key)) for key, at in found.items()}

    async def shown(self, view: views.RunView) -> views.RunView:
        """Return a run with the known times of its open steps."""
        run_id = view.start.run_id
        if not self._engine.elsewhere or not any(step.kind in _WRITING for step in view.open):
            self._runs.pop(run_id, None)
            return view
        if run_id not in self._runs:
            self._runs[run_id] = _Known(asked=float("-inf"), times={})
            while len(self._runs) > _RUNS_KNOWN:
                self._runs.popitem(last=False)
            await self.refresh(run_id)
        known = self._runs.get(run_id)
        return view if known is None else dataclasses.replace(view, open=_with(view.open, known.times))


def _with(steps: Sequence[views.OpenStep], times: Mapping[str, str]) -> list[views.OpenStep]:
    # A time before the attempt began is that of the previous attempt.
    return [
        dataclasses.replace(step, output_at=at)
        if (at := times.get(step.key)) is not None and at >= step.started_at[:19]
        else step
        for step in steps
    ]


def _steady(at: str, before: str | None) -> str:
    # The time is computed from an age, so it varies a little for the same output from one heartbeat to the next.
    found = clock.instant(at).replace(microsecond=0)
    if before is not None and abs(clock.instant(at) - clock.instant(before)) <= _SAME:
        return before
    return clock.stamp(found)
