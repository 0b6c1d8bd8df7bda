"""The command `run`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app import errors, interruption
from app.cli import arguments, budgets, exit_codes, formats, options, terminal, use_cases
from app.cli.client import Client
from app.domain import approvals as needs
from app.domain import concurrency, limits

if TYPE_CHECKING:
    from app.services import requests


@click.command()
@click.argument("recipe")
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
@click.option("--args-file", type=click.Path(path_type=Path), metavar="FILE", help="JSON object of arguments.")
@click.option("--description", metavar="TEXT", help="The task, as text.  [default: the recipe's label]")
@click.option("--working-dir", metavar="DIR", help="Working directory, below the project or absolute.")
@click.option("--session", "session_id", metavar="ID", help="Work session that the run belongs to.")
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="Label for finding the run; repeatable.")
@arguments.by_priority
@budgets.run_limits
@click.option("--approvals", type=int, metavar="N", help="Number of keys that must agree at each gate; needs --server.")
@click.option("--not-starter", is_flag=True, help="The starter's own approval does not count; needs --server.")
@click.option(
    "--concurrency", "key", metavar="KEY", help="Limit how many runs with this key are under way at the same time."
)
@click.option(
    "--concurrency-limit", "most", type=click.IntRange(1, 1000), help="Maximum number of these runs.  [default: 1]"
)
@click.option(
    "--concurrency-policy",
    "policy",
    type=click.Choice(["queue", "reject", "cancel_running", "cancel_waiting"]),
    help="What to do at that limit.  [default: queue]",
)
@arguments.repeatable("Repeating the command with the same key returns the same run.")
@click.option("--exclusive", is_flag=True, help="Reject the start while another run of the recipe is unfinished.")
@click.option(
    "--share-workspace", is_flag=True, help="Do not lock the workspace of an agent recipe against other runs."
)
@click.option("--option", "chosen", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One option of the language.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the steps; start nothing.")
@click.option("--detach", is_flag=True, help="With --server: return at once instead of following the run.")
@options.as_json
@options.anywhere
def run(place: options.Place, as_json: bool, dry_run: bool, detach: bool, **given: Any) -> int:
    """Run RECIPE and show its progress.

    Without --server the run executes in this process. Ctrl-C stops it so that `runs resume` can continue it: the
    step in flight gets CONTROL_ROOM_STOP_GRACE_SECONDS to end; if it does not, the resume repeats it. A second Ctrl-C
    does not wait for it, and a third ends the command at once. SIGTERM and the closing of the terminal do the same.
    """
    request = _request(**given)
    try:
        return _carry_out(place, request, as_json, dry_run=dry_run, detach=detach)
    except errors.UnknownRecipe:
        if place.server is None:
            terminal.warn(f"the project is {place.settings().project.project}; --project DIR names another")
        raise
    except errors.InputRefused as error:
        if error.code != "options_invalid":
            raise
        raise _naming_arguments(error, given["chosen"]) from error


def _carry_out(
    place: options.Place, request: requests.StartRequest, as_json: bool, *, dry_run: bool, detach: bool
) -> int:
    if dry_run:
        return _plan(place, request, as_json)
    if detach and place.server is None:
        raise click.UsageError("--detach needs --server: without a service, nothing would execute the run.")
    if detach:
        return _detach(place, request, as_json)

    from app.cli import following

    if place.server is None and request.recipe_id is not None:
        # Before the data directory is made, since the folder may be the wrong one.
        _refuse_unknown(place, request.recipe_id)

    async def work(client: Client, started: list[str]) -> int:
        started.append((await client.call(use_cases.start_run, request))["run_id"])
        output = following.Shown.DETAIL if as_json else following.Shown.TEXT
        return await following.follow(client, started[0], output, answers=True)

    return place.work_on_run(work)


def _refuse_unknown(place: options.Place, recipe_id: str) -> None:
    """Raise for an unknown recipe before a data directory is made: the folder may be the wrong one."""
    config = place.settings()
    if config.project.data_directory.exists():
        return
    from app.bootstrap import reading
    from app.cli import folder_client

    folder_client.refuse_faults(config)

    async def find_recipe() -> None:
        async with reading.opened(config) as project:
            project.catalogue.find(recipe_id)

    interruption.run(find_recipe())


def _request(
    recipe: str,
    given: tuple[str, ...],
    args_file: Path | None,
    chosen: tuple[str, ...],
    labels: tuple[str, ...],
    approvals: int | None,
    not_starter: bool,
    key: str | None,
    most: int | None,
    policy: Any,
    **plain: Any,
) -> requests.StartRequest:
    from app.services import requests

    given_rules: dict[str, Any] = {
        name: value for name, value in (("limit", most), ("policy", policy)) if value is not None
    }
    if key is None and given_rules:
        raise click.UsageError(f"--concurrency-{next(iter(given_rules))} belongs to --concurrency KEY: give that, too.")
    return requests.StartRequest(
        recipe_id=recipe,
        concurrency=None if key is None else concurrency.Concurrency(key=key, **given_rules),
        limits=limits.RunLimits(**{name: plain.pop(name) for name in limits.RANGES}),
        args=arguments.collect(given, args_file),
        options=arguments.collect(chosen, None, "--option"),
        labels=arguments.labels(labels),
        approvals=needs.Approvals(count=approvals or 1, not_starter=not_starter) if approvals or not_starter else None,
        parent_run_id=arguments.parent_run_id(),
        runs_above=arguments.runs_above(),
        **plain,
    )


def _naming_arguments(error: errors.InputRefused, chosen: tuple[str, ...]) -> errors.InputRefused:
    """Return an error that shows how to pass an argument that was given as an option."""
    named = [flaw.path.removeprefix("$.options.") for flaw in error.flaws if flaw.code == "not_an_option"]
    given = [pair for pair in chosen if pair.partition("=")[0].removesuffix(":") in named]
    if not given:
        return error
    instead = " ".join(f"--arg {shlex.quote(pair)}" for pair in given)
    message = f"{', '.join(named)}: an argument of the recipe, not an option of its language; write {instead}"
    return errors.RequestInvalid(message, code=error.code)


def _plan(place: options.Place, request: requests.StartRequest, as_json: bool) -> int:
    plan = place.ask(use_cases.plan_run, request)
    if plan["graph"] is None:
        raise refusal(plan["problems"])
    terminal.show(plan, as_json, formats.plan)
    return exit_codes.ExitCode.DONE if plan["ok"] else exit_codes.of_error(errors.NotReady())


def refusal(problems: Sequence[Mapping[str, Any]]) -> errors.InputRefused:
    """Return the error for the problems that a service reports in a plan, the same that the folder raises."""
    flaws = [
        errors.Flaw(path=flaw["path"], message=flaw["message"], code=flaw["code"], line=flaw.get("line"))
        for flaw in problems
    ]
    first = flaws[0]
    is_unknown = first.code == errors.UnknownRecipe.default_code
    kind = errors.UnknownRecipe if is_unknown else errors.RequestInvalid
    return kind(first.message, code=first.code, flaws=flaws)


def _detach(place: options.Place, request: requests.StartRequest, as_json: bool) -> int:
    started = place.ask(use_cases.start_run, request)
    if as_json:
        terminal.say_json(started)
    else:
        terminal.say(f"run {started['run_id']} {started['status']}")
    return exit_codes.ExitCode.DONE
