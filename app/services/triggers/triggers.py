"""Triggers: list, create, change, remove and fire them."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app import clock, errors
from app.domain import authors, plain, triggers
from app.services import requests as run_requests
from app.services import starting, voting
from app.services.requests import Started
from app.services.triggers import drops, requests, schedules
from app.services.triggers.firing import Firing, author_of
from app.services.triggers.repository import TriggerRepository
from app.services.workspaces import Workspaces
from app.tools import reserved

NEXT = 5  # Future occurrences that are shown.


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Result of a request for a new trigger."""

    trigger: triggers.TriggerShown  # The trigger; a new one with the secrets that are shown only once.
    existed: bool  # Whether an earlier request with the same idempotency key created it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """An order to start a run of a trigger now."""

    args: Mapping[str, plain.Json] = dataclasses.field(default_factory=dict)
    """Arguments that override those of the trigger."""
    idempotency_key: str | None = None  # Key by which a repeated order finds the same run.
    parent_run_id: str | None = None  # Run that gives the order.
    runs_above: int | None = None  # Number of runs above the new one, if the parent may be of another project.


class TriggerQueries:
    """Shows triggers."""

    def __init__(self, repository: TriggerRepository, clock: clock.Clock) -> None:
        self._repository = repository
        self._clock = clock

    async def list_triggers(self) -> list[triggers.TriggerShown]:
        """Return all triggers, newest first, and then those whose files are damaged."""
        found = [self._shown(trigger) for trigger in reversed(await self._repository.all())]
        damaged = await self._repository.damaged()
        return found + [triggers.damaged(trigger_id, error.message) for trigger_id, error in damaged.items()]

    async def show(self, trigger_id: str) -> triggers.TriggerShown:
        """Return a trigger.

        Raises:
            errors.NotFound: `trigger_not_found`.
            errors.Conflict: `file_damaged`.
        """
        return self._shown(await self._repository.get(trigger_id))

    def _shown(self, trigger: triggers.Trigger, **once: str | None) -> triggers.TriggerShown:
        begin = max(self._clock.now(), clock.instant(trigger.cursor))
        coming = itertools.islice(schedules.after(trigger, begin), NEXT)
        return triggers.shown(trigger, tuple(map(clock.stamp, coming)), **once)


class Triggers(TriggerQueries):
    """Creates, changes, removes and fires triggers, too.

    Args:
        declared: Returns the arguments that a recipe declares; None if it accepts any.
    """

    def __init__(
        self,
        *,
        repository: TriggerRepository,
        firing: Firing,
        starter: starting.Starter,
        declared: Callable[[str], frozenset[str] | None],
        workspaces: Workspaces,
        clock: clock.Clock,
        ids: clock.Ids,
    ) -> None:
        super().__init__(repository, clock)
        self._firing = firing
        self._starter = starter
        self._declared = declared
        self._workspaces = workspaces
        self._ids = ids

    async def add(self, new: requests.NewTrigger, author: authors.Author | None) -> Added:
        """Create a trigger, and return it once it is durable; a repeated request with the same key finds the first one.

        Raises:
            errors.RequestInvalid: its form is wrong, or it could start no run of the recipe.
            errors.Conflict: `idempotency_conflict`, `too_many_triggers`, `file_damaged`, `approvals_need_keys`.
            errors.WriteFailed: it cannot be written.
        """
        trigger_id = self._ids.token("trg_") if new.idempotency_key is None else _keyed(new.idempotency_key)
        async with self._repository.lock(trigger_id):
            if (error := (await self._repository.damaged()).get(trigger_id)) is not None:
                raise error
            known = await self._repository.find(trigger_id)
            if known is not None:
                return Added(trigger=self._shown(_repeated(known, new.sha256())), existed=True)
            at = clock.stamp(self._clock.now())
            trigger = requests.made(new, trigger_id, at, None if author is None else author.to_json())
            await self._check(trigger)
            trigger, once = self._with_secrets(trigger)
            trigger = await self._with_baseline(trigger)
            # The audit line is written before the trigger, so that no trigger without an author can fire.
            await self._repository.record(author, "created", trigger)
            await self._repository.put(trigger)
        self._repository.changed.set()
        return Added(trigger=self._shown(trigger, **once), existed=False)

    async def edit(
        self, trigger_id: str, edit: requests.TriggerEdit, author: authors.Author | None
    ) -> triggers.TriggerShown:
        """Change a trigger, and return it once the change is durable; one that has all the values is left as it is.

        Raises:
            errors.RequestInvalid: as `add`, or it changes nothing.
            errors.NotFound: `trigger_not_found`.
            errors.Conflict: `trigger_changed`: its revision differs now; `approvals_need_keys`.
            errors.WriteFailed: it cannot be written.
        """
        async with self._repository.lock(trigger_id):
            trigger = await self._repository.get(trigger_id)
            if edit.revision not in (None, trigger.revision):
                message = f"the trigger {trigger_id} was changed meanwhile; its revision is now {trigger.revision}"
                raise errors.Conflict(message, code="trigger_changed", detail={"revision": trigger.revision})
            changed = requests.edited(trigger, edit, clock.stamp(self._clock.now()))
            if dataclasses.replace(changed, updated_at=trigger.updated_at, revision=trigger.revision) == trigger:
                return self._shown(trigger)
            # A change that does not affect its runs need not be checked against the recipe again.
            if set(edit.changes()) - {"paused", "name", "overlap", "catch_up", "schedule"}:
                await self._check(changed)
            changed, once = self._with_secrets(changed, trigger.webhook)
            if _begins_anew(changed.files, trigger.files):
                changed = await self._with_baseline(changed)
            await self._repository.record(author, _action(edit), changed)
            await self._repository.put(changed)
        self._repository.changed.set()
        return self._shown(changed, **once)

    async def remove(self, trigger_id: str, author: authors.Author | None) -> None:
        """Remove a trigger; its runs are kept and continue.

        Raises:
            errors.NotFound: `trigger_not_found`.
            errors.WriteFailed: it cannot be removed.
        """
        async with self._repository.lock(trigger_id):
            await self._repository.record(author, "removed", await self._repository.get(trigger_id))
            await self._repository.remove(trigger_id)
        self._repository.changed.set()

    async def fire(
        self,
        trigger_id: str,
        order: Fire,
        author: authors.Author,
        *,
        owner: str = "service",
        asked_by: str | None = None,
    ) -> Started:
        """Start a run of a trigger now, even if it is paused or an earlier run is unfinished.

        Args:
            asked_by: Run whose agent or command gives the order, if it names no parent.

        Raises:
            errors.NotFound: `trigger_not_found`.
            errors.ControlRoomError: its run cannot be started.
        """
        async with self._repository.lock(trigger_id):
            trigger = await self._repository.get(trigger_id)
            key = order.idempotency_key
            name = f"by-hand-{self._ids.token('') if key is None else plain.sha256(key.encode())[:32]}"
            wanted = requests.start_request(trigger, name, order.args)
            wanted = dataclasses.replace(
                wanted,
                owner=owner,  # type: ignore[arg-type]
                parent_run_id=order.parent_run_id,
                runs_above=order.runs_above,
            )
            arrived = triggers.Waiting(occurrence=name, due_at=clock.stamp(self._clock.now()))
            return await self._firing.fire(trigger, arrived, wanted, author, asked_by)

    async def _check(self, trigger: triggers.Trigger) -> None:
        async def examine(request: run_requests.StartRequest) -> object:
            start, recipe_version = await asyncio.to_thread(self._starter.examine, request)
            start = dataclasses.replace(start, started_by=author_of(trigger).to_json())
            await voting.refuse_unapprovable(start, self._starter.rules.approvers)
            return start, recipe_version

        await requests.check(trigger, examine, self._declared)

    def _with_secrets(
        self, trigger: triggers.Trigger, before: triggers.Webhook | None = None
    ) -> tuple[triggers.Trigger, dict[str, str | None]]:
        """Return a trigger with its webhook's missing address and secret, and the new ones, which are shown once.

        Args:
            before: The webhook before a change; a secret that stays is not shown again.
        """
        webhook, once = trigger.webhook, dict[str, str | None]()
        if webhook is None:
            return trigger, {}
        # The address is shown once, and only its hash is kept, so that a copy of the data directory cannot fire the
        # trigger. A signing secret must be kept itself, since the service computes signatures with it.
        if not webhook.secret_sha256:
            secret = self._ids.token("", 32)
            once = {"address": f"/hooks/{trigger.trigger_id}/{secret}", "signing_secret": webhook.signing_secret}
            webhook = dataclasses.replace(webhook, secret_sha256=plain.sha256(secret.encode()))
        if webhook.signing_secret is None and webhook.scheme != "none":
            once["signing_secret"] = _signing_secret(webhook.scheme, self._ids)
            webhook = dataclasses.replace(webhook, signing_secret=once["signing_secret"])
        if before is not None and before.signing_secret == webhook.signing_secret:
            once.pop("signing_secret", None)
        return dataclasses.replace(trigger, webhook=webhook), once

    async def _with_baseline(self, trigger: triggers.Trigger) -> triggers.Trigger:
        if trigger.files is None:
            return trigger
        # Existing files are not new, unless the request declares them so.
        pattern, root = trigger.files.pattern, self.root(trigger)
        try:
            found = await asyncio.to_thread(drops.found, root, pattern, [])
        except errors.ToolFailed as failure:
            flaw = errors.Flaw(path="$.files.pattern", code=failure.code, message=failure.message)
            raise errors.RequestInvalid(f"$.files.pattern: {failure.message}", flaws=[flaw]) from failure
        return dataclasses.replace(trigger, seen=(found or {}) if trigger.files.existing == "ignore" else {})

    def root(self, trigger: triggers.Trigger) -> reserved.Root:
        """Return the folder that a trigger watches.

        Raises:
            errors.RequestInvalid: runs may not work in it.
        """
        return self._workspaces.root(self._workspaces.choose(trigger.working_dir))


def _begins_anew(files: triggers.Files | None, before: triggers.Files | None) -> bool:
    """Return whether a change decides again about the files that exist."""
    if files is None or before is None:
        return False
    return files.pattern != before.pattern or (files.existing, before.existing) == ("start", "ignore")


def _action(edit: requests.TriggerEdit) -> str:
    if set(edit.changes()) != {"paused"}:
        return "edited"
    return "paused" if edit.paused else "unpaused"


def _keyed(idempotency_key: str) -> str:
    return f"trg_{plain.sha256(f'trigger {idempotency_key}'.encode())[:24]}"


def _repeated(known: triggers.Trigger, request_sha256: str) -> triggers.Trigger:
    if known.request_sha256 != request_sha256:
        message = f"this idempotency key was used for another request, which made the trigger {known.trigger_id}"
        raise errors.Conflict(message, code="idempotency_conflict", detail={"trigger_id": known.trigger_id})
    return known


def _signing_secret(scheme: str, ids: clock.Ids) -> str:
    key = ids.token("", 32)
    return f"whsec_{base64.b64encode(key.encode()).decode()}" if scheme == "standard" else key
