"""Notifications: messages about runs, and the endpoints that receive them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from app.domain import plain, shapes

Kind: TypeAlias = Literal["waits", "failed", "done", "stalled", "budget"]  # Kind of a message about a run.
Channel: TypeAlias = Literal["webhook", "email", "command"]  # How an endpoint is reached.
MOST_DELIVERED = 2000  # Ids of delivered messages that an endpoint remembers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(shapes.Shape):
    """One message."""

    published_as: ClassVar[str] = "NotificationMessage"

    message_id: str  # Id of the message; a repetition has the same.
    kind: Kind  # Its kind.
    at: shapes.Instant  # When it happened.
    run_id: shapes.RunId  # The run.
    recipe_id: str  # Its recipe.
    text: str  # It, in one sentence.
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of the run.
    data: Mapping[str, plain.Json] = field(default_factory=dict)
    """More: `gate_id`, `prompt` and `options` of a gate; `error` of a failure; `reason` of a pause."""

    def payload(self) -> dict[str, plain.Json]:
        """Return the payload: type, time and facts, as Standard Webhooks defines them."""
        facts = {name: value for name, value in self.to_json().items() if name not in ("data", "at")}
        return {"type": f"run.{self.kind}", "timestamp": self.at, "data": {**facts, **self.data}}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempts:
    """The failed attempts to deliver a message that waits."""

    run_id: str = ""  # The run of the message.
    kind: Kind | None = None  # Kind of the message.
    attempts: int  # How often it was tried.
    error: str  # Why the newest attempt failed.
    at: str  # When that was.
    next_at: str  # When it is tried again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A receiver of messages and its progress; exactly the content of its file."""

    endpoint_id: str  # Id of the endpoint.
    name: str  # What people call it.
    channel: Channel  # How it is reached.
    url: str | None = None  # Address of a webhook.
    signing_secret: str | None = None  # Secret of the signatures of a webhook.
    to: tuple[str, ...] = ()  # Addresses of e-mail.
    argv: tuple[str, ...] = ()  # Program and arguments of a command.
    kinds: tuple[Kind, ...] = ()  # Kinds of messages that it receives; empty: all.
    recipe_id: str | None = None  # Only runs of this recipe.
    label: str | None = None  # Only runs with this label, `name:value`.
    created_at: str  # When it was added.
    request_sha256: str | None = None
    """Hash that distinguishes a repetition of the request from another request with the same key."""
    since: str  # Everything before this instant was delivered, or is a dead letter.
    delivered: tuple[str, ...] = ()
    """Ids of the newest messages that were delivered or given up, oldest first."""
    tried: Mapping[str, FailedAttempts] = field(default_factory=dict)
    """Failed attempts of the messages that were refused and wait, by their ids."""
    given_up: tuple[str, ...] = ()
    """Those of them that a person has ordered to attempt no more; each becomes a dead letter."""
    held_until: str | None = None  # Until when the receiver wants no message, as it said; None: it said nothing.

    def wants(self, message: Message) -> bool:
        """Return whether it receives a message."""
        name, _, value = (self.label or "").partition(":")
        return (
            (not self.kinds or message.kind in self.kinds)
            and self.recipe_id in (None, message.recipe_id)
            and (self.label is None or message.labels.get(name) == value)
        )

    def to_json(self) -> dict[str, plain.Json]:
        """Return what the file of the endpoint holds."""
        kept: dict[str, plain.Json] = plain.plain(dataclasses.asdict(self))
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointShown(shapes.Shape):
    """An endpoint as clients see it, without its secret."""

    published_as: ClassVar[str] = "NotificationEndpoint"

    endpoint_id: str  # Id of the endpoint.
    name: str  # What people call it.
    channel: Channel  # How it is reached.
    url: str | None  # Address of a webhook.
    to: tuple[str, ...]  # Addresses of e-mail.
    argv: tuple[str, ...]  # Program and arguments of a command.
    kinds: tuple[Kind, ...]  # Kinds of messages that it receives; empty: all.
    recipe_id: str | None  # Only runs of this recipe.
    label: str | None  # Only runs with this label, `name:value`.
    created_at: shapes.Instant  # When it was added.
    waiting: int  # Messages that are not delivered yet.
    failing: int  # Those of them whose newest attempt failed.
    attempts: int  # How often the one of them that was tried most was tried; 0: none fails.
    behind: int  # Messages of their runs that are sent after those, as far as the process that answers knows.
    last_error: str | None  # Why the newest of these attempts failed.
    next_try_at: shapes.Instant | None  # When the first of them is tried again.
    dead: int  # Messages that were given up, and can be replayed.
    signing_secret: str | None = shapes.omitted()
    """Secret of the signatures, shown only in the answer that adds the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingMessage(shapes.Shape):
    """A message whose newest attempt failed, and that is tried again."""

    published_as: ClassVar[str] = "NotificationFailing"

    message_id: str  # Id of the message.
    run_id: str  # Its run.
    kind: Kind | None  # Its kind.
    attempts: int  # How often it was tried.
    error: str  # Why the newest attempt failed.
    tried_at: shapes.Instant  # When that was.
    next_try_at: shapes.Instant  # When it is tried again.
    behind: int  # Messages of its run that are sent after it, as far as the process that answers knows.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(shapes.Shape):
    """A message that was given up."""

    message: Message  # The message.
    attempts: int  # How often it was tried.
    error: str  # Why the last attempt failed.
    given_up_at: shapes.Instant  # When it was given up.
    replayed: bool = False  # Whether it is being tried again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(shapes.Shape):
    """What came of an attempt to deliver."""

    published_as: ClassVar[str] = "NotificationTried"

    delivered: bool  # Whether the endpoint took it.
    detail: str  # The answer, or why it failed.


def shown(
    endpoint: Endpoint, waiting: Collection[Message], dead: int, signing_secret: str | None = None
) -> EndpointShown:
    """Return an endpoint as clients see it.

    Args:
        waiting: Messages that are not delivered yet.
    """
    own = {each.name for each in dataclasses.fields(Endpoint)} - {"signing_secret"}
    fields: dict[str, Any] = {
        each.name: getattr(endpoint, each.name) for each in dataclasses.fields(EndpointShown) if each.name in own
    }
    tried = sorted(endpoint.tried.values(), key=lambda each: each.at)
    return EndpointShown(
        **fields,
        # A process beside the service knows only what the file holds.
        waiting=max(len(waiting), len(tried)),
        failing=len(tried),
        attempts=max((each.attempts for each in tried), default=0),
        behind=sum(each.behind for each in failing(endpoint, waiting)),
        last_error=tried[-1].error if tried else None,
        next_try_at=min((_next_try(endpoint, each) for each in tried), default=None),
        dead=dead,
        signing_secret=signing_secret,
    )


def failing(endpoint: Endpoint, waiting: Iterable[Message]) -> list[FailingMessage]:
    """Return the messages that are tried again, the one that is tried first at the head.

    Args:
        waiting: Messages that are not delivered yet.
    """
    of_runs = Counter(message.run_id for message in waiting if message.message_id not in endpoint.tried)
    found = [
        FailingMessage(
            message_id=message_id,
            run_id=failed.run_id,
            kind=failed.kind,
            attempts=failed.attempts,
            error=failed.error,
            tried_at=failed.at,
            next_try_at=_next_try(endpoint, failed),
            behind=of_runs[failed.run_id],
        )
        for message_id, failed in endpoint.tried.items()
        if message_id not in endpoint.given_up
    ]
    return sorted(found, key=lambda each: each.next_try_at)


def _next_try(endpoint: Endpoint, failed: FailedAttempts) -> str:
    return max(failed.next_at, endpoint.held_until or "")


def endpoint_of(kept: Mapping[str, Any]) -> Endpoint:
    """Return the endpoint that a file holds; fields of later versions are left out.

    Raises:
        TypeError, KeyError: the file holds none.
    """
    known = {each.name for each in dataclasses.fields(Endpoint)}
    fields: dict[str, Any] = {name: value for name, value in kept.items() if name in known}
    fields |= {name: tuple(kept.get(name, ())) for name in ("to", "argv", "kinds", "delivered", "given_up")}
    fields["tried"] = {message_id: FailedAttempts(**failed) for message_id, failed in kept.get("tried", {}).items()}
    return Endpoint(**fields)


def letter_of(kept: Mapping[str, Any]) -> DeadLetter:
    """Return the dead letter that a file holds.

    Raises:
        TypeError, KeyError: the file holds none.
    """
    return DeadLetter(**{**kept, "message": Message(**kept["message"])})
