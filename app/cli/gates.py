"""The commands `gates` and those under it."""

from __future__ import annotations

import functools
from typing import Any

import click
from click.core import ParameterSource

from app.cli import arguments, exit_codes, gate_formats, options, use_cases
from app.cli.client import Access, Client
from app.cli.plain_commands import shown


@click.group(invoke_without_command=True)
@click.option("--run", "run_id", metavar="ID", help="Only gates of this run.")
@click.option("--recipe", "recipe_id", metavar="ID", help="Only gates of runs of this recipe.")
@click.option("--label", metavar="NAME=TEXT", help="Only gates of runs with this label.")
@click.option("--session", "session_id", metavar="ID", help="Only gates of runs of this work session or session plan.")
@options.limit("gates")
@options.as_json
@options.anywhere
@click.pass_context
def gates(context: click.Context, /, place: options.Place, as_json: bool, label: str | None, **filters: Any) -> int:
    """List the open gates of all runs."""
    from app.services import gate_inbox

    if context.invoked_subcommand is not None:
        return _refuse_options(context)
    pair = next(iter(arguments.labels([label]).items())) if label else None
    found = place.ask(use_cases.list_gates, gate_inbox.GateQuery(label=pair, **filters))
    return exit_codes.shown(found, as_json, gate_formats.gates)


gates.add_command(
    shown(use_cases.show_gate, gate_formats.gate, "Show a gate in full, with its answer if any.", "gate_id")
)


@gates.command()
@click.argument("gate_id")
@click.argument("decision")
@click.option("--message", default="", metavar="TEXT", help="Message with the answer; later steps can read it.")
@click.option(
    "--shown", "shown_sha256", metavar="SHA256", help="Reject the answer if the gate now shows something else."
)
@arguments.repeatable("Repeating the answer with the same key returns the first result.")
@options.as_json
@options.anywhere
def answer(place: options.Place, as_json: bool, gate_id: str, **reply: Any) -> int:
    """Answer a question; without --server, continue its run and those that wait for it, and return the exit code."""
    from app.cli import following
    from app.services import gates as gate_services

    async def work(client: Client) -> int:
        decided = await client.call(use_cases.answer_gate, gate_id, gate_services.Reply(**reply))
        text = functools.partial(gate_formats.answered, decision=reply["decision"])
        shown = functools.partial(exit_codes.shown, decided, as_json, text)
        if not client.executes:
            return shown()
        output = following.Shown.NOTHING if as_json else following.Shown.TEXT
        return await following.follow(client, client.followed(decided["run_id"]), output, answers=True, first=shown)

    return place.work(work, Access.CHANGE)


def _refuse_options(context: click.Context) -> int:
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"give options after `{context.invoked_subcommand}`, not before it")
    return exit_codes.ExitCode.DONE
