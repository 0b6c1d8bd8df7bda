"""The repository: endpoints and their dead letters, read once and written by one process."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

from app import errors
from app.domain import notifications, plain
from app.engine import document_folders

MOST_DEAD = 1000  # Dead letters that an endpoint keeps; the oldest is removed first.

_log = logging.getLogger(__name__)


class DeadLetters:
    """The dead letters of one endpoint."""

    def __init__(self, kept: document_folders.Documents) -> None:
        self._documents = kept
        self._letters: dict[str, notifications.DeadLetter] | None = None
        # Lanes of several runs may give up at the same time, and a person may remove the endpoint meanwhile.
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def all(self) -> list[notifications.DeadLetter]:
        """Return all dead letters, oldest first."""
        if self._letters is not None:
            return _oldest_first(self._letters)
        async with self._turn:
            return _oldest_first(await self._all())

    async def replayed(self) -> list[notifications.DeadLetter]:
        """Return the letters that are to be delivered again."""
        return [letter for letter in await self.all() if letter.replayed]

    async def put(self, name: str, letter: notifications.DeadLetter) -> None:
        """Store a letter durably, and remove the oldest beyond the limit; a removed endpoint stores none.

        Raises:
            errors.StorageFault: it cannot be written.
        """
        async with self._turn:
            if self._is_closed:
                return
            known = await self._all()
            before = _oldest_first(known)
            await self._documents.put(name, plain.plain(dataclasses.asdict(letter)))
            known[name] = letter
            # Only after the new letter is durable.
            for oldest in before[: max(len(known) - MOST_DEAD, 0)]:
                await self._drop(known, oldest.message.message_id)

    async def remove(self, name: str) -> None:
        """Remove a letter, if it exists.

        Raises:
            errors.StorageFault: it cannot be removed.
        """
        async with self._turn:
            await self._drop(await self._all(), name)

    async def close(self) -> None:
        """Remove all letters of a removed endpoint; a delivery that gives up later leaves none.

        Raises:
            errors.StorageFault: a letter cannot be removed.
        """
        async with self._turn:
            self._is_closed = True
            known = await self._all()
            for name in list(known):
                await self._drop(known, name)

    async def _all(self) -> dict[str, notifications.DeadLetter]:
        if self._letters is None:
            found = (await self._documents.read_all()).documents
            self._letters = {name: letter for name, kept in found.items() if (letter := _letter(kept)) is not None}
        return self._letters

    async def _drop(self, known: dict[str, notifications.DeadLetter], name: str) -> None:
        if name in known:
            await self._documents.remove(name)
            del known[name]


class EndpointRepository:
    """Keeps endpoints in memory as their files contain them.

    Args:
        dead: Returns the folder of an endpoint's dead letters, by the endpoint's id.
    """

    def __init__(self, kept: document_folders.Documents, dead: Callable[[str], document_folders.Documents]) -> None:
        self._documents = kept
        self._make_dead = dead
        self._dead: dict[str, DeadLetters] = {}
        self._endpoints: dict[str, notifications.Endpoint] | None = None
        self._damaged: dict[str, errors.Conflict] = {}
        self._reading = asyncio.Lock()
        self._turn = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set by each change; the dispatcher clears it."""
        self.waiting: dict[str, Mapping[str, notifications.Message]] = {}
        """Undelivered messages, by endpoint and id."""

    async def all(self) -> list[notifications.Endpoint]:
        """Return all endpoints, oldest first.

        Raises:
            errors.Unreadable: a file cannot be read now.
        """
        return sorted((await self._all()).values(), key=lambda each: (each.created_at, each.endpoint_id))

    async def damaged(self) -> Mapping[str, errors.Conflict]:
        """Return the errors of endpoints whose files cannot be used, by their ids."""
        await self._all()
        return self._damaged

    async def get(self, endpoint_id: str) -> notifications.Endpoint:
        """Return an endpoint.

        Raises:
            errors.NotFound: `endpoint_not_found`.
            errors.Conflict: `file_damaged`.
        """
        known = await self._all()
        if endpoint_id in self._damaged:
            raise self._damaged[endpoint_id]
        if (found := known.get(endpoint_id)) is None:
            raise errors.NotFound(f"there is no endpoint {endpoint_id!r:.80}", code="endpoint_not_found")
        return found

    def dead_letters(self, endpoint_id: str) -> DeadLetters:
        """Return the dead letters of an endpoint."""
        if endpoint_id not in self._dead:
            self._dead[endpoint_id] = DeadLetters(self._make_dead(endpoint_id))
        return self._dead[endpoint_id]

    async def put(self, endpoint: notifications.Endpoint) -> None:
        """Store an endpoint durably.

        Raises:
            errors.StorageFault: it cannot be written.
        """
        async with self._turn:
            known = await self._all()
            if endpoint.endpoint_id not in known:
                # After a removal, which closes the letters, an idempotency key gives the same id again.
                self._dead.pop(endpoint.endpoint_id, None)
            await self._documents.put(endpoint.endpoint_id, endpoint.to_json())
            known[endpoint.endpoint_id] = endpoint
        self.changed.set()

    async def advance(
        self,
        endpoint_id: str,
        since: str,
        delivered: Iterable[str],
        tried: Mapping[str, notifications.FailedAttempts],
        held_until: str | None,
    ) -> notifications.Endpoint | None:
        """Store the progress of an endpoint, and return its present state; None if it was removed.

        Raises:
            errors.StorageFault: it cannot be written.
        """
        async with self._turn:
            known = await self._all()
            if (before := known.get(endpoint_id)) is None:
                return None
            given_up = tuple(name for name in before.given_up if name in tried)
            endpoint = dataclasses.replace(
                before,
                since=since,
                delivered=tuple(delivered),
                tried=dict(tried),
                given_up=given_up,
                held_until=held_until,
            )
            await self._documents.put(endpoint_id, endpoint.to_json())
            known[endpoint_id] = endpoint
            return endpoint

    async def edit(self, endpoint_id: str, change: Callable[[notifications.Endpoint], notifications.Endpoint]) -> None:
        """Change an endpoint durably, except its progress.

        Raises:
            errors.StorageFault: it cannot be written.
        """
        async with self._turn:
            known = await self._all()
            if (before := known.get(endpoint_id)) is not None:
                endpoint = change(before)
                await self._documents.put(endpoint_id, endpoint.to_json())
                known[endpoint_id] = endpoint
        self.changed.set()

    async def remove(self, endpoint_id: str) -> None:
        """Remove an endpoint with its dead letters, durably.

        Raises:
            errors.StorageFault: a file cannot be removed.
        """
        async with self._turn:
            known = await self._all()
            # The endpoint first: a delivery that ends in between finds no endpoint and leaves no letter.
            await self._documents.remove(endpoint_id)
            known.pop(endpoint_id, None)
        await self.dead_letters(endpoint_id).close()
        self.changed.set()

    async def _all(self) -> dict[str, notifications.Endpoint]:
        if self._endpoints is None:
            async with self._reading:
                if self._endpoints is None:
                    found = await self._documents.read_all()
                    read, self._damaged = document_folders.read(found, "outbox", "an endpoint", _endpoint)
                    self._endpoints = read
        return self._endpoints


def _oldest_first(letters: Mapping[str, notifications.DeadLetter]) -> list[notifications.DeadLetter]:
    return sorted(letters.values(), key=lambda letter: (letter.given_up_at, letter.message.message_id))


def _endpoint(name: str, kept: Mapping[str, object]) -> notifications.Endpoint:
    endpoint = notifications.endpoint_of(kept)
    if endpoint.endpoint_id != name:
        raise ValueError(f"its endpoint_id is {endpoint.endpoint_id!r:.80}")
    return endpoint


def _letter(kept: Mapping[str, object]) -> notifications.DeadLetter | None:
    try:
        return notifications.letter_of(kept)
    except (TypeError, KeyError) as error:
        _log.error("a file of outbox/ is not a dead letter; it is left unchanged: %s", error)
        return None
