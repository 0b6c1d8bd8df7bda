"""The commands under `plan` that are about one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from app.cli import arguments, options
from app.cli.plan_changes import changed, detach, revision

_TASK = click.argument("task_id", type=click.IntRange(1), metavar="TASK")
_RECIPE = click.option("--recipe", "recipe_id", metavar="ID", help="Recipe that does it.  [default: the router's]")
_OTHER_RECIPE = click.option(
    "--recipe", "recipe_id", metavar="ID", help="Recipe that does it, in place of the present one."
)
_ARG = click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
_ARGS_FILE = click.option(
    "--args-file", type=click.Path(path_type=Path), metavar="FILE", help="JSON object of arguments."
)
_AFTER = click.option(
    "--after", "deps", multiple=True, type=click.IntRange(1), metavar="TASK", help="Task that must be done before."
)
_DOD = click.option("--dod", metavar="TEXT", help="When it is done, in words for people.")
_ASK = click.option("--ask", "scoping_question", metavar="TEXT", help="What must be answered before it is begun.")


@click.command()
@click.argument("session_id")
@click.argument("description")
@click.option("--id", "number", type=click.IntRange(1), metavar="N", help="Its number.  [default: the next]")
@_RECIPE
@_ARG
@_ARGS_FILE
@_AFTER
@_DOD
@_ASK
@click.option("--idempotency-key", metavar="KEY", help="A repetition with the same key adds no second task.")
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
    """Add a task behind the others."""
    from app.services.plans import requests

    new = requests.NewTask(id=number, args=arguments.collect(given, args_file), dod=dod or "", **fields)
    return changed(place, lambda connected: connected.plans.add_task(session_id, new, revision), as_json)


@click.command()
@click.argument("session_id")
@_TASK
@click.option("--description", metavar="TEXT", help="Another description.")
@_OTHER_RECIPE
@click.option("--any-recipe", is_flag=True, help="Let the router choose the recipe again.")
@_ARG
@_ARGS_FILE
@click.option("--no-args", is_flag=True, help="No arguments of its own.")
@_AFTER
@click.option("--no-deps", is_flag=True, help="Nothing that must be done before.")
@_DOD
@_ASK
@click.option("--no-question", is_flag=True, help="Take its question back.")
@revision
@options.as_json
@options.anywhere
def edit(place: options.Place, as_json: bool, session_id: str, task_id: int, revision: int | None, **given: Any) -> int:
    """Change a task that has not begun, or has failed; what is not named stays."""
    from app.services.plans import requests

    edited = requests.TaskEdit(**_edited(**given))
    return changed(place, lambda connected: connected.plans.edit_task(session_id, task_id, edited, revision), as_json)


@click.command()
@click.argument("session_id")
@_TASK
@revision
@options.as_json
@options.anywhere
def remove(place: options.Place, as_json: bool, session_id: str, task_id: int, revision: int | None) -> int:
    """Remove a task that does not run and that no other one depends on."""
    return changed(place, lambda connected: connected.plans.remove_task(session_id, task_id, revision), as_json)


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
    """Answer the question of a task; where its plan runs, show the changes until it rests."""
    from app.services.plans import requests

    said = requests.Answer(answer=text, args=arguments.collect(given, args_file), recipe_id=recipe_id)
    return changed(
        place,
        lambda connected: connected.plans.answer(session_id, task_id, said, revision),
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
    """Begin a task although something that it depends on is not done, at your own risk."""
    return changed(
        place,
        lambda connected: connected.plans.force_start(session_id, task_id, revision),
        as_json,
        detach=detach,
        follows=True,
    )


@click.command()
@click.argument("session_id")
@_TASK
@click.option("--fresh", is_flag=True, help="By a new run, from its first step; else its run is sent on.")
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
    """Try a failed task again, and show the changes of its plan until it rests."""
    return changed(
        place,
        lambda connected: connected.plans.retry(session_id, task_id, fresh, revision),
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


COMMANDS = (add, edit, remove, answer, force_start, retry)
"""What can be done to a task."""
