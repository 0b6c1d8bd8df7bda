"""Incoming webhooks: accept requests with the secret of their address and a valid signature."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from app import clock, errors
from app.domain import plain, shapes, triggers
from app.services.triggers import pointers
from app.services.triggers.firing import Firing
from app.services.triggers.repository import TriggerRepository

_ID_HEADERS: Mapping[str, tuple[str, ...]] = {
    "github": ("x-github-delivery",),
    "standard": ("webhook-id",),
    "none": ("webhook-id", "idempotency-key", "x-github-delivery"),
}
NAME_OF_UNSIGNED = "unsigned"  # Name of the occurrence in a history for requests without a valid signature.

_NO_SECRET = "0" * 64
_EVENT_CHARACTERS = 80

UNSIGNED = timedelta(minutes=1)
"""Shortest time between two entries in the history about requests without a valid signature."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """A request to the address of a webhook; users read of it as a delivery."""

    headers: Mapping[str, str]  # Its headers, by their lower-case names.
    body: bytes  # Its body, which the signature covers.
    value: plain.Json  # Parsed content of the body.
    asked_by: str | None = None  # Run whose agent or command has sent it.


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutcome(shapes.Shape):
    """Result of a delivery."""

    published_as: ClassVar[str] = "HookDelivery"

    result: triggers.Result  # `started`, `repeated`, `queued` or `skipped`.
    run_id: shapes.RunId | None  # Run that the delivery started; null if the delivery waits or was skipped.
    status: str | None  # State of the run.
    reason: str | None  # Why no run was started.


class Hooks:
    """Accepts requests."""

    def __init__(self, *, repository: TriggerRepository, firing: Firing, clock: clock.Clock, ids: clock.Ids) -> None:
        self._repository = repository
        self._firing = firing
        self._clock = clock
        self._ids = ids

    async def accept(self, trigger_id: str, secret: str, request: HookRequest) -> HookOutcome:
        """Start the run of a request; a repeated request finds its run.

        Raises:
            errors.NotFound: `hook_not_found`: the address does not exist.
            errors.RequestInvalid: `signature_invalid`; `hook_refused`: the run cannot be started, for a reason that
                the trigger's history holds.
            errors.WriteFailed, errors.Unavailable: it may be sent again later.
        """
        # Before the lock, so that requests without a secret do not delay those with one.
        await self._admit(trigger_id, secret, request)
        async with self._repository.lock(trigger_id):
            trigger = await self._repository.find(trigger_id)
            if trigger is None or trigger.webhook is None:
                raise _unknown()
            event = request.headers.get("x-github-event") if trigger.webhook.scheme == "github" else None
            arrived = triggers.Waiting(
                occurrence=self._name(trigger.webhook.scheme, request.headers),
                due_at=clock.stamp(self._clock.now()),
                args=pointers.resolved(request.value, trigger.args_from),
                subject=event and event[:_EVENT_CHARACTERS],
            )
            if (reason := _unwanted(trigger, event)) is not None:
                return await self._noted(trigger, arrived.ended("skipped", arrived.due_at, None, reason))
            # The newest entry is used: an occurrence may have been refused before it was started.
            known = next((each for each in trigger.history[::-1] if each.occurrence == arrived.occurrence), None)
            if known is not None and known.result in ("started", "repeated"):
                return await self._noted(trigger, arrived.ended("repeated", arrived.due_at, known.run_id))
            outcome, status = await self._firing.start_or_queue(trigger, arrived, request.asked_by)
        if outcome.result == "refused":
            message = "the delivery started no run; the history of the trigger says why"
            raise errors.RequestInvalid(message, code="hook_refused")
        return HookOutcome(result=outcome.result, run_id=outcome.run_id, status=status or None, reason=outcome.reason)

    async def _admit(self, trigger_id: str, secret: str, request: HookRequest) -> None:
        trigger = await self._repository.find(trigger_id)
        webhook = trigger.webhook if trigger is not None else None
        expected = _NO_SECRET if webhook is None else webhook.secret_sha256
        # An unknown trigger takes as long as a wrong secret, and gets the same answer.
        given = plain.sha256(secret.encode("utf-8", "replace"))
        if not hmac.compare_digest(given, expected) or webhook is None:
            raise _unknown()
        signing, now = webhook.signing_secret or "", self._clock.now().timestamp()
        headers, body = request.headers, request.body
        unsigned = webhook.scheme == "github" and not pointers.is_signed_github(signing, headers, body)
        if unsigned or (webhook.scheme == "standard" and not pointers.is_signed_standard(signing, headers, body, now)):
            stale = f", or its timestamp differs from now by more than {pointers.TOLERANCE_SECONDS} s"
            message = f"the delivery has no valid signature of the scheme {webhook.scheme}"
            message += stale if webhook.scheme == "standard" else ""
            await self._note_unsigned(trigger_id, message)
            raise errors.RequestInvalid(message, code="signature_invalid")

    async def _note_unsigned(self, trigger_id: str, message: str) -> None:
        # The sender knows only the address, so the history has one entry for it, written only once in a while.
        now = self._clock.now()
        name = {"occurrence": NAME_OF_UNSIGNED, "due_at": clock.stamp(now), "at": clock.stamp(now)}
        refused = triggers.Occurrence(**name, result="refused", reason=f"{message} [signature_invalid]")
        try:
            async with self._repository.lock(trigger_id):
                trigger = await self._repository.find(trigger_id)
                if trigger is not None and not _is_fresh(trigger, refused, now):
                    await self._repository.put(trigger.noted_newest(refused))
        except (errors.WriteFailed, errors.StorageFault) as fault:
            _log.warning("a delivery without a signature is not noted: %s", fault.message, extra={"code": fault.code})

    async def _noted(self, trigger: triggers.Trigger, outcome: triggers.Occurrence) -> HookOutcome:
        # Each request during a pause has its own entry, since none of them is made up for.
        await self._repository.put(trigger.noted(outcome) if trigger.paused else trigger.noted_newest(outcome))
        return HookOutcome(result=outcome.result, run_id=outcome.run_id, status=None, reason=outcome.reason)

    def _name(self, scheme: str, headers: Mapping[str, str]) -> str:
        given = next((headers[name] for name in _ID_HEADERS[scheme] if headers.get(name)), None)
        if given is None:
            return self._ids.token("delivery-")
        return given if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given) else plain.sha256(given.encode())[:32]


def _unwanted(trigger: triggers.Trigger, event: str | None) -> str | None:
    if trigger.paused:
        return "the trigger is paused"
    if event == "ping":
        return "a ping starts no run"
    wanted = trigger.webhook.events if trigger.webhook else ()
    if not wanted or event in wanted:
        return None
    return "the delivery names no event" if event is None else f"the event {event!r:.80} is not wanted"


def _is_fresh(trigger: triggers.Trigger, refused: triggers.Occurrence, now: datetime) -> bool:
    known = [clock.instant(each.at) for each in trigger.history if each.occurrence == refused.occurrence]
    return any(abs(now - at) < UNSIGNED for at in known)


def _unknown() -> errors.NotFound:
    return errors.NotFound("there is nothing at this address", code="hook_not_found")
