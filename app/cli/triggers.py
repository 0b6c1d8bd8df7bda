"""The commands under `triggers`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, Client, JsonObject, use_case
from app.cli.plain_commands import removed, shown
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services.triggers import requests
    from app.services.triggers import triggers as orders

OVERLAPS = ("allow", "skip", "queue", "cancel")  # Policies; a test compares them with the engine's.
CATCH_UPS = ("none", "one", "all")  # Rules for missed occurrences; a test compares them with the engine's.
SCHEMES = ("none", "github", "standard")  # Kinds of signatures; a test compares them with the engine's.


@use_case("GET /api/triggers", answers=list)
async def list_triggers(folder: FolderClient) -> list[JsonObject]:
    """Return all triggers, newest first."""
    return [trigger.to_json() for trigger in await folder.application.unattended.triggers.list_triggers()]


@use_case("GET /api/triggers/{trigger_id}")
async def show_trigger(folder: FolderClient, trigger_id: str) -> JsonObject:
    """Return a trigger."""
    return (await folder.application.unattended.triggers.show(trigger_id)).to_json()


@use_case("POST /api/triggers", Access.CHANGE)
async def add_trigger(folder: FolderClient, new: requests.NewTrigger) -> JsonObject:
    """Create a trigger."""
    return (await folder.application.unattended.triggers.add(new, authors.LOCAL)).trigger.to_json()


@use_case("PATCH /api/triggers/{trigger_id}", Access.CHANGE)
async def edit_trigger(folder: FolderClient, trigger_id: str, edit: requests.TriggerEdit) -> JsonObject:
    """Change a trigger."""
    return (await folder.application.unattended.triggers.edit(trigger_id, edit, authors.LOCAL)).to_json()


@use_case("DELETE /api/triggers/{trigger_id}", Access.CHANGE, answers=None)
async def remove_trigger(folder: FolderClient, trigger_id: str) -> None:
    """Remove a trigger."""
    await folder.application.unattended.triggers.remove(trigger_id, authors.LOCAL)


@use_case("POST /api/triggers/{trigger_id}/fire", Access.CHANGE)
async def fire_trigger(folder: FolderClient, trigger_id: str, order: orders.Fire) -> JsonObject:
    """Start a run of a trigger now; the run belongs to this process."""
    use_cases = folder.application.unattended.triggers
    return (await use_cases.fire(trigger_id, order, authors.LOCAL, owner="process")).to_json()


@click.group()
def triggers() -> None:
    """Start runs by schedule, by webhook, or for each new file."""


@triggers.command()
@click.argument("recipe_id", metavar="RECIPE")
@click.option("--cron", metavar="FIELDS", help="Start runs by cron, e.g. '30 7 * * MON-FRI'.")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron, e.g. Europe/Berlin.  [default: UTC]")
@click.option(
    "--every", "every_seconds", type=arguments.duration, metavar="DURATION", help="Start runs at an interval, e.g. 1h."
)
@click.option("--at", metavar="INSTANT", help="Start one run, e.g. at 2026-02-10T14:30:00+01:00.")
@click.option(
    "--webhook", type=click.Choice(SCHEMES), help="Start runs by webhook; requests are signed by this scheme."
)
@click.option("--event", "events", multiple=True, metavar="NAME", help="Only this GitHub event; repeatable.")
@click.option(
    "--signing-secret-file", type=click.Path(path_type=Path), metavar="FILE", help="File with the signing secret."
)
@click.option("--files", "pattern", metavar="GLOB", help="Start a run for each new file, e.g. 'inbox/*.md'.")
@click.option("--existing", type=click.Choice(("ignore", "start")), help="What to do with files that already exist.")
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
@click.option("--args-file", type=click.Path(path_type=Path), metavar="FILE", help="JSON object of arguments.")
@click.option(
    "--arg-from",
    "pointers",
    multiple=True,
    metavar="NAME=POINTER",
    help="Take an argument from the delivery or file by JSON pointer; repeatable.",
)
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="Label of every run; repeatable.")
@click.option("--name", metavar="TEXT", help="Display name.  [default: the recipe's id]")
@click.option("--working-dir", metavar="DIR", help="Working directory, below the project or absolute.")
@arguments.by_priority
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    help="What to do while an earlier run is unfinished.  [default: skip; with --webhook or --files allow]",
)
@click.option(
    "--catch-up",
    type=click.Choice(CATCH_UPS),
    default="one",
    show_default=True,
    help="Which missed times to catch up on.",
)
@click.option("--paused", is_flag=True, help="Create the trigger paused.")
@arguments.repeatable("Repeating the command returns the same trigger.")
@options.as_json
@options.anywhere
def add(place: options.Place, as_json: bool, **given: Any) -> int:
    """Create a trigger that starts runs of RECIPE.

    The address and the secret of a webhook are shown now, and never again.
    """
    if sum(given[name] is not None for name in ("cron", "every_seconds", "at", "webhook", "pattern")) != 1:
        raise click.UsageError("Give exactly one of --cron, --every, --at, --webhook and --files.")
    return exit_codes.shown(place.ask(add_trigger, _new(**given)), as_json, _one)


def _add_pausing(name: str, meaning: str, *, paused: bool) -> None:
    @triggers.command(name, help=meaning)
    @click.argument("trigger_id")
    @options.as_json
    @options.anywhere
    def pausing(place: options.Place, as_json: bool, trigger_id: str) -> int:
        from app.services.triggers import requests

        edit = requests.TriggerEdit(paused=paused)
        return exit_codes.shown(place.ask(edit_trigger, trigger_id, edit), as_json, _one)


_add_pausing("pause", "Pause a trigger; it starts no runs until it is unpaused.", paused=True)
_add_pausing("unpause", "Resume a paused trigger; occurrences during the pause are not caught up on.", paused=False)


@triggers.command()
@click.argument("trigger_id")
@click.option(
    "--arg",
    "given",
    multiple=True,
    metavar="NAME=TEXT|NAME:=JSON",
    help="Argument that overrides the trigger's; repeatable.",
)
@arguments.repeatable("Repeating the command returns the same run.")
@options.as_json
@options.anywhere
def fire(
    place: options.Place, as_json: bool, trigger_id: str, given: tuple[str, ...], idempotency_key: str | None
) -> int:
    """Start a run of a trigger now; without --server it executes in this process."""
    from app.services.triggers import triggers as trigger_services

    order = trigger_services.Fire(
        args=arguments.collect(given, None),
        idempotency_key=idempotency_key,
        parent_run_id=arguments.parent_run_id(),
        runs_above=arguments.runs_above(),
    )

    async def work(client: Client) -> int:
        from app.cli import following

        started = await client.call(fire_trigger, trigger_id, order)
        if not client.executes:
            return exit_codes.shown(started, as_json, formats.moved)
        output = following.Shown.DETAIL if as_json else following.Shown.TEXT
        return await following.follow(client, started["run_id"], output, answers=True)

    return place.work(work, Access.CHANGE)


@triggers.command()
@click.argument("trigger_id")
@click.option("--cron", metavar="FIELDS", help="New schedule, by cron.")
@click.option("--timezone", metavar="ZONE", help="New time zone of the cron schedule.")
@click.option(
    "--every", "every_seconds", type=arguments.duration, metavar="DURATION", help="New schedule, by interval, e.g. 1h."
)
@click.option("--at", metavar="INSTANT", help="New schedule: one run.")
@click.option("--webhook", "scheme", type=click.Choice(SCHEMES), help="New signature scheme of deliveries.")
@click.option("--event", "events", multiple=True, metavar="NAME", help="Only this GitHub event; repeatable.")
@click.option(
    "--signing-secret-file", type=click.Path(path_type=Path), metavar="FILE", help="File with the new signing secret."
)
@click.option(
    "--new-address",
    is_flag=True,
    default=None,
    help="Generate a new address; the previous one no longer accepts deliveries.",
)
@click.option("--files", "pattern", metavar="GLOB", help="New glob pattern of files.")
@click.option("--existing", type=click.Choice(("ignore", "start")), help="What to do with files that already exist.")
@click.option(
    "--arg",
    "given",
    multiple=True,
    metavar="NAME=TEXT|NAME:=JSON",
    help="New argument; the given ones replace all; repeatable.",
)
@click.option(
    "--arg-from",
    "pointers",
    multiple=True,
    metavar="NAME=POINTER",
    help="New pointer; the given ones replace all; repeatable.",
)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=TEXT", help="New label; the given ones replace all; repeatable."
)
@click.option("--name", metavar="TEXT", help="Display name.")
@click.option("--priority", type=click.IntRange(-100, 100), help="Priority; higher values start first.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="What to do while an earlier run is unfinished.")
@click.option("--catch-up", type=click.Choice(CATCH_UPS), help="Which missed times to catch up on.")
@options.as_json
@options.anywhere
def edit(place: options.Place, as_json: bool, trigger_id: str, **given: Any) -> int:
    """Change a trigger; omitted options keep their values. A new address or secret is shown now, and never again."""
    return exit_codes.shown(place.ask(edit_trigger, trigger_id, _edit(**given)), as_json, _one)


def _edit(
    given: tuple[str, ...],
    pointers: tuple[str, ...],
    labels: tuple[str, ...],
    signing_secret_file: Path | None,
    **rest: Any,
) -> Any:
    from app.services.triggers import requests

    def parts(*names: str) -> dict[str, Any] | None:
        found = {name: rest.pop(name) for name in names}
        # 0 and '' are values, which the service refuses at their place.
        given = {name: value for name, value in found.items() if value is not None and value != ()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()} or None

    schedule, files = parts("cron", "timezone", "every_seconds", "at"), parts("pattern", "existing")
    webhook = parts("scheme", "events", "new_address")
    if signing_secret_file is not None:
        webhook = {**(webhook or {}), "signing_secret": arguments.read_text(signing_secret_file).strip()}
    return requests.TriggerEdit(
        args=arguments.collect(given, None) if given else None,
        args_from=arguments.texts(pointers, None, "--arg-from") if pointers else None,
        labels=arguments.labels(labels) if labels else None,
        schedule=schedule,
        webhook=webhook,
        files=files,
        **rest,
    )


def _new(
    recipe_id: str,
    given: tuple[str, ...],
    args_file: Path | None,
    pointers: tuple[str, ...],
    labels: tuple[str, ...],
    **rest: Any,
) -> Any:
    from app.services.triggers import requests

    schedule = {name: rest.pop(name) for name in ("cron", "timezone", "every_seconds", "at")}
    schedule = {name: value for name, value in schedule.items() if value is not None}
    events, secret, scheme = rest.pop("events"), rest.pop("signing_secret_file"), rest.pop("webhook")
    pattern, existing = rest.pop("pattern"), rest.pop("existing")
    webhook = {"scheme": scheme or "none", "events": list(events)}
    if secret is not None:
        webhook["signing_secret"] = arguments.read_text(secret).strip()
    files = {"pattern": pattern or "", "existing": existing or "ignore"}
    return requests.NewTrigger(
        recipe_id=recipe_id,
        args=arguments.collect(given, args_file),
        args_from=arguments.texts(pointers, None, "--arg-from"),
        labels=arguments.labels(labels),
        schedule=schedule or None,
        webhook=webhook if scheme or events or secret else None,
        files=files if pattern is not None or existing else None,
        **rest,
    )


def _rows(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (one["trigger_id"], one["name"], _state(one), _when(one), next(iter(one["next_at"]), None), _newest(one))
        for one in found
    ]
    return formats.table(("trigger_id", "name", "state", "when", "next", "newest"), rows, none="no triggers")


def _one(found: Mapping[str, Any]) -> str:
    facts = {name: found.get(name) for name in ("trigger_id", "name", "recipe_id", "overlap", "catch_up")}
    coming = f"{', '.join(found['next_at'])}{' (once it is unpaused)' if found['paused'] else ''}"
    facts |= {"state": _state(found), "when": _when(found), "next": found["next_at"] and coming}
    facts |= {name: _pairs(found[name]) for name in ("args", "args_from", "labels")}
    facts |= {"events": ", ".join((found["webhook"] or {}).get("events", ())), "priority": found["priority"]}
    facts |= {"working_dir": found["working_dir"]}
    facts |= {"address": found.get("address"), "signing secret": found.get("signing_secret")}
    width = max(map(len, facts))
    lines = [f"{name:<{width}}  {value}" for name, value in facts.items() if value]
    if not found["history"]:
        return "\n".join(lines)
    rows = [(one["due_at"], one["result"], one["run_id"], one["reason"] or one["subject"]) for one in found["history"]]
    return "\n".join([*lines, "", formats.table(("due_at", "result", "run_id", "about"), rows, whole=True)])


def _pairs(found: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in found.items()
    )


def _state(one: Mapping[str, Any]) -> str:
    if one.get("error"):
        return "damaged"
    waiting = f", {one['waiting']} waiting" if one["waiting"] else ""
    return f"{'paused' if one['paused'] else 'active'}{waiting}"


def _when(one: Mapping[str, Any]) -> str:
    schedule = one["schedule"]
    if one["kind"] is None:
        return "-"
    if schedule is not None:
        cron = f"{schedule.get('cron')} ({schedule['timezone']})"
        every = f"every {schedule.get('every_seconds')} s"
        return cron if schedule.get("cron") else every if schedule.get("every_seconds") else f"at {schedule['at']}"
    return f"files {one['files']['pattern']}" if one["files"] is not None else f"webhook ({one['webhook']['scheme']})"


def _newest(one: Mapping[str, Any]) -> str | None:
    return f"{one['history'][0]['result']} {one['history'][0]['at']}" if one["history"] else None


triggers.add_command(shown(list_triggers, _rows, "List triggers, newest first.", name="list"))
triggers.add_command(
    shown(
        show_trigger,
        _one,
        "Show a trigger, its next times, and the results of its newest occurrences.",
        "trigger_id",
    )
)
triggers.add_command(removed(remove_trigger, "Remove a trigger; its runs are kept.", "trigger_id"))
