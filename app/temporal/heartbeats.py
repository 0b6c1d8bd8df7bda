"""Heartbeats of steps: carry the age of a step's last output, so that other processes see its silence."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from app import clock
from app.engine import active_step
from app.temporal import messages

_log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0  # Longest time for which a question to the server delays an explanation.

_KEY, _AGE = "key", "output_age_seconds"


class Heartbeats:
    """The details in the heartbeats of one step."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._step: active_step.ActiveStep | None = None

    def follow(self, step: active_step.ActiveStep) -> None:
        """Report on a step from now on."""
        self._step = step

    def details(self) -> tuple[dict[str, Any], ...]:
        """Return the details of the next heartbeat; empty before the first output."""
        step = self._step
        if step is None or step.output_at is None:
            return ()
        age = max(0.0, (self._clock.now() - step.output_at).total_seconds())
        return ({_KEY: step.ask.key, _AGE: round(age, 1)},)


async def outputs(client: Client, run_id: str) -> dict[str, str]:
    """Return, by step, when the steps at work of a run last had output; steps without a known time are omitted."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await client.get_workflow_handle(messages.workflow_id(run_id)).describe()
    except (RPCError, TimeoutError) as error:
        _log.info("not known when steps had output: %s", str(error) or "no answer", extra={"run_id": run_id})
        return {}
    times: dict[str, str] = {}
    for pending in found.raw_description.pending_activities:
        for beat in await client.data_converter.decode(pending.heartbeat_details.payloads):
            at = pending.last_heartbeat_time.ToDatetime(UTC) - timedelta(seconds=beat[_AGE])
            times[beat[_KEY]] = clock.stamp(at)
    return times
