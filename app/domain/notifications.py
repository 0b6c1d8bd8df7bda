"""Notifications: messages about runs, and the endpoints that receive them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from app.domain import plain, shapes

Kind: TypeAlias = Literal["waits", "failed", "done", "stalled", "budget", "refused"]
"""Kind of a message: about a run, or `refused`, about an occurrence of a trigger that starts no run."""
Channel: TypeAlias = Literal["webhook", "email", "command"]  # How an endpoint is reached.
MOST_DELIVERED = 2000  # Most ids of delivered messages that an endpoint remembers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(shapes.Shape):
    """A message about a run."""

    published_as: ClassVar[str] = "NotificationMessage"

    message_id: str  # Id of the message; a repeated message has the same id.
    kind: Kind  # Kind of the message.
    at: shapes.Instant  # When the reported event happened.
    run_id: shapes.RunId  # The run; the plan of a question; for `refused`, the trigger.
    recipe_id: str  # Its recipe.
    text: str  # The message in one sentence.
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of the run.
    data: Mapping[str, plain.Json] = field(default_factory=dict)
    """Further facts: `gate_id`, `prompt` and `options` of a gate; `error` of a failure; `reason` of a pause; trigger
    and occurrence of a refusal.
    """

    @property
    def has_run(self) -> bool:
        """Return whether the message is about a run or a plan; a refused occurrence has none."""
        return self.kind != "refused"

    def payload(self) -> dict[str, plain.Json]:
        """Return the payload: type, time and facts, as Standard Webhooks defines them."""
        omitted = ("data", "at") if self.has_run else ("data", "at", "run_id")
        facts = {name: value for name, value in self.to_json().items() if name not in omitted}
        subject = "run" if self.has_run else "trigger"
        return {"type": f"{subject}.{self.kind}", "timestamp": self.at, "data": {**facts, **self.data}}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempts:
    """The failed attempts to deliver a waiting message."""

    run_id: str = ""  # The run of the message.
    kind: Kind | None = None  # Kind of the message.
    attempts: int  # Number of attempts.
    error: str  # Why the newest attempt failed.
    at: str  # When the newest attempt was made.
    next_at: str  # When the next attempt is due.


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A receiver of messages with its progress; exactly the content of its file."""

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
    since: str  # All messages from before this instant were delivered, or are dead letters.
    delivered: tuple[str, ...] = ()
    """Ids of the newest messages that were delivered or given up, oldest first."""
    tried: Mapping[str, FailedAttempts] = field(default_factory=dict)
    """Failed attempts of the refused messages that still wait, by message id."""
    given_up: tuple[str, ...] = ()
    """Messages among them for which a person has ordered no further attempt; each becomes a dead letter."""
    held_until: str | None = None  # Until when the receiver wants no message, as it requested; None: no request.

    def wants(self, message: Message) -> bool:
        """Return whether the endpoint receives a message."""
        name, _, value = (self.label or "").partition(":")
        return (
            (not self.kinds or message.kind in self.kinds)
            and self.recipe_id in (None, message.recipe_id)
            and (self.label is None or message.labels.get(name) == value)
        )

    def to_json(self) -> dict[str, plain.Json]:
        """Return the content of the endpoint's file."""
        kept: dict[str, plain.Json] = plain.plain(dataclasses.asdict(self))
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointShown(shapes.Shape):
    """An endpoint as clients see it, without its secret."""

    published_as: ClassVar[str] = "NotificationEndpoint"

    endpoint_id: str  # Id of the endpoint.
    name: str  # What people call it.
    channel: Channel | None  # How it is reached; null: unknown, since its file is damaged.
    url: str | None  # Address of a webhook.
    to: tuple[str, ...]  # Addresses of e-mail.
    argv: tuple[str, ...]  # Program and arguments of a command.
    kinds: tuple[Kind, ...]  # Kinds of messages that it receives; empty: all.
    recipe_id: str | None  # Only runs of this recipe.
    label: str | None  # Only runs with this label, `name:value`.
    created_at: shapes.Instant  # When it was added.
    waiting: int  # Number of messages that are not delivered yet.
    failing: int  # Number of them whose newest attempt failed.
    attempts: int  # Attempts of the one that was tried most often; 0: none is failing.
    behind: int  # Messages of their runs that are sent after those, as far as the answering process knows.
    last_error: str | None  # Why the newest of these attempts failed, or why its file cannot be used.
    next_try_at: shapes.Instant | None  # When the first of them is tried again.
    dead: int  # Number of messages that were given up and can be replayed.
    signing_secret: str | None = shapes.omitted()
    """Secret of the signatures, only in the answer that adds the endpoint."""
    warning: str | None = shapes.omitted()
    """Why the answering process could not deliver to it now, only in the answer that adds or changes the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingMessage(shapes.Shape):
    """A message whose newest attempt failed and that will be tried again."""

    published_as: ClassVar[str] = "NotificationFailing"

    message_id: str  # Id of the message.
    run_id: str  # Its run.
    kind: Kind | None  # Its kind.
    attempts: int  # Number of attempts.
    error: str  # Why the newest attempt failed.
    tried_at: shapes.Instant  # When the newest attempt was made.
    next_try_at: shapes.Instant  # When the next attempt is due.
    behind: int  # Messages of its run that are sent after it, as far as the answering process knows.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(shapes.Shape):
    """A message that was given up."""

    message: Message  # The message.
    attempts: int  # Number of attempts.
    error: str  # Why the last attempt failed.
    given_up_at: shapes.Instant  # When it was given up.
    replayed: bool = False  # Whether it is being tried again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(shapes.Shape):
    """The result of an attempt to deliver."""

    published_as: ClassVar[str] = "NotificationTried"

    delivered: bool  # Whether the endpoint accepted the message.
    detail: str  # The endpoint's answer, or why the attempt failed.


def damaged(endpoint_id: str, why: str) -> EndpointShown:
    """Return the entry of an endpoint whose file cannot be used."""
    at = plain.LONG_AGO
    empty = Endpoint(endpoint_id=endpoint_id, name="(damaged)", channel="command", created_at=at, since=at)
    return dataclasses.replace(shown(empty, (), 0), channel=None, last_error=why)


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
        # A process beside the service has only the content of the file.
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
    """Return the messages that will be tried again, in the order of their next attempts.

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
    """Return the endpoint in a file; fields of later versions are omitted.

    Raises:
        TypeError, KeyError: the file does not contain an endpoint.
    """
    known = {each.name for each in dataclasses.fields(Endpoint)}
    fields: dict[str, Any] = {name: value for name, value in kept.items() if name in known}
    fields |= {name: tuple(kept.get(name, ())) for name in ("to", "argv", "kinds", "delivered", "given_up")}
    fields["tried"] = {message_id: FailedAttempts(**failed) for message_id, failed in kept.get("tried", {}).items()}
    return Endpoint(**fields)


def letter_of(kept: Mapping[str, Any]) -> DeadLetter:
    """Return the dead letter in a file.

    Raises:
        TypeError, KeyError: the file does not contain a dead letter.
    """
    return DeadLetter(**{**kept, "message": Message(**kept["message"])})
