"""Measured performers: the same work, counted and timed."""

from __future__ import annotations

from app import clock, telemetry
from app.domain import records
from app.engine import ports
from app.worker import pacing


class Measured:
    """Perform through another performer, a few in each turn of the loop, and note what came of it."""

    def __init__(
        self, inner: ports.Performer, metrics: telemetry.Metrics, time: clock.Clock, pace: pacing.Pace
    ) -> None:
        self._inner = inner
        self._metrics = metrics
        self._clock = time
        self._pace = pace

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try; one that breaks or is cut off is counted too."""
        began, status = self._clock.monotonic(), "interrupted"
        try:
            await self._pace.turn()
            result = await self._inner.perform(call)
            status = result.status.value
            return result
        except Exception:
            status = "failed"
            raise
        finally:
            self._metrics.step(call.operation.kind, status, self._clock.monotonic() - began)
