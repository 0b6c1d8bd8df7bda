"""The scheduler: one task that starts the due occurrences of all triggers, and sleeps until the next."""

# Why: docs/decisions/0330; on Temporal, too: docs/decisions/0376.

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from app import clock, errors, printable
from app.domain import triggers
from app.engine import aio, outages, probes, run_engine
from app.services.triggers import drops, firing, pointers, schedules
from app.services.triggers.firing import Firing
from app.services.triggers.repository import TriggerRepository
from app.services.triggers.triggers import Triggers

LONGEST_SLEEP_SECONDS = 30.0  # Longest sleep while a trigger exists, since the wall clock may be set meanwhile.
SCAN_SECONDS = 2.0  # Pause between two checks of a trigger's folder.
LATE = timedelta(minutes=1)  # An older occurrence counts as missed.

_SET_BACK = timedelta(hours=1)
_RETRY_SECONDS = 10.0

_log = logging.getLogger(__name__)


class TriggerScheduler:
    """Works for the triggers of a data directory; only its service starts it."""

    def __init__(
        self,
        *,
        repository: TriggerRepository,
        firing: Firing,
        triggers: Triggers,
        engine: run_engine.RunEngine,
        clock: clock.Clock,
        probes: probes.Probes,
    ) -> None:
        self._repository = repository
        self._firing = firing
        self._triggers = triggers
        self._engine = engine
        self._clock = clock
        self._probes = probes
        self._settling = drops.Settling()
        self._unread = outages.Outage(_log, "triggers are not read: %s", "triggers are read again")
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, unless it is already started."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="triggers")

    def check_now(self) -> None:
        """Check the triggers now, since another process may have changed them."""
        self._repository.changed.set()

    async def stop(self) -> None:
        """Stop, and wait for the end; occurrences that become due meanwhile are started after the next start."""
        tasks = [task for task in (self._task, *self._waits.values()) if task is not None]
        self._task = None
        await aio.end(*tasks)

    def check(self) -> None:
        """Raise if the task has died.

        Raises:
            errors.Unavailable: `triggers_broken`.
        """
        if (error := aio.failure(self._task)) is not None:
            message = f"triggers do not work: {error!r:.200}; restart the service"
            raise errors.Unavailable(message, code="triggers_broken")

    async def _work(self) -> None:
        while True:
            # Cleared before the turn: a change during the turn starts another one.
            self._repository.changed.clear()
            pause = await self._turn()
            if pause is None:
                self._probes.reach("triggers.idle")
                await self._repository.changed.wait()
            else:
                # The point marks the beginning of the sleep, so that a test can move the clock past it.
                sleep = asyncio.ensure_future(self._clock.sleep(pause))
                await asyncio.sleep(0)
                self._probes.reach("triggers.idle")
                await aio.wait_first(self._repository.changed.wait(), sleep)
            self._probes.reach("triggers.woken")

    async def _turn(self) -> float | None:
        """Start due occurrences, and return the time to sleep; None: until a change."""
        try:
            found = await self._repository.all()
        except errors.StorageFault as fault:
            self._unread.failed(fault.message)
            return _RETRY_SECONDS
        self._unread.worked()
        self._settling.keep({trigger.trigger_id for trigger in found})
        pauses = [pause for trigger in found if (pause := await self._tended(trigger)) is not None]
        return min(pauses, default=None)

    async def _tended(self, trigger: triggers.Trigger) -> float | None:
        if trigger.paused or (trigger.kind == "webhook" and not trigger.waiting):
            return None
        try:
            await self._find_occurrences(trigger)
            left = await self._firing.drain(trigger.trigger_id)
            if left is None or left.paused:
                return None
            if left.waiting and left.trigger_id not in self._waits:
                await self._wait_for(left)
        except firing.HELD_UP as fault:
            _log.warning("trigger %s waits: %s", trigger.trigger_id, fault.message, extra={"code": fault.code})
            return _RETRY_SECONDS
        return self._pause(left)

    async def _find_occurrences(self, trigger: triggers.Trigger) -> None:
        match trigger.kind:
            case "schedule":
                await self._add_due(trigger.trigger_id)
            case "files":
                await self._add_files(trigger.trigger_id)
            case "webhook":
                pass  # Requests add its occurrences.
            case _:
                assert_never(trigger.kind)

    def _pause(self, trigger: triggers.Trigger) -> float | None:
        match trigger.kind:
            case "schedule":
                return self._until_due(trigger)
            case "files":
                return SCAN_SECONDS
            case "webhook":
                return None
            case _:
                assert_never(trigger.kind)

    def _until_due(self, trigger: triggers.Trigger) -> float | None:
        now = self._clock.now()
        begin = max(clock.instant(trigger.cursor), now - LATE)
        upcoming = next(schedules.after(trigger, begin), None)
        if upcoming is None:
            return None
        return min(max((upcoming - now).total_seconds(), 0.01), LONGEST_SLEEP_SECONDS)

    # -- schedules

    async def _add_due(self, trigger_id: str) -> None:
        async with self._repository.lock(trigger_id):
            trigger = await self._repository.find(trigger_id)
            if trigger is None or trigger.schedule is None or trigger.paused:
                return
            advanced = _with_due(trigger, self._clock.now())
            if advanced is not trigger:
                await self._repository.put(advanced)

    # -- files

    async def _add_files(self, trigger_id: str) -> None:
        async with self._repository.lock(trigger_id):
            trigger = await self._repository.find(trigger_id)
            if trigger is None or (files := trigger.files) is None or trigger.paused:
                return
            left_out: list[str] = []
            try:
                root = self._triggers.root(trigger)
                found = await asyncio.to_thread(drops.found, root, files.pattern, left_out)
            except (errors.RequestInvalid, errors.ToolFailed) as failure:
                await self._note_once(trigger, failure.message, trigger.history[-1:])
                return
            if found is None:
                return
            # A link that leads out of the folder, or a name that is not UTF-8, is ignored, and the history records that
            # once.
            if left_out:
                more = f"; {len(left_out) - 1} more like it start nothing" if len(left_out) > 1 else ""
                trigger = await self._note_once(trigger, f"{min(left_out)}{more}", trigger.history)
            new = {path: identity for path, identity in found.items() if trigger.seen.get(path) != identity}
            # A file without a place in the queue stays new, and a later check takes it.
            room = max(triggers.MOST_WAITING - len(trigger.waiting), 0)
            settled = self._settling.settled(trigger_id, new, self._clock.monotonic(), files.settle_seconds)
            ready = dict(sorted(settled.items())[:room])
            seen = {path: identity for path, identity in trigger.seen.items() if path in found} | ready
            if seen == trigger.seen:
                return
            now = clock.stamp(self._clock.now())
            arrived = tuple(
                triggers.Waiting(
                    occurrence=drops.occurrence(path, identity),
                    due_at=now,
                    args=pointers.resolved(drops.payload(root, path, identity), trigger.args_from),
                    subject=path,
                )
                for path, identity in ready.items()
            )
            await self._repository.put(dataclasses.replace(trigger, seen=seen, waiting=(*trigger.waiting, *arrived)))

    async def _note_once(
        self, trigger: triggers.Trigger, reason: str, known: Sequence[triggers.Occurrence]
    ) -> triggers.Trigger:
        if all(each.reason != reason for each in known):
            now = clock.stamp(self._clock.now())
            result = triggers.Occurrence(occurrence="look", due_at=now, at=now, result="refused", reason=reason)
            trigger = trigger.noted_newest(result)
            await self._repository.put(trigger)
        return trigger

    # -- runs that occurrences wait for

    async def _wait_for(self, trigger: triggers.Trigger) -> None:
        run_id = next(iter(await self._firing.unfinished(trigger)), None)
        if run_id is None:
            # The run has ended since, so the next occurrence can start now.
            self._repository.changed.set()
            return
        task = asyncio.create_task(self._awaited(run_id), name=f"trigger {trigger.trigger_id}")
        self._waits[trigger.trigger_id] = task
        task.add_done_callback(lambda _: self._waits.pop(trigger.trigger_id, None))

    async def _awaited(self, run_id: str) -> None:
        try:
            await self._engine.ended(run_id)
        except errors.NotFound:
            pass
        except firing.HELD_UP:
            await self._clock.sleep(_RETRY_SECONDS)
        self._repository.changed.set()


def _with_due(trigger: triggers.Trigger, now: datetime) -> triggers.Trigger:
    """Return a trigger with due occurrences waiting, and those that are not made up for recorded as missed."""
    at = clock.stamp(now)
    if clock.instant(trigger.cursor) > now + _SET_BACK:
        # The clock was set back. Occurrences are due again, and find the runs that they have started.
        return dataclasses.replace(trigger, cursor=at)
    due, more = schedules.due(trigger, now, triggers.MOST_WAITING)
    if not due:
        return trigger
    # Late occurrences are those of a time in which no service ran.
    in_time = [instant for instant in due if now - instant <= LATE]
    kept = {"none": in_time, "one": in_time or due[-1:], "all": due}[trigger.catch_up]
    room = triggers.MOST_WAITING - len(trigger.waiting)
    accepted, missed = kept[:room], [*due[: len(due) - len(kept)], *kept[room:]]
    waiting = tuple(triggers.Waiting(occurrence=schedules.name(one), due_at=clock.stamp(one)) for one in accepted)
    cursor = clock.stamp(due[-1])
    notes = [_missed_note(missed, more, at)] if missed else []
    return trigger.noted(*notes, cursor=cursor, waiting=(*trigger.waiting, *waiting))


def _missed_note(missed: list[datetime], more: bool, at: str) -> triggers.Occurrence:
    count = f"{'more than ' if more else ''}{printable.counted(len(missed), 'occurrence')}"
    first = triggers.Waiting(occurrence=schedules.name(missed[0]), due_at=clock.stamp(missed[0]))
    return first.ended("missed", at, None, f"{count} until {schedules.name(missed[-1])}, not made up for")
