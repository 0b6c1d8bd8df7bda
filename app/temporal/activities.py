"""Activities: perform the requests of workflows on a worker; every failure states whether Temporal repeats it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from app import errors
from app.domain import decisions
from app.engine import outages, run_equipment
from app.temporal import messages
from app.temporal.capacity import NoCapacity, StepCapacity
from app.temporal.codec import reference
from app.temporal.heartbeats import Heartbeats
from app.temporal.live_reports import LiveReports
from app.temporal.replayed_runs import Superseded
from app.temporal.run_placement import RunPlacement
from app.temporal.runs import WorkflowRuns
from app.temporal.steps import Steps

BEAT_SECONDS = 0.4  # Time between two heartbeats; by the next one a worker learns that a step is cut off.
Details = Callable[[], tuple[Any, ...]]  # Returns the details of a heartbeat.

_AGAIN = timedelta(seconds=0.1)
_GIVEN_UP = "given_up"  # Failure type of an attempt for which the server waits no longer.

_log = logging.getLogger(__name__)


class Activities:
    """The activities of one worker."""

    def __init__(
        self, steps: Steps, runs: WorkflowRuns, placement: RunPlacement, capacity: StepCapacity, live: LiveReports
    ) -> None:
        self._steps = steps
        self._runs = runs
        self._placement = placement
        self._capacity = capacity
        self._live = live
        self._database = outages.Outage(_log, "runs wait for the database: %s", "runs no longer wait for the database")

    def short(self) -> list[Callable[..., Any]]:
        """Return the activities that read and write a journal, and take no capacity."""
        return [
            self.load,
            self.read_lines,
            self.read_blob,
            self.announce,
            self.finish,
            self.show_waiting,
            self.enforce_time_limits,
            self.complete,
        ]

    @activity.defn(name=messages.LOAD)
    async def load(self, run_id: str, again: bool) -> RawValue:
        """Load a run and return its journal."""
        async with self._reported(run_id):
            return reference(await self._runs.load(run_id, again=again))

    @activity.defn(name=messages.READ_LINES)
    async def read_lines(self, run_id: str, after: int) -> RawValue:
        """Return the new lines of a journal."""
        async with self._reported(run_id):
            return reference(await self._runs.read_lines(run_id, after))

    @activity.defn(name=messages.READ_BLOB)
    async def read_blob(self, run_id: str, blob: dict[str, Any]) -> RawValue:
        """Return the content behind a handle."""
        async with self._reported(run_id):
            return reference(await self._runs.read_blob(run_id, blob))

    @activity.defn(name=messages.PERFORM)
    async def perform(self, order: messages.StepOrder) -> RawValue:
        """Perform one attempt of a step."""
        beats = Heartbeats(self._steps.clock)
        async with self._reported(order.run_id, beats.details):
            with self._capacity.hold(), self._live.reported(order.run_id, beats.follow) as follow:
                return reference(await self._steps.perform(order, follow))

    @activity.defn(name=messages.PERFORM)
    async def perform_idle(self, order: messages.StepOrder) -> RawValue:
        """Perform one attempt of a step that only waits and takes no capacity."""
        async with self._reported(order.run_id):
            return reference(await self._steps.perform(order))

    @activity.defn(name=messages.PLACE)
    async def place(self, run_id: str) -> str:
        """Return the worker that performs the steps of a run."""
        async with self._reported(run_id):
            return await self._placement.place(run_id)

    @activity.defn(name=messages.PRESENT)
    async def show_presence(self) -> None:
        """Show that this worker is present."""

    @activity.defn(name=messages.ANNOUNCE)
    async def announce(self, order: messages.StepOrder) -> messages.Announced:
        """Begin a step that only waits."""
        async with self._reported(order.run_id):
            return await self._steps.announce(order)

    @activity.defn(name=messages.FINISH)
    async def finish(self, order: messages.StepOrder) -> RawValue | None:
        """Record a step that has finished waiting."""
        async with self._reported(order.run_id):
            found = await self._steps.finish(order)
            return None if found is None else reference(found)

    @activity.defn(name=messages.SHOW_WAITING)
    async def show_waiting(self, run_id: str, keys: list[str]) -> None:
        """Show that a run waits for inputs."""
        async with self._reported(run_id):
            await self._runs.show_waiting(run_id, keys)

    @activity.defn(name=messages.ENFORCE_TIME_LIMITS)
    async def enforce_time_limits(self, run_id: str) -> messages.TimeLeft:
        """Bring a run that has reached a time limit to rest, and return the time that its limits leave."""
        async with self._reported(run_id):
            return await self._runs.times.enforce(run_id)

    @activity.defn(name=messages.COMPLETE)
    async def complete(self, order: messages.CompletionOrder) -> str:
        """End, pause or release a run as its journal requires."""
        async with self._reported(order.run_id):
            return await self._runs.complete(order)

    @asynccontextmanager
    async def _reported(self, run_id: str, details: Details = tuple) -> AsyncIterator[None]:
        async with _alive(details):
            try:
                yield
                self._database.worked()
            except asyncio.CancelledError:
                if not _is_given_up():
                    raise
                # The library would log this cancellation, which no workflow requested, with its traceback.
                _log.warning(
                    "the server has given up this attempt, e.g. since the worker was frozen", extra={"run_id": run_id}
                )
                raise _repeated("given up", _GIVEN_UP) from None
            except Superseded:
                raise _expected("superseded", type=messages.SUPERSEDED) from None
            except NoCapacity:
                raise _full() from None
            # The history would also keep the causes of an error, which quote recipes and outputs.
            except run_equipment.Parked as parked:
                error, message = parked.error, await self._steps.masked(run_id, parked.error.message)
                facts = messages.Parking(reason=parked.reason, code=error.code, message=message, key=error.key)
                if parked.reason in decisions.LIMIT_REASONS:
                    # Amounts and names of limits: with them the run can continue when there is room.
                    facts = dataclasses.replace(facts, detail=dict(error.detail))
                _log.info("the run is paused: %s", message, extra={"run_id": run_id})
                raise _expected(message, facts, type=messages.PARKED) from None
            except (errors.NondeterminismFault, errors.DriverFault) as fault:
                message = await self._steps.masked(run_id, fault.message)
                raise ApplicationError(message, type=fault.code, non_retryable=True) from None
            except (errors.JournalCorrupt, errors.NotFound) as error:
                # A repetition would change nothing.
                raise ApplicationError(error.message, type=error.code, non_retryable=True) from None
            except errors.Fault as fault:
                if isinstance(fault, errors.DatabaseAway):
                    self._database.failed(fault.message)
                else:
                    _log.warning("the run waits for a repetition: %s", fault.message, extra={"run_id": run_id})
                raise _repeated(fault.message, fault.code) from None
            except Exception as error:  # noqa: BLE001 - the history must not keep what it quotes
                _log.exception("an activity failed", extra={"run_id": run_id})
                message = await self._steps.masked(run_id, str(error))
                raise ApplicationError(message, type=type(error).__name__) from None


def _is_given_up() -> bool:
    """Return whether the server has cut off this attempt by itself, because it got no heartbeats or forgot it."""
    why = activity.cancellation_details()
    return why is not None and (why.timed_out or why.not_found)


def _expected(message: str, *details: Any, type: str) -> ApplicationError:
    """Return an expected error, which the library logs without a traceback."""
    return ApplicationError(message, *details, type=type, non_retryable=True, category=ApplicationErrorCategory.BENIGN)


def _repeated(message: str, type: str) -> ApplicationError:
    """Return an error that Temporal repeats, which the library logs without a traceback."""
    return ApplicationError(message, type=type, category=ApplicationErrorCategory.BENIGN)


def _full() -> ApplicationError:
    return ApplicationError(
        "no capacity here",
        type=messages.NO_CAPACITY,
        next_retry_delay=_AGAIN,
        category=ApplicationErrorCategory.BENIGN,
    )


@asynccontextmanager
async def _alive(details: Details) -> AsyncIterator[None]:
    beating = asyncio.create_task(_beat(details))
    try:
        yield
    finally:
        beating.cancel()


async def _beat(details: Details) -> None:
    while True:
        activity.heartbeat(*details())
        await asyncio.sleep(BEAT_SECONDS)
