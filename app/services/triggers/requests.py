"""Requests for triggers, checked as values and against the recipe before any effect."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, get_args

from app import clock, errors
from app.domain import plain, triggers
from app.services import arguments, requests
from app.services.triggers import pointers, schedules

NAME_CHARACTERS = 100  # Longest name of a trigger.
MOST_EVENTS = 50  # Most events that a webhook names.

_KINDS = get_args(triggers.Kind)
_SETTLE_SECONDS = (0.5, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrigger:
    """A requested trigger; it has one of `schedule`, `webhook` and `files`."""

    recipe_id: str  # Recipe to start.
    name: str | None = None  # Name for people; None: the recipe's id.
    args: Mapping[str, plain.Json] = field(default_factory=dict)  # Arguments of every run.
    args_from: Mapping[str, str] = field(default_factory=dict)
    """Arguments from each occurrence: JSON pointers into its content."""
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of every run.
    priority: int = 0  # Priority of every run.
    working_dir: str | None = None  # Workspace of every run; None: the project.
    overlap: str | None = None
    """What happens while an earlier run is unfinished; None: `skip` for schedules, otherwise `allow`."""
    catch_up: str = "one"  # Missed occurrences that are made up for.
    paused: bool = False  # Whether the trigger is paused at first.
    schedule: Mapping[str, Any] | None = None  # Times at which it starts runs.
    webhook: Mapping[str, Any] | None = None  # Requests that start runs; may contain a `signing_secret`.
    files: Mapping[str, Any] | None = None  # Files that start runs.
    idempotency_key: str | None = None  # Key by which a repeated request finds the same trigger.

    def sha256(self) -> str:
        """Return the hash that distinguishes a repetition from another request with the same key."""
        asked = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return plain.sha256(plain.canonical(plain.plain(asked) | {"idempotency_key": None}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEdit:
    """Changes to a trigger; None: unchanged."""

    name: str | None = None  # New name.
    args: Mapping[str, plain.Json] | None = None  # New arguments.
    args_from: Mapping[str, str] | None = None  # New pointers.
    labels: Mapping[str, str] | None = None  # New labels.
    priority: int | None = None  # New priority.
    overlap: str | None = None  # New overlap policy.
    catch_up: str | None = None  # New rule for missed occurrences.
    paused: bool | None = None  # Pauses the trigger, or lets it continue.
    schedule: Mapping[str, Any] | None = None  # New schedule.
    webhook: Mapping[str, Any] | None = None
    """Changed settings of its webhook; with `new_address`, the previous address is no longer accepted."""
    files: Mapping[str, Any] | None = None  # Changed settings of its files.
    revision: int | None = None  # Revision that the person saw; the change is refused if it differs now.

    def changes(self) -> dict[str, Any]:
        """Return the changed fields."""
        asked = ((item.name, getattr(self, item.name)) for item in dataclasses.fields(self))
        return {name: value for name, value in asked if value is not None and name != "revision"}


Examine = Callable[[requests.StartRequest], Awaitable[Any]]  # Raises the flaws of a run's request.


def made(new: NewTrigger, trigger_id: str, at: str, author: Mapping[str, Any] | None) -> triggers.Trigger:
    """Return the trigger for a request.

    Raises:
        errors.RequestInvalid: names every flaw of its form.
    """
    given = [kind for kind in _KINDS if getattr(new, kind) is not None]
    if len(given) != 1:
        refuse([_flaw("$", f"needs exactly one of {', '.join(_KINDS)}", "missing")])
    trigger = triggers.Trigger(
        trigger_id=trigger_id,
        name=new.name or new.recipe_id,
        kind=given[0],
        recipe_id=new.recipe_id,
        args=dict(new.args),
        args_from=dict(new.args_from),
        labels=dict(new.labels),
        priority=new.priority,
        working_dir=new.working_dir,
        overlap=new.overlap or ("skip" if given == ["schedule"] else "allow"),  # type: ignore[arg-type]
        catch_up=new.catch_up,  # type: ignore[arg-type]
        paused=new.paused,
        schedule=triggers.Schedule(**new.schedule) if new.schedule is not None else None,
        webhook=_webhook(new.webhook) if new.webhook is not None else None,
        files=triggers.Files(**new.files) if new.files is not None else None,
        created_at=at,
        created_by=author,
        updated_at=at,
        cursor=at,
        request_sha256=new.sha256() if new.idempotency_key else None,
    )
    refuse([*flaws(trigger)] or [*_past(trigger, at)])
    return trigger


def edited(trigger: triggers.Trigger, edit: TriggerEdit, at: str) -> triggers.Trigger:
    """Return a changed trigger; a new schedule, or the end of a pause, takes effect from now on.

    Raises:
        errors.RequestInvalid: names every flaw of its form.
    """
    changes = edit.changes()
    if not changes:
        refuse([_flaw("$", "changes nothing", "missing")])
    other = [kind for kind in _KINDS if kind in changes and kind != trigger.kind]
    refuse([_flaw(f"$.{kind}", f"the trigger has none: its kind is {trigger.kind}") for kind in other])
    if edit.schedule is not None and trigger.schedule is not None:
        changes["schedule"] = _other_schedule(trigger.schedule, edit.schedule)
    if edit.webhook is not None and trigger.webhook is not None:
        changes["webhook"] = _other_webhook(trigger.webhook, edit.webhook)
    if edit.files is not None and trigger.files is not None:
        changes["files"] = dataclasses.replace(trigger.files, **edit.files)
    changed: triggers.Trigger = dataclasses.replace(trigger, **changes, updated_at=at, revision=trigger.revision + 1)
    if changed.schedule != trigger.schedule or (trigger.paused and not changed.paused):
        changed = dataclasses.replace(changed, cursor=at)
    refuse([*flaws(changed, trigger)] or [*(_past(changed, at) if changed.schedule != trigger.schedule else ())])
    return changed


async def check(trigger: triggers.Trigger, examine: Examine, known: Callable[[str], frozenset[str] | None]) -> None:
    """Refuse a trigger whose recipe, arguments, labels or folder could not start a run.

    Args:
        known: Returns the arguments that a recipe declares; None if it accepts any.

    Raises:
        errors.RequestInvalid: as for the start of the run, except for arguments from occurrences.
    """
    try:
        await examine(start_request(trigger, "check", {}))
    except errors.ArgsInvalid as error:
        brought = {f"$.args.{name}" for name in trigger.args_from}
        left = [flaw for flaw in error.flaws if flaw.path not in brought or flaw.code != arguments.MISSING]
        if left:
            raise errors.ArgsInvalid(error.message, flaws=left, detail=error.detail) from error
    declared = known(trigger.recipe_id)
    refuse(
        [
            _flaw(
                f"$.args_from.{name:.80}", f"recipe {trigger.recipe_id} has no argument {name!r:.80}", "undeclared_arg"
            )
            for name in trigger.args_from
            if declared is not None and name not in declared
        ]
    )


def start_request(trigger: triggers.Trigger, occurrence: str, args: Mapping[str, plain.Json]) -> requests.StartRequest:
    """Return the request for the run of an occurrence; its key ensures at most one run."""
    return requests.StartRequest(
        recipe_id=trigger.recipe_id,
        args={**trigger.args, **args},
        labels=trigger.labels,
        priority=trigger.priority,
        working_dir=trigger.working_dir,
        idempotency_key=f"{key_prefix(trigger.trigger_id)}{occurrence}",
    )


def key_prefix(trigger_id: str) -> str:
    """Return the prefix of the idempotency keys of a trigger's runs."""
    return f"trigger:{trigger_id}:"


def flaws(trigger: triggers.Trigger, before: triggers.Trigger | None = None) -> Iterator[errors.Flaw]:
    """Yield the flaws of a trigger's form, except those that the start of its run would report.

    Args:
        before: The trigger before a change; what would be refused today may stay.
    """
    if not 0 < len(trigger.name.strip()) <= len(trigger.name) <= NAME_CHARACTERS or not trigger.name.isprintable():
        yield _flaw("$.name", f"must be printable, not blank, and have at most {NAME_CHARACTERS} characters")
    for name, choices in (("overlap", triggers.Overlap), ("catch_up", triggers.CatchUp)):
        if (value := getattr(trigger, name)) not in get_args(choices):
            yield _flaw(f"$.{name}", f"must be one of {', '.join(get_args(choices))}, not {value!r:.80}")
    if trigger.schedule is None and trigger.catch_up not in ("one", before and before.catch_up):
        yield _flaw("$.catch_up", "belongs to a schedule; deliveries and files have no missed times")
    for name, pointer in trigger.args_from.items():
        if not pointers.is_pointer(pointer):
            yield _flaw(
                f"$.args_from.{name:.80}", f"{pointer!r:.80} is not a JSON pointer; write it as /repository/name"
            )
        if name in trigger.args:
            yield _flaw(f"$.args_from.{name:.80}", "is given in args, too")
        if trigger.schedule is not None:
            yield _flaw(f"$.args_from.{name:.80}", "belongs to webhooks and files; a schedule brings nothing to read")
    if trigger.schedule is not None:
        yield from schedules.flaws(trigger.schedule)
    if trigger.webhook is not None:
        yield from _webhook_flaws(trigger.webhook, before.webhook if before else None)
    if trigger.files is not None:
        yield from _files_flaws(trigger.files)


def refuse(found: list[errors.Flaw]) -> None:
    """Raise flaws, if any.

    Raises:
        errors.RequestInvalid: a flaw exists.
    """
    if found:
        raise errors.RequestInvalid(f"{found[0].path}: {found[0].message}", flaws=found)


def _webhook(given: Mapping[str, Any]) -> triggers.Webhook:
    return triggers.Webhook(**{**given, "events": tuple(given.get("events") or ())})


def _other_schedule(schedule: triggers.Schedule, given: Mapping[str, Any]) -> triggers.Schedule:
    changes = {name: value for name, value in given.items() if value is not None}
    if changes.keys() & {"cron", "every_seconds", "at"}:
        # Another rule replaces the present one. Only cron has a time zone, which the others do not take over.
        schedule = triggers.Schedule(timezone=schedule.timezone if "cron" in changes else "UTC")
    return dataclasses.replace(schedule, **changes)


def _other_webhook(webhook: triggers.Webhook, given: Mapping[str, Any]) -> triggers.Webhook:
    changes = {name: value for name, value in given.items() if name != "new_address"}
    if "events" in changes:
        changes["events"] = tuple(changes["events"] or ())
    if given.get("new_address"):
        changes["secret_sha256"] = ""
    if given.get("scheme", webhook.scheme) != webhook.scheme:
        # A secret is valid only for its scheme.
        changes = {"signing_secret": None, **changes}
    return dataclasses.replace(webhook, **changes)


def _past(trigger: triggers.Trigger, at: str) -> Iterator[errors.Flaw]:
    schedule = trigger.schedule
    if schedule is not None and schedule.at is not None and clock.instant(schedule.at) <= clock.instant(at):
        yield _flaw("$.schedule.at", f"{schedule.at!r:.80} is not in the future")


def _webhook_flaws(webhook: triggers.Webhook, before: triggers.Webhook | None) -> Iterator[errors.Flaw]:
    if webhook.scheme not in get_args(triggers.Scheme):
        yield _flaw("$.webhook.scheme", f"must be one of {', '.join(get_args(triggers.Scheme))}")
    if webhook.events and webhook.scheme != "github":
        yield _flaw("$.webhook.events", "belongs to the scheme github, whose deliveries name their event")
    if len(webhook.events) > MOST_EVENTS or not all(re.fullmatch(r"[a-z_]{1,64}", each) for each in webhook.events):
        yield _flaw("$.webhook.events", f"must be at most {MOST_EVENTS} names of events such as push")
    secret = webhook.signing_secret
    if secret is not None and webhook.scheme == "none":
        yield _flaw("$.webhook.signing_secret", "belongs to a scheme: github or standard")
    # One of an earlier version may be shorter; it stays until an edit brings another.
    is_kept = before is not None and (secret, webhook.scheme) == (before.signing_secret, before.scheme)
    if (
        secret is not None
        and not is_kept
        and (reason := pointers.weakness(secret, standard=webhook.scheme == "standard"))
    ):
        yield _flaw("$.webhook.signing_secret", reason)


def _files_flaws(files: triggers.Files) -> Iterator[errors.Flaw]:
    path = PurePosixPath(files.pattern)
    if not files.pattern or len(files.pattern) > 500 or "\0" in files.pattern or files.pattern.endswith("/"):
        yield _flaw("$.files.pattern", "must be a glob of at most 500 characters, such as inbox/*.md")
    if path.is_absolute() or ".." in path.parts or "**" in files.pattern:
        yield _flaw("$.files.pattern", "must be relative to working_dir, without .. and **")
    if not _SETTLE_SECONDS[0] <= files.settle_seconds <= _SETTLE_SECONDS[1]:
        yield _flaw("$.files.settle_seconds", f"must be from {_SETTLE_SECONDS[0]} to {_SETTLE_SECONDS[1]}")
    if files.existing not in ("ignore", "start"):
        yield _flaw("$.files.existing", "must be ignore or start")


def _flaw(path: str, message: str, code: str = "invalid") -> errors.Flaw:
    return errors.Flaw(path=path, code=code, message=message)
