"""The commands that continue a run, or begin again from one of its steps, and that preview this."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from app import printable
from app.cli import arguments, exit_codes, formats, options, terminal, use_cases
from app.cli.client import Access, Client, JsonObject, use_case
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services import fork_requests


def _body(run_id: str, request: fork_requests.ForkRequest) -> dict[str, Any]:
    given = {
        "from": request.from_key if request.line is None else request.line,
        "args": request.args,
        "recipe": "current" if request.current_recipe else None,
        "conversation": "new" if request.new_conversation else None,
        "prompt": request.prompt,
        "agent": request.agent,
        "labels": dict(request.labels) or None,
        "parent_run_id": request.parent_run_id,
        "runs_above": request.runs_above,
    }
    return {name: value for name, value in given.items() if value is not None}


@use_case("POST /api/runs/{run_id}/fork", Access.CHANGE, body=_body)
async def fork_run(folder: FolderClient, run_id: str, request: fork_requests.ForkRequest) -> JsonObject:
    """Fork a run; the new run executes in this process."""
    found = await folder.application.store.summary(run_id)
    if found.exclusive_workspace:
        await folder.claims.claim(found.working_dir)
    return (await folder.application.runs.forks.fork(run_id, request, authors.LOCAL, waits=False)).to_json()


def _preview_body(run_id: str, order: fork_requests.Order, request: fork_requests.ForkRequest) -> dict[str, Any]:
    return {"order": order, **_body(run_id, request)}


@use_case("POST /api/runs/{run_id}/preview", Access.EXAMINE, body=_preview_body)
async def preview_order(
    folder: FolderClient, run_id: str, order: fork_requests.Order, request: fork_requests.ForkRequest
) -> JsonObject:
    """Return what a resume or a fork would do, in this process if no service has the folder."""
    application = folder.application
    surroundings = application.explanations.surroundings
    is_executed = bool(surroundings.is_executed(run_id))
    as_it_was = order == "resume" and surroundings.service() is None
    as_it_was = as_it_was and await application.runs.continues_as_it_was(run_id, request.resume())
    return (
        await application.runs.previews.report(run_id, order, request, as_it_was=as_it_was, is_executed=is_executed)
    ).to_json()


def previewed(
    place: options.Place, as_json: bool, run_id: str, order: fork_requests.Order, request: fork_requests.ForkRequest
) -> int:
    """Show what an order would do; the exit code reports whether the service would accept it."""
    found = place.ask(preview_order, run_id, order, request)
    exit_codes.shown(found, as_json, _report)
    return exit_codes.ExitCode.DONE if found["ok"] else exit_codes.ExitCode.FAILED


@click.command()
@click.argument("run_id")
@options.as_json
@options.anywhere
def unpause(place: options.Place, as_json: bool, run_id: str) -> int:
    """Resume a paused run; without --server, execute it in this process."""

    async def work(client: Client) -> int:
        return await _follow_here(client, await client.call(use_cases.unpause_run, run_id), as_json)

    return place.work(work, Access.CHANGE)


@click.command()
@click.argument("run_id")
@click.option("--from", "from_key", metavar="KEY", help="Step to resume from.  [default: the failed step]")
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="Replace an argument; repeatable.")
@click.option("--current-recipe", is_flag=True, help="Continue with the recipe's current version.")
@click.option(
    "--conversation", type=click.Choice(["new"]), help="Start a new conversation with the agent, from the journal."
)
@click.option("--dry-run", is_flag=True, help="Only show which steps would run again.")
@options.as_json
@options.anywhere
def resume(
    place: options.Place,
    as_json: bool,
    run_id: str,
    given: tuple[str, ...],
    conversation: str | None,
    dry_run: bool,
    **how: Any,
) -> int:
    """Resume a failed, cancelled or interrupted run; without --server, execute it in this process."""
    from app.services import fork_requests, requests

    how |= {"args": arguments.collect(given, None) or None, "new_conversation": conversation == "new"}
    if dry_run:
        return previewed(place, as_json, run_id, "resume", fork_requests.ForkRequest(**how))
    request = requests.ResumeRequest(**how)

    async def work(client: Client) -> int:
        return await _follow_here(client, await client.call(use_cases.resume_run, run_id, request), as_json)

    return place.work(work, Access.CHANGE)


@click.command()
@click.argument("run_id")
@click.option(
    "--from", "begin", metavar="KEY|LINE", help="First step performed again.  [default: the first that changes]"
)
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="Replace an argument; repeatable.")
@click.option("--current-recipe", is_flag=True, help="Use the recipe's current version.")
@click.option("--prompt", metavar="TEXT", help="Send TEXT at the step --from instead of the recipe's prompt.")
@click.option("--agent", metavar="ID", help="Ask this agent at the step --from.")
@click.option("--label", "changes", multiple=True, metavar="NAME=TEXT|NAME-", help="Set or remove a label; repeatable.")
@arguments.repeatable("Repeating the command returns the same run.")
@click.option("--dry-run", is_flag=True, help="Only show which steps would run again.")
@options.as_json
@options.anywhere
def fork(
    place: options.Place,
    as_json: bool,
    run_id: str,
    begin: str | None,
    given: tuple[str, ...],
    changes: tuple[str, ...],
    dry_run: bool,
    **how: Any,
) -> int:
    """Start a run with the finished steps of another one; without --server, execute it in this process.

    Steps that would be performed exactly as before are taken over and not paid for again. Files are not restored.
    """
    from app.services import fork_requests

    line = int(begin) if begin is not None and begin.isascii() and begin.isdigit() else None
    request = fork_requests.ForkRequest(
        from_key=begin if line is None else None,
        line=line,
        args=arguments.collect(given, None) or None,
        labels=arguments.label_changes(changes),
        parent_run_id=arguments.parent_run_id(),
        runs_above=arguments.runs_above(),
        **how,
    )
    if dry_run:
        return previewed(place, as_json, run_id, "fork", request)

    async def work(client: Client) -> int:
        forked = await client.call(fork_run, run_id, request)
        if not client.executes:
            return exit_codes.shown(forked, as_json, _forked)
        from app.cli import following

        if as_json:
            return await following.follow(client, forked["run_id"], following.Shown.DETAIL, answers=True)
        shown = functools.partial(terminal.say, _forked(forked))
        return await following.follow(client, forked["run_id"], following.Shown.TEXT, answers=True, first=shown)

    return place.work(work, Access.CHANGE)


def _forked(found: JsonObject) -> str:
    taken = f"{printable.counted(found['taken_over'], 'step')} taken over"
    return printable.one_line(f"run {found['run_id']} {found['status']}: {taken} from {found['forked_from']}")


def _report(found: JsonObject) -> str:
    problems = [f"{flaw['path']}: {flaw['message']}" for flaw in found["problems"]]
    if problems:
        return "\n".join(["refused:", *map(printable.one_line, problems)])
    rows = [
        (step["action"], step["key"], step.get("agent_id") or step.get("tool") or "", step["why"])
        for step in found["steps"]
    ]
    calls = "no limit known" if found["calls_at_most"] is None else str(found["calls_at_most"])
    cost = "no limit known" if found["cost_usd_at_most"] is None else printable.dollars(found["cost_usd_at_most"])
    return "\n".join(
        [
            formats.table(("action", "step", "by", "why"), rows, whole=True),
            f"steps that are kept: {found['taken_over']}; steps that run again: {found['again']}",
            f"calls of agents at most: {calls}; cost at most: {cost}",
            *([printable.one_line(found["note"])] if found["note"] else []),
            *(["no step is left to perform: the run ends at once"] if found["finished"] else []),
            found["workspace_note"],
        ]
    )


async def _follow_here(client: Client, moved: JsonObject, as_json: bool) -> int:
    from app.cli import following

    if not client.executes:
        return exit_codes.shown(moved, as_json, formats.moved)
    output = following.Shown.DETAIL if as_json else following.Shown.TEXT
    return await following.follow(client, client.followed(moved["run_id"]), output, answers=True)
