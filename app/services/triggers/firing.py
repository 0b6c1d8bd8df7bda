"""Firing: turns the waiting occurrences of a trigger into runs, exactly one for each, even after a crash."""

# Why: docs/decisions/0330. An occurrence of a schedule, or a new file, waits in the trigger's file before its run is
# started, and leaves it afterwards, with its result. The sender of a request to a webhook repeats unanswered ones,
# so its run is started at once, and it waits in the file only if the overlap policy queues it. The idempotency key of
# the run closes the gap in both cases: after a kill the same occurrence finds its run.

from __future__ import annotations

import dataclasses
import itertools
import logging

from app import clock, errors
from app.domain import authors, triggers
from app.engine import stores
from app.services.requests import Started, StartRequest
from app.services.runs import Runs
from app.services.triggers import requests
from app.services.triggers.repository import TriggerRepository

HELD_UP = (errors.ControlRoomError, errors.StorageFault, errors.InterruptionFault)
"""Errors that keep an occurrence waiting: it is tried again later, and the other triggers continue meanwhile."""


_log = logging.getLogger(__name__)


class Firing:
    """Starts the runs of occurrences."""

    def __init__(
        self, *, repository: TriggerRepository, runs: Runs, store: stores.RunStore, clock: clock.Clock
    ) -> None:
        self._repository = repository
        self._runs = runs
        self._store = store
        self._clock = clock

    async def drain(self, trigger_id: str) -> triggers.Trigger | None:
        """Start waiting occurrences in order as far as the policy allows; return the trigger, None if it is gone.

        Raises:
            errors.ControlRoomError, errors.StorageFault: a file cannot be written or read now, or an earlier run
                cannot be cancelled; the remaining occurrences still wait.
        """
        async with self._repository.lock(trigger_id):
            trigger = await self._repository.find(trigger_id)
            while trigger is not None and trigger.waiting and not trigger.paused:
                outcome = await self._outcome(trigger, trigger.waiting[0])
                if outcome is None:
                    return await self._noted_queued(trigger)
                trigger = await self._noted(_no_longer_queued(trigger), outcome, waiting=trigger.waiting[1:])
            return trigger

    async def _noted_queued(self, trigger: triggers.Trigger) -> triggers.Trigger:
        # Those that have arrived since the last look: the history forgets, and what waits for long is noted once.
        noted = {each.occurrence for each in trigger.history}
        new = list(itertools.takewhile(lambda one: one.occurrence not in noted, reversed(trigger.waiting)))
        if not new:
            return trigger
        trigger = trigger.noted(*(one.ended("queued", self._now()) for one in reversed(new)))
        await self._repository.put(trigger)
        return trigger

    async def start_or_queue(
        self, trigger: triggers.Trigger, arrived: triggers.Waiting, asked_by: str | None = None
    ) -> tuple[triggers.Occurrence, str]:
        """Start the run of a new occurrence, or let it wait; return its result and the state of its run.

        Args:
            asked_by: Run whose agent or command has sent the request.

        Raises:
            errors.ControlRoomError: its run cannot be started.
        """
        outcome = await self._outcome(trigger, arrived, asked_by)
        if outcome is not None:
            await self._noted(trigger, outcome)
        elif len(trigger.waiting) >= triggers.MOST_WAITING:
            # A trigger with a full queue reports that instead of growing without end.
            outcome = arrived.ended("skipped", self._now(), None, _full())
            await self._noted(trigger, outcome)
        else:
            outcome = arrived.ended("queued", self._now())
            if all(each.occurrence != arrived.occurrence for each in trigger.waiting):
                await self._noted(trigger, outcome, waiting=(*trigger.waiting, arrived))
                self._repository.changed.set()
        status = await self._status(outcome.run_id)
        return outcome, status

    async def fire(
        self,
        trigger: triggers.Trigger,
        arrived: triggers.Waiting,
        request: StartRequest,
        author: authors.Author,
        asked_by: str | None = None,
    ) -> Started:
        """Start a run that a person orders, even if the trigger is paused or another run is unfinished.

        Args:
            asked_by: Run whose agent or command makes the request, if it names no parent.

        Raises:
            errors.ControlRoomError: the run cannot be started.
        """
        started = await self._runs.start(request, author=author, asked_by=asked_by)
        if not started.existed:
            await self._noted(trigger, arrived.ended("started", self._now(), started.run_id))
        return started

    async def unfinished(self, trigger: triggers.Trigger) -> list[str]:
        """Return the unfinished runs of a trigger, oldest first, including those fired by hand.

        The runs are found by their keys, which includes resumed runs, and runs whose service died before the trigger's
        file named them.

        Raises:
            errors.Unavailable: some run cannot be read now.
        """
        return await self._store.unfinished_under(requests.key_prefix(trigger.trigger_id))

    async def _outcome(
        self, trigger: triggers.Trigger, one: triggers.Waiting, asked_by: str | None = None
    ) -> triggers.Occurrence | None:
        request = requests.start_request(trigger, one.occurrence, one.args)
        # The occurrence may have a run already, if a crash came between its start and its record.
        made = await self._made(request)
        if made is not None:
            known = any(each.run_id == made for each in trigger.history)
            return one.ended("repeated" if known else "started", self._now(), made)
        if trigger.overlap == "queue" and trigger.waiting and trigger.waiting[0] != one:
            # Between the end of a run and the start of the next, a new occurrence must not overtake waiting ones.
            return None
        for run_id in [] if trigger.overlap == "allow" else await self.unfinished(trigger):
            if trigger.overlap == "queue":
                return None
            if trigger.overlap == "skip":
                return one.ended("skipped", self._now(), None, f"run {run_id} is unfinished")
            await self._cancel(run_id, trigger)
        return await self._started(trigger, one, request, asked_by)

    async def _started(
        self, trigger: triggers.Trigger, one: triggers.Waiting, request: StartRequest, asked_by: str | None
    ) -> triggers.Occurrence:
        try:
            started = await self._runs.start(request, author=author_of(trigger), asked_by=asked_by)
        except (errors.WriteFailed, errors.Unavailable):
            raise
        except errors.ControlRoomError as refused:
            place = (trigger.trigger_id, one.occurrence, refused.message)
            _log.warning("trigger %s: occurrence %s starts no run: %s", *place, extra={"code": refused.code})
            return one.ended("refused", self._now(), None, f"{refused.message[:500]} [{refused.code}]")
        return one.ended("started", self._now(), started.run_id)

    async def _made(self, request: StartRequest) -> str | None:
        assert request.idempotency_key is not None
        try:
            return await self._store.find_repeated(request.idempotency_key, request.sha256())
        except errors.Conflict as other:
            # The trigger was changed after the run was started.
            return str(other.detail.get("run_id"))

    async def _cancel(self, run_id: str, trigger: triggers.Trigger) -> None:
        try:
            await self._runs.cancel(run_id, author_of(trigger))
        except (errors.WrongState, errors.NotFound):
            return

    async def _noted(
        self,
        trigger: triggers.Trigger,
        outcome: triggers.Occurrence,
        waiting: tuple[triggers.Waiting, ...] | None = None,
    ) -> triggers.Trigger:
        waiting = trigger.waiting if waiting is None else waiting
        noted = trigger.noted(outcome, waiting=waiting, last_run_id=outcome.run_id or trigger.last_run_id)
        await self._repository.put(noted)
        return noted

    async def _status(self, run_id: str | None) -> str:
        return "" if run_id is None else (await self._store.summary(run_id)).status

    def _now(self) -> str:
        return clock.stamp(self._clock.now())


def _no_longer_queued(trigger: triggers.Trigger) -> triggers.Trigger:
    """Return a trigger whose first waiting occurrence gets its result in place of `queued`."""
    if trigger.kind == "webhook":
        # The sender was answered with it.
        return trigger
    first = trigger.waiting[0].occurrence
    kept = (each for each in trigger.history if (each.occurrence, each.result) != (first, "queued"))
    return dataclasses.replace(trigger, history=tuple(kept))


def author_of(trigger: triggers.Trigger) -> authors.Author:
    """Return the author of the runs that a trigger starts."""
    return authors.Author(name=f"trigger {trigger.trigger_id}", claimed=False, via="trigger")


def _full() -> str:
    return f"{triggers.MOST_WAITING} occurrences wait already"
