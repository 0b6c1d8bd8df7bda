"""The command `confer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from app import errors
from app.cli import arguments, exit_codes, options, terminal, use_cases
from app.cli.client import Client, JsonObject

if TYPE_CHECKING:
    from app.services import conferences


@click.command()
@click.argument("message")
@click.option(
    "--agent", "agents", multiple=True, metavar="ID", help="Agent or archetype to ask; can be the chief; repeatable."
)
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Tool that the chief may call; repeatable.")
@click.option("--no-tools", is_flag=True, help="Do not let the chief call tools.")
@click.option("--require-tool", is_flag=True, help="Fail unless at least one tool call returns a payload.")
@click.option(
    "--max-tool-calls",
    type=click.IntRange(1, 20),
    default=5,
    show_default=True,
    help="Maximum number of tool calls by the chief.",
)
@click.option("--working-dir", metavar="DIR", help="Working directory of the tools, below the project or absolute.")
@click.option("--session", "session_id", metavar="ID", help="Work session of the conference.")
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="Label for finding the run; repeatable.")
@arguments.by_priority
@arguments.repeatable("Repeating the command with the same key returns the same conference.")
@click.option("--detach", is_flag=True, help="With --server: return at once instead of following the run.")
@options.as_json
@options.anywhere
def confer(place: options.Place, as_json: bool, detach: bool, **given: Any) -> int:
    """Ask several agents for their opinion on MESSAGE, given the same evidence, and print the transcript.

    Without --server the conference runs in this process. Ctrl-C stops it so that `runs resume` can continue it.
    """
    new = _conference(**given)
    if detach and place.server is None:
        raise click.UsageError("--detach needs --server: without a service, nothing would execute the conference.")
    if detach:
        return exit_codes.shown(place.ask(use_cases.confer, new), as_json, _accepted)

    from app.cli import following

    async def work(client: Client, started: list[str]) -> int:
        started.append((await client.call(use_cases.confer, new))["run_id"])
        output = following.Shown.NOTHING if as_json else following.Shown.TEXT
        code = await following.follow(client, started[0], output)
        await _show(client, started[0], as_json)
        return code

    return place.work_on_run(work)


def _conference(
    tools: tuple[str, ...], agents: tuple[str, ...], no_tools: bool, labels: tuple[str, ...], **plain: Any
) -> conferences.NewConference:
    from app.services import conferences

    if tools and no_tools:
        raise click.UsageError("Give --tool or --no-tools, not both.")
    return conferences.NewConference(
        agents=agents or None,
        allowed_tools=() if no_tools else tools or None,
        labels=arguments.labels(labels),
        parent_run_id=arguments.parent_run_id(),
        runs_above=arguments.runs_above(),
        **plain,
    )


async def _show(client: Client, run_id: str, as_json: bool) -> None:
    detail = await client.call(use_cases.show_run, run_id)
    closed = "transcript" in detail["cache_summary"]
    if as_json:
        terminal.say_json(detail | {"conference": await _record(client, run_id) if closed else None})
    elif closed:
        terminal.say("")
        terminal.say_reply((await client.call(use_cases.show_slot, run_id, "transcript"))["text"])


async def _record(client: Client, run_id: str) -> JsonObject | None:
    steps = await client.call(use_cases.list_steps, run_id)
    issue_id = next(step["output"]["issue_id"] for step in reversed(steps) if step["key"] == "transcript")
    try:
        facts: JsonObject = (await client.call(use_cases.show_issue, issue_id))["facts"]
    except (errors.NotFound, errors.Conflict):
        # The issue was deleted or damaged meanwhile; the run is shown nevertheless.
        return None
    return {"issue_id": issue_id, **facts}


def _accepted(started: JsonObject) -> str:
    return f"run {started['run_id']} {started['status']}"
