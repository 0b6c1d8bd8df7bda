"""The commands under `plan` that change a plan: common parts, and the commands for one task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from app.cli import arguments, exit_codes, options, plan_formats, plan_use_cases
from app.cli.client import Access, Client, JsonObject

revision = click.option(
    "--revision", type=click.IntRange(1), metavar="N", help="Reject the change if the plan's revision is newer."
)
"""Option for the revision that the caller has seen."""

detach = click.option("--detach", is_flag=True, help="With --server: return at once instead of following the plan.")
"""Option to leave the plan to the service."""


_TASK = click.argument("task_id", type=click.IntRange(1), metavar="TASK")
_RECIPE = click.option(
    "--recipe", "recipe_id", metavar="ID", help="Recipe of the task.  [default: chosen by the router]"
)
_OTHER_RECIPE = click.option(
    "--recipe", "recipe_id", metavar="ID", help="Recipe of the task, replacing the current one."
)
_ARG = click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
_ARGS_FILE = click.option(
    "--args-file", type=click.Path(path_type=Path), metavar="FILE", help="JSON object of arguments."
)
_AFTER = click.option(
    "--after",
    "deps",
    multiple=True,
    type=click.IntRange(1),
    metavar="TASK",
    help="Task that this one depends on; repeatable.",
)
_DOD = click.option("--dod", metavar="TEXT", help="Definition of done, as text.")
_ASK = click.option(
    "--ask", "scoping_question", metavar="TEXT", help="Question that must be answered before the task starts."
)


def changed(
    place: options.Place,
    change: Callable[[Client], Awaitable[JsonObject]],
    as_json: bool,
    *,
    detach: bool = False,
    follows: bool = False,
    goes_on: Callable[[JsonObject], bool] = plan_formats.goes_on,
) -> int:
    """Change a plan and show it; if the plan continues, follow it.

    Args:
        follows: Whether to follow a plan of a service, too; one that executes in this process is always followed.
        goes_on: Returns whether the plan continues.
    """
    if detach and place.server is None:
        raise click.UsageError("--detach needs --server: without a service, nothing would execute the plan.")

    from app.cli import plan_following

    async def work(client: Client) -> int:
        found = await change(client)
        if detach or not (follows or client.executes) or not goes_on(found):
            return exit_codes.shown(found, as_json, plan_formats.outline)
        return await plan_following.follow(client, found, as_json)

    return place.work(work, Access.CHANGE)


@click.command()
@click.argument("session_id")
@click.argument("description")
@click.option(
    "--id", "number", type=click.IntRange(1), metavar="N", help="Number of the task.  [default: the next number]"
)
@_RECIPE
@_ARG
@_ARGS_FILE
@_AFTER
@_DOD
@_ASK
@arguments.repeatable("Repeating the command with the same key adds the task once.")
@revision
@options.as_json
@options.anywhere
def add(
    place: options.Place,
    as_json: bool,
    session_id: str,
    revision: int | None,
    number: int | None,
    given: tuple[str, ...],
    args_file: Path | None,
    dod: str | None,
    **fields: Any,
) -> int:
    """Append a task."""
    from app.services.plans import requests

    new = requests.NewTask(id=number, args=arguments.collect(given, args_file), dod=dod or "", **fields)
    return changed(place, lambda client: client.call(plan_use_cases.add_task, session_id, new, revision), as_json)


@click.command()
@click.argument("session_id")
@_TASK
@click.option("--description", metavar="TEXT", help="New description.")
@_OTHER_RECIPE
@click.option("--any-recipe", is_flag=True, help="Let the router choose the recipe again.")
@_ARG
@_ARGS_FILE
@click.option("--no-args", is_flag=True, help="Remove all arguments.")
@_AFTER
@click.option("--no-deps", is_flag=True, help="Remove all dependencies.")
@_DOD
@_ASK
@click.option("--no-question", is_flag=True, help="Remove the scoping question.")
@revision
@options.as_json
@options.anywhere
def edit(place: options.Place, as_json: bool, session_id: str, task_id: int, revision: int | None, **given: Any) -> int:
    """Change a task that has not started, or has failed; omitted fields stay unchanged."""
    from app.services.plans import requests

    edited = requests.TaskEdit(**_edited(**given))
    return changed(
        place, lambda client: client.call(plan_use_cases.edit_task, session_id, task_id, edited, revision), as_json
    )


@click.command()
@click.argument("session_id")
@_TASK
@revision
@options.as_json
@options.anywhere
def remove(place: options.Place, as_json: bool, session_id: str, task_id: int, revision: int | None) -> int:
    """Remove a task that is not running and has no dependents."""
    return changed(
        place, lambda client: client.call(plan_use_cases.remove_task, session_id, task_id, revision), as_json
    )


@click.command()
@click.argument("session_id")
@_TASK
@click.argument("text", metavar="ANSWER")
@_OTHER_RECIPE
@_ARG
@_ARGS_FILE
@revision
@detach
@options.as_json
@options.anywhere
def answer(
    place: options.Place,
    as_json: bool,
    session_id: str,
    task_id: int,
    text: str,
    recipe_id: str | None,
    given: tuple[str, ...],
    args_file: Path | None,
    revision: int | None,
    detach: bool,
) -> int:
    """Answer a task's scoping question; if the plan is running, follow it."""
    from app.services.plans import requests

    answered = requests.ScopingAnswer(answer=text, args=arguments.collect(given, args_file), recipe_id=recipe_id)
    return changed(
        place,
        lambda client: client.call(plan_use_cases.answer_task, session_id, task_id, answered, revision),
        as_json,
        detach=detach,
        follows=True,
    )


@click.command("force-start")
@click.argument("session_id")
@_TASK
@revision
@detach
@options.as_json
@options.anywhere
def force_start(
    place: options.Place, as_json: bool, session_id: str, task_id: int, revision: int | None, detach: bool
) -> int:
    """Start a blocked task before its dependencies are done, at your own risk."""
    return changed(
        place,
        lambda client: client.call(plan_use_cases.force_start_task, session_id, task_id, revision),
        as_json,
        detach=detach,
        follows=True,
    )


@click.command()
@click.argument("session_id")
@_TASK
@click.option("--fresh", is_flag=True, help="Start a new run from the first step instead of resuming.")
@revision
@detach
@options.as_json
@options.anywhere
def retry(
    place: options.Place,
    as_json: bool,
    session_id: str,
    task_id: int,
    fresh: bool,
    revision: int | None,
    detach: bool,
) -> int:
    """Retry a failed task and follow its plan."""
    return changed(
        place,
        lambda client: client.call(plan_use_cases.retry_task, session_id, task_id, fresh, revision),
        as_json,
        detach=detach,
        follows=True,
    )


def _edited(
    given: tuple[str, ...],
    args_file: Path | None,
    deps: tuple[int, ...],
    any_recipe: bool,
    no_args: bool,
    no_deps: bool,
    no_question: bool,
    **texts: str | None,
) -> dict[str, Any]:
    args = arguments.collect(given, args_file)
    for wanted, unwanted, names in (
        (texts["recipe_id"], any_recipe, "--recipe and --any-recipe"),
        (args, no_args, "--arg and --no-args"),
        (deps, no_deps, "--after and --no-deps"),
        (texts["scoping_question"], no_question, "--ask and --no-question"),
    ):
        if wanted and unwanted:
            raise click.UsageError(f"{names} contradict each other.")
    edited: dict[str, Any] = {name: value for name, value in texts.items() if value is not None}
    edited |= {"args": args} if args or no_args or args_file is not None else {}
    edited |= {"deps": deps} if deps or no_deps else {}
    edited |= {"recipe_id": None} if any_recipe else {}
    return edited | ({"scoping_question": None} if no_question else {})


COMMANDS = (add, edit, remove, answer, force_start, retry)  # The commands for a task.
