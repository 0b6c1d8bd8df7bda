"""Endpoints: list, add, test and remove them, and deliver dead letters again."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import Callable, Mapping

from app import clock, errors
from app.domain import audit, authors, notifications, plain
from app.services import faults
from app.services.notifications import requests
from app.services.notifications.repository import EndpointRepository
from app.services.notifications.senders import CheckingSender, NotDelivered, Sender

MOST_ENDPOINTS = 100  # Most endpoints of a data directory.


class EndpointQueries:
    """Shows endpoints and dead letters."""

    def __init__(self, repository: EndpointRepository) -> None:
        self._repository = repository

    async def list_endpoints(self) -> list[notifications.EndpointShown]:
        """Return all endpoints, newest first, and then those whose files are damaged."""
        found = [await self._shown(endpoint) for endpoint in reversed(await self._repository.all())]
        damaged = await self._repository.damaged()
        return found + [notifications.damaged(endpoint_id, error.message) for endpoint_id, error in damaged.items()]

    async def list_dead(self, endpoint_id: str) -> list[notifications.DeadLetter]:
        """Return the messages that were given up, newest first.

        Raises:
            errors.NotFound: `endpoint_not_found`.
        """
        await self._repository.get(endpoint_id)
        return (await self._repository.dead_letters(endpoint_id).all())[::-1]

    async def list_failing(self, endpoint_id: str) -> list[notifications.FailingMessage]:
        """Return the messages that will be tried again, the next one first.

        Raises:
            errors.NotFound: `endpoint_not_found`.
        """
        endpoint, _ = await self._without_dead(await self._repository.get(endpoint_id))
        return notifications.failing(endpoint, self._repository.waiting.get(endpoint_id, {}).values())

    async def _shown(self, endpoint: notifications.Endpoint, secret: str | None = None) -> notifications.EndpointShown:
        endpoint, dead = await self._without_dead(endpoint)
        given_up = {letter.message.message_id for letter in dead if not letter.replayed}
        pending = self._repository.waiting.get(endpoint.endpoint_id, {})
        waiting = [message for name, message in pending.items() if name not in given_up]
        return notifications.shown(endpoint, waiting, len(dead), secret)

    async def _without_dead(
        self, endpoint: notifications.Endpoint
    ) -> tuple[notifications.Endpoint, list[notifications.DeadLetter]]:
        # The dead letter is written before its message leaves the queue, and the endpoint's file is written last.
        dead = await self._repository.dead_letters(endpoint.endpoint_id).all()
        given_up = {letter.message.message_id for letter in dead if not letter.replayed}
        tried = {name: failed for name, failed in endpoint.tried.items() if name not in given_up}
        return dataclasses.replace(endpoint, tried=tried), dead


class Endpoints(EndpointQueries):
    """Adds, tests and removes endpoints, and delivers dead letters again.

    Args:
        log: Records changes by people.
        refusal: Returns why the service must never contact the address of a webhook; None if it may.
        check_recipe: Raises `errors.UnknownRecipe` if the recipe does not exist; waits for the disk.
    """

    def __init__(
        self,
        *,
        repository: EndpointRepository,
        senders: Mapping[str, Sender],
        log: audit.AuditLog,
        clock: clock.Clock,
        ids: clock.Ids,
        refusal: Callable[[str], str | None] = lambda url: None,
        check_recipe: Callable[[str], object] = lambda recipe_id: None,
    ) -> None:
        super().__init__(repository)
        self._senders = senders
        self._audit = log
        self._clock = clock
        self._ids = ids
        self._refusal = refusal
        self._check_recipe = check_recipe
        self._adding = asyncio.Lock()

    async def add(
        self, new: requests.NewEndpoint, author: authors.Author | None
    ) -> tuple[notifications.EndpointShown, bool]:
        """Add an endpoint durably; return it, and whether an earlier request with the same key added it.

        Raises:
            errors.RequestInvalid: its form is wrong, or the recipe does not exist.
            errors.Conflict: `idempotency_conflict`, `too_many_endpoints`.
            errors.WriteFailed: it cannot be written.
        """
        # From the look-up to the write: a repetition that arrives meanwhile must find this endpoint and its one secret.
        async with self._adding:
            return await self._added(new, author)

    async def edit(
        self, endpoint_id: str, edit: requests.EndpointEdit, author: authors.Author | None
    ) -> notifications.EndpointShown:
        """Change an endpoint durably; waiting messages are sent to it as changed.

        Raises:
            errors.NotFound: `endpoint_not_found`.
            errors.RequestInvalid: its form would be wrong, the recipe does not exist, or no field changes.
            errors.WriteFailed: it cannot be written.
        """
        secret = self._secret()
        before = await self._repository.get(endpoint_id)
        # Tried on the present endpoint, so that an edit that is flawed or no change leaves no entry in the audit log.
        if requests.edited(before, edit, secret) == before:
            return await self._warned(before, None)
        recipe_id = edit.changes.get("recipe_id")
        # A recipe that the endpoint already has may be gone now.
        await self._check(edit.changes.get("url"), None if recipe_id == before.recipe_id else recipe_id)
        with faults.as_errors():
            await self._audit.append(author, "endpoint.edited", endpoint_id, {"fields": sorted(edit.changes)})
            await self._repository.edit(endpoint_id, lambda known: requests.edited(known, edit, secret))
        after = await self._repository.get(endpoint_id)
        renewed = after.signing_secret if after.signing_secret != before.signing_secret else None
        return await self._warned(after, renewed)

    async def remove(self, endpoint_id: str, author: authors.Author | None) -> None:
        """Remove an endpoint; messages that it has not received are dropped.

        Raises:
            errors.NotFound: `endpoint_not_found`.
            errors.WriteFailed: it cannot be removed.
        """
        endpoint = await self._repository.get(endpoint_id)
        with faults.as_errors():
            await self._audit.append(author, "endpoint.removed", endpoint_id, {"channel": endpoint.channel})
            await self._repository.remove(endpoint_id)

    async def test(self, endpoint_id: str) -> notifications.Tried:
        """Send a test message, which belongs to no run, once, and return the result.

        Raises:
            errors.NotFound: `endpoint_not_found`.
        """
        endpoint = await self._repository.get(endpoint_id)
        message = notifications.Message(
            message_id=self._ids.token("msg_test_"),
            kind=endpoint.kinds[0] if endpoint.kinds else "done",
            at=clock.stamp(self._clock.now()),
            run_id="test",
            recipe_id="test",
            text="This is a test of a notification.",
            data={"test": True},
        )
        try:
            detail = await self._senders[endpoint.channel].send(endpoint, message)
        except NotDelivered as failure:
            return notifications.Tried(delivered=False, detail=str(failure))
        return notifications.Tried(delivered=True, detail=detail)

    async def replay(self, endpoint_id: str, message_id: str | None, author: authors.Author | None) -> int:
        """Mark one dead letter, or all, durably for another delivery, and return how many.

        Raises:
            errors.NotFound: `endpoint_not_found`, `message_not_found`.
            errors.WriteFailed: it cannot be written.
        """
        letters = [letter for letter in await self.list_dead(endpoint_id) if not letter.replayed]
        chosen = [letter for letter in letters if message_id in (None, letter.message.message_id)]
        if message_id is not None and not chosen:
            raise errors.NotFound(f"there is no dead letter {message_id!r:.80}", code="message_not_found")
        kept = self._repository.dead_letters(endpoint_id)
        with faults.as_errors():
            await self._audit.append(author, "endpoint.replayed", endpoint_id, {"messages": len(chosen)})
            for letter in chosen:
                await kept.put(letter.message.message_id, dataclasses.replace(letter, replayed=True))
        self._repository.changed.set()
        return len(chosen)

    async def give_up(self, endpoint_id: str, message_id: str | None, author: authors.Author | None) -> int:
        """Give up one message that is tried again, or all, durably, and return how many.

        Each becomes a dead letter, unless the attempt under way delivers it.

        Raises:
            errors.NotFound: `endpoint_not_found`, `message_not_found`.
            errors.WriteFailed: it cannot be written.
        """
        known = [each.message_id for each in await self.list_failing(endpoint_id)]
        chosen = tuple(each for each in known if message_id in (None, each))
        if message_id is not None and not chosen:
            raise errors.NotFound(f"no message {message_id!r:.80} is tried again", code="message_not_found")
        with faults.as_errors():
            await self._audit.append(author, "endpoint.given_up", endpoint_id, {"messages": len(chosen)})
            await self._repository.edit(
                endpoint_id, lambda each: dataclasses.replace(each, given_up=(*each.given_up, *chosen))
            )
        return len(chosen)

    async def _added(
        self, new: requests.NewEndpoint, author: authors.Author | None
    ) -> tuple[notifications.EndpointShown, bool]:
        key, known = new.idempotency_key, {each.endpoint_id: each for each in await self._repository.all()}
        endpoint_id = f"ep_{plain.sha256(key.encode())[:24]}" if key is not None else self._ids.token("ep_")
        if (error := (await self._repository.damaged()).get(endpoint_id)) is not None:
            raise error
        if (found := known.get(endpoint_id)) is not None:
            if found.request_sha256 != new.sha256():
                message = f"this idempotency key was used for another request, which made the endpoint {endpoint_id}"
                raise errors.Conflict(message, code="idempotency_conflict", detail={"endpoint_id": endpoint_id})
            return await self._warned(found), True
        endpoint = requests.made(new, endpoint_id, clock.stamp(self._clock.now()), self._secret())
        await self._check(new.url, new.recipe_id)
        if len(known) >= MOST_ENDPOINTS:
            raise errors.Conflict(f"there are {MOST_ENDPOINTS} endpoints; remove one first", code="too_many_endpoints")
        with faults.as_errors():
            await self._audit.append(author, "endpoint.added", endpoint_id, {"channel": endpoint.channel})
            await self._repository.put(endpoint)
        return await self._warned(endpoint, endpoint.signing_secret), False

    async def _warned(
        self, endpoint: notifications.Endpoint, signing_secret: str | None = None
    ) -> notifications.EndpointShown:
        shown, sender = await self._shown(endpoint, signing_secret), self._senders.get(endpoint.channel)
        if not isinstance(sender, CheckingSender):
            return shown
        return dataclasses.replace(shown, warning=await asyncio.to_thread(sender.lacks, endpoint))

    async def _check(self, url: str | None, recipe_id: str | None) -> None:
        if recipe_id is not None:
            await asyncio.to_thread(self._check_recipe, recipe_id)
        if url and (reason := self._refusal(url)) is not None:
            flaw = errors.Flaw(path="$.url", code="not_public", message=reason)
            raise errors.RequestInvalid(f"{flaw.path}: {reason}", flaws=[flaw])

    def _secret(self) -> str:
        return f"whsec_{base64.b64encode(self._ids.token('', 32).encode()).decode()}"
