"""The repository: all triggers of a data directory, read once and written by one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from app import errors
from app.domain import audit, authors, triggers
from app.engine import document_folders
from app.services import faults

MOST_TRIGGERS = 1000  # Most triggers of a data directory.


class TriggerRepository:
    """Keeps triggers in memory as their files contain them.

    Args:
        log: Audit log that records changes by people.
    """

    def __init__(self, kept: document_folders.Documents, log: audit.AuditLog) -> None:
        self._documents = kept
        self._audit = log
        self._triggers: dict[str, triggers.Trigger] | None = None
        self._damaged: dict[str, errors.Conflict] = {}
        self._reading = asyncio.Lock()
        self._adding = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.changed = asyncio.Event()
        """Set by each change of a person; the waiting task clears it."""
        self.written: Callable[[triggers.Trigger], None] = lambda trigger: None
        """Called with each trigger after it was written."""

    async def all(self) -> list[triggers.Trigger]:
        """Return all triggers, oldest first.

        Raises:
            errors.Unreadable: a file cannot be read now.
        """
        return sorted((await self._all()).values(), key=lambda each: (each.created_at, each.trigger_id))

    async def damaged(self) -> Mapping[str, errors.Conflict]:
        """Return the errors of triggers whose files cannot be used, by their ids."""
        await self._all()
        return self._damaged

    async def find(self, trigger_id: str) -> triggers.Trigger | None:
        """Return a trigger; None if it does not exist, or its file is damaged."""
        return (await self._all()).get(trigger_id)

    async def get(self, trigger_id: str) -> triggers.Trigger:
        """Return a trigger.

        Raises:
            errors.NotFound: `trigger_not_found`.
            errors.Conflict: `file_damaged`.
        """
        if (error := (await self.damaged()).get(trigger_id)) is not None:
            raise error
        if (found := await self.find(trigger_id)) is None:
            raise errors.NotFound(f"there is no trigger {trigger_id!r:.80}", code="trigger_not_found")
        return found

    def lock(self, trigger_id: str) -> asyncio.Lock:
        """Return the lock that a change of a trigger must hold."""
        return self._locks.setdefault(trigger_id, asyncio.Lock())

    async def record(self, author: authors.Author | None, action: str, trigger: triggers.Trigger) -> None:
        """Record a change that a person is about to make.

        Raises:
            errors.WriteFailed: it cannot be written.
        """
        with faults.as_errors():
            facts = {"recipe_id": trigger.recipe_id, "kind": trigger.kind, "revision": trigger.revision}
            await self._audit.append(author, f"trigger.{action}", trigger.trigger_id, facts)

    async def put(self, trigger: triggers.Trigger) -> None:
        """Store a trigger durably.

        Raises:
            errors.WriteFailed: it cannot be written.
            errors.Conflict: `too_many_triggers`.
        """
        known = await self._all()
        if trigger.trigger_id in known:
            await self._write(known, trigger)
            return
        # One at a time; otherwise two requests could both take the last free place.
        async with self._adding:
            if len(known) >= MOST_TRIGGERS:
                raise errors.Conflict(f"there are {MOST_TRIGGERS} triggers; remove one first", code="too_many_triggers")
            await self._write(known, trigger)

    async def remove(self, trigger_id: str) -> None:
        """Remove a trigger, durably.

        Raises:
            errors.WriteFailed: its file cannot be removed.
        """
        with faults.as_errors():
            await self._documents.remove(trigger_id)
        (await self._all()).pop(trigger_id, None)

    async def _write(self, known: dict[str, triggers.Trigger], trigger: triggers.Trigger) -> None:
        with faults.as_errors():
            await self._documents.put(trigger.trigger_id, trigger.to_json())
        known[trigger.trigger_id] = trigger
        self.written(trigger)

    async def _all(self) -> dict[str, triggers.Trigger]:
        if self._triggers is None:
            async with self._reading:
                if self._triggers is None:
                    found = await self._documents.read_all()
                    read, self._damaged = document_folders.read(found, "triggers", "a trigger", _trigger)
                    self._triggers = read
        return self._triggers


def _trigger(name: str, document: Mapping[str, Any]) -> triggers.Trigger:
    trigger = triggers.of_json(document)
    if trigger.trigger_id != name:
        raise ValueError(f"its trigger_id is {trigger.trigger_id!r:.80}")
    return trigger
