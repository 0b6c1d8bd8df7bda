"""Triggers: rules that start runs automatically, and the results of their occurrences."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from app.domain import plain, shapes

Kind: TypeAlias = Literal["schedule", "webhook", "files"]  # Kind of event for which a trigger waits.

Overlap: TypeAlias = Literal["allow", "skip", "queue", "cancel"]
"""What happens to an occurrence while the run of an earlier one is unfinished."""

CatchUp: TypeAlias = Literal["none", "one", "all"]
"""Which occurrences that were missed without a service are made up for."""

Scheme: TypeAlias = Literal["none", "github", "standard"]  # How deliveries of a webhook are signed.

Result: TypeAlias = Literal["started", "repeated", "queued", "skipped", "missed", "refused"]
"""Result of an occurrence."""

MOST_HISTORY = 100  # Most occurrences whose results are kept.
MOST_WAITING = 100  # Most occurrences that wait for their start.


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(shapes.Shape):
    """When runs start; one of `cron`, `every_seconds` and `at`."""

    published_as: ClassVar[str] = "TriggerSchedule"

    cron: str | None = shapes.omitted()  # Five fields of cron, in local time of `timezone`.
    timezone: str = "UTC"  # Time zone of `cron`, by its IANA name.
    every_seconds: int | None = shapes.omitted()
    """Seconds between two runs, counted from the creation of the trigger."""
    at: shapes.Instant | None = shapes.omitted()  # The one instant at which a run starts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(shapes.Shape):
    """Requests that start runs."""

    published_as: ClassVar[str] = "TriggerWebhook"

    scheme: Scheme = "none"
    """How deliveries are signed: `github`, `standard` (Standard Webhooks), or `none`: the address alone admits."""
    events: tuple[str, ...] = ()
    """Only deliveries of these events, by the header `X-GitHub-Event`; empty: all."""
    secret_sha256: str = shapes.internal(default="")  # Hash of the secret part of the address.
    signing_secret: str | None = shapes.internal(default=None)  # Secret with which signatures are made.


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(shapes.Shape):
    """Files that start runs."""

    published_as: ClassVar[str] = "TriggerFiles"

    pattern: str  # The files, as a glob below the trigger's `working_dir`, e.g. `inbox/*.md`.
    settle_seconds: float = 2.0  # How long a file must stay unchanged before it counts as complete.
    existing: Literal["ignore", "start"] = "ignore"
    """What happens to files that exist when the trigger is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence(shapes.Shape):
    """The result of one occurrence."""

    published_as: ClassVar[str] = "TriggerOccurrence"

    occurrence: str  # Name of the occurrence: an instant, the id of a delivery, or the identity of a file.
    due_at: shapes.Instant  # When it was due, or arrived.
    at: shapes.Instant  # When it was processed.
    result: Result
    """`repeated`: its run existed; `missed`: it fell into a time without a service, or the trigger's end."""
    run_id: shapes.RunId | None = None  # The run that it started.
    reason: str | None = None  # Why it started no run.
    subject: str | None = None  # Its subject: the path of a file, or the event of a delivery.


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An occurrence that has not started its run yet."""

    occurrence: str  # Name of the occurrence.
    due_at: str  # When it was due, or arrived.
    args: Mapping[str, plain.Json] = field(default_factory=dict)  # Arguments that it supplies.
    subject: str | None = None  # Its subject.

    def ended(self, result: Result, at: str, run_id: str | None = None, reason: str | None = None) -> Occurrence:
        """Return the result of the occurrence."""
        known = {"occurrence": self.occurrence, "due_at": self.due_at, "subject": self.subject}
        return Occurrence(**known, at=at, result=result, run_id=run_id, reason=reason)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A rule that starts runs of one recipe, with its progress; exactly the content of its file."""

    trigger_id: str  # Id of the trigger.
    name: str  # What people call it.
    kind: Kind  # Kind of event for which it waits.
    recipe_id: str  # Recipe that it starts.
    args: Mapping[str, plain.Json] = field(default_factory=dict)  # Arguments of every run.
    args_from: Mapping[str, str] = field(default_factory=dict)
    """Arguments that each occurrence supplies: JSON pointers into its event."""
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of every run.
    priority: int = 0  # Priority of every run.
    working_dir: str | None = None  # Workspace of every run; None: the project.
    overlap: Overlap = "skip"  # What happens while the run of an earlier occurrence is unfinished.
    catch_up: CatchUp = "one"  # Which missed occurrences are made up for.
    paused: bool = False  # Whether it starts no runs now.
    schedule: Schedule | None = None  # When it starts runs.
    webhook: Webhook | None = None  # Requests that start runs.
    files: Files | None = None  # Files that start runs.
    created_at: str  # When it was created.
    created_by: Mapping[str, plain.Json] | None = None  # Who created it.
    request_sha256: str | None = None
    """Hash that distinguishes a repetition of the request from another request with the same key."""
    updated_at: str  # When a person last changed it.
    revision: int = 1  # Rises with each change by a person.
    cursor: str  # Occurrences of a schedule up to this instant have been processed, or wait.
    last_run_id: str | None = None  # The newest run that it started.
    waiting: tuple[Waiting, ...] = ()  # Occurrences that have not started their runs yet, oldest first.
    history: tuple[Occurrence, ...] = ()  # Newest results, oldest first.
    seen: Mapping[str, str] = field(default_factory=dict)
    """Identity of each file that was processed and still exists, by its path."""

    def noted(self, *results: Occurrence, **changes: Any) -> Trigger:
        """Return the trigger with further results and other changed fields."""
        return dataclasses.replace(self, history=(*self.history, *results)[-MOST_HISTORY:], **changes)

    def noted_newest(self, result: Occurrence) -> Trigger:
        """Return the trigger with a result that replaces earlier equivalent ones.

        A delivery that a sender can repeat without end must not push the other results out of the history.
        """
        gist = _gist(result)
        return dataclasses.replace(self, history=tuple(each for each in self.history if _gist(each) != gist)).noted(
            result
        )

    def to_json(self) -> dict[str, plain.Json]:
        """Return the content of the trigger's file."""
        kept: dict[str, plain.Json] = plain.plain(dataclasses.asdict(self))
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerShown(shapes.Shape):
    """A trigger as clients see it, without secrets."""

    trigger_id: str  # Id of the trigger.
    name: str  # What people call it.
    kind: Kind | None  # Kind of event for which it waits; null: unknown, since its file is damaged.
    recipe_id: str  # Recipe that it starts.
    args: Mapping[str, plain.Json]  # Arguments of every run.
    args_from: Mapping[str, str]  # Arguments that each occurrence supplies: JSON pointers into its event.
    labels: Mapping[str, str]  # Labels of every run.
    priority: int  # Priority of every run.
    working_dir: str | None  # Workspace of every run; null: the project.
    overlap: Overlap  # What happens while the run of an earlier occurrence is unfinished.
    catch_up: CatchUp  # Which missed occurrences are made up for.
    paused: bool  # Whether it starts no runs now.
    schedule: Schedule | None  # When it starts runs.
    webhook: Webhook | None  # Requests that start runs.
    files: Files | None  # Files that start runs.
    next_at: tuple[shapes.Instant, ...]
    """When the next runs start, at most five; while it is paused, when they would start after an unpause now."""
    waiting: int  # Occurrences that have not started their runs yet.
    last_run_id: shapes.RunId | None  # The newest run that it started.
    history: tuple[Occurrence, ...]  # Results of its newest occurrences, newest first, at most 100.
    created_at: shapes.Instant  # When it was created.
    created_by: Mapping[str, plain.Json] | None  # Who created it.
    updated_at: shapes.Instant  # When a person last changed it.
    revision: int  # Rises with each change by a person.
    address: str | None = shapes.omitted()
    """Path to which deliveries are sent, only in the answer that creates the trigger."""
    signing_secret: str | None = shapes.omitted()
    """Secret of the signatures, only in the answer that creates the trigger."""
    error: str | None = shapes.omitted()  # Why its file cannot be used; it starts no runs then.


def damaged(trigger_id: str, why: str) -> TriggerShown:
    """Return the entry of a trigger whose file cannot be used."""
    at = plain.LONG_AGO
    empty = Trigger(
        trigger_id=trigger_id, name=why, kind="files", recipe_id="", paused=True,
        created_at=at, updated_at=at, cursor=at,
    )  # fmt: skip
    return dataclasses.replace(shown(empty, ()), kind=None, error=why)


def shown(trigger: Trigger, next_at: tuple[str, ...], **once: str | None) -> TriggerShown:
    """Return a trigger as clients see it.

    Args:
        once: Fields that only the answer that creates it shows.
    """
    kept = {each.name for each in dataclasses.fields(TriggerShown)} & {
        each.name for each in dataclasses.fields(Trigger)
    }
    fields: dict[str, Any] = {name: getattr(trigger, name) for name in kept}
    fields |= {"history": trigger.history[::-1], "waiting": len(trigger.waiting), "next_at": next_at}
    return TriggerShown(**fields | once)


def of_json(kept: Mapping[str, Any]) -> Trigger:
    """Return the trigger in a file; fields of later versions are omitted.

    Raises:
        TypeError, KeyError, AttributeError: the file contains no trigger, or one of a kind that a later version added.
    """
    fields = dict(kept)
    if fields.get("kind") not in get_args(Kind):
        raise TypeError(f"its kind is {fields.get('kind')!r:.80}")
    for name, shape in (("schedule", Schedule), ("webhook", Webhook), ("files", Files)):
        fields[name] = None if fields.get(name) is None else _made(shape, fields[name])
    if (webhook := fields["webhook"]) is not None:
        fields["webhook"] = dataclasses.replace(webhook, events=tuple(webhook.events))
    fields["waiting"] = tuple(_made(Waiting, each) for each in fields.get("waiting", ()))
    fields["history"] = tuple(_made(Occurrence, each) for each in fields.get("history", ()))
    made: Trigger = _made(Trigger, fields)
    return made


def _gist(result: Occurrence) -> tuple[str | None, ...]:
    return result.result, result.run_id, result.reason, result.subject


def _made(shape: Any, fields: Mapping[str, Any]) -> Any:
    known = {each.name for each in dataclasses.fields(shape)}
    return shape(**{name: value for name, value in fields.items() if name in known})
