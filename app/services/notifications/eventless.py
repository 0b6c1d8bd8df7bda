"""Eventless messages: those that no run's events contain: questions of plans, and refused occurrences of triggers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from app import clock
from app.domain import notifications, plain, triggers
from app.services.triggers import hooks, repository

KEPT = timedelta(days=7)  # Age up to which a refused occurrence in a trigger's history is a message.


class Source(Protocol):
    """A source of messages besides the events of runs."""

    changed: asyncio.Event  # Set when there may be new messages.

    def again(self) -> None:
        """Make the next drain read everything."""

    async def drain(self) -> list[notifications.Message]:
        """Return the messages that may be new; the same cause always gives the same message."""


class EventlessMessages:
    """Adds the refused occurrences of triggers to another source.

    Args:
        kept: Triggers; their histories are the durable record of refusals.
        masker: Masks secrets in reasons.
        other: The other source, whose `changed` is also set for refusals.
    """

    def __init__(
        self, kept: repository.TriggerRepository, clock: clock.Clock, masker: plain.Masker, other: Source
    ) -> None:
        self._kept = kept
        self._clock = clock
        self._masker = masker
        self._other = other
        self._is_read = False
        self.changed = other.changed
        kept.written = self._note

    def again(self) -> None:
        """Make the next drain read everything."""
        self._is_read = False
        self._other.again()

    async def drain(self) -> list[notifications.Message]:
        """Return the messages that may be new.

        Raises:
            errors.StorageFault: a file cannot be read now; the next drain reads everything.
        """
        found = await self._other.drain()
        if self._is_read:
            return found
        self._is_read = True
        try:
            return [*found, *[message for trigger in await self._kept.all() for message in self._of(trigger)]]
        except BaseException:
            # The messages of the other source are lost with this call.
            self.again()
            raise

    def _note(self, trigger: triggers.Trigger) -> None:
        if trigger.history and trigger.history[-1].result == "refused":
            self._is_read = False
            self.changed.set()

    def _of(self, trigger: triggers.Trigger) -> Iterator[notifications.Message]:
        oldest = clock.stamp(self._clock.now() - KEPT)
        for refused in trigger.history:
            # Who sends a request without a signature is unknown; it must not be able to send messages.
            if refused.result != "refused" or refused.at < oldest or refused.occurrence == hooks.NAME_OF_UNSIGNED:
                continue
            reason = str(self._masker.mask(refused.reason or ""))
            mark = f"{trigger.trigger_id} {refused.occurrence} {refused.at}"
            yield notifications.Message(
                message_id=f"msg_{plain.sha256(mark.encode())[:24]}",
                kind="refused",
                at=refused.at,
                run_id=trigger.trigger_id,
                recipe_id=trigger.recipe_id,
                text=f"The trigger {trigger.name} started no run of {trigger.recipe_id}: {reason}"[:500],
                labels=dict(trigger.labels),
                data={
                    "trigger_id": trigger.trigger_id,
                    "occurrence": refused.occurrence,
                    "due_at": refused.due_at,
                    "subject": refused.subject,
                    "reason": reason,
                },
            )
