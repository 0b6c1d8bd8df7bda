"""The commands under `plan` for a plan as a whole."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli import arguments, exit_codes, options, plan_formats, plan_tasks, plan_use_cases
from app.cli.client import Access, Client, JsonObject, UseCase
from app.cli.plan_tasks import changed, detach, revision

if TYPE_CHECKING:
    from app.services.plans import requests

_STATES = ("draft", "approved", "running", "paused", "done", "failed")


@click.group()
def plan() -> None:
    """Create, edit and execute session plans.

    A plan starts only after it is approved. Without --server its tasks run in this process.
    """


@plan.command()
@click.argument("intent", required=False)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="TEXT",
    help="Task of the plan, instead of tasks from the chief; repeatable.",
)
@click.option("--in-order", is_flag=True, help="Make each task depend on the previous one.")
@click.option("--file", "file", type=click.Path(path_type=Path), metavar="FILE", help="JSON file with the whole plan.")
@click.option("--working-dir", metavar="DIR", help="Working directory, below the project or absolute.")
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="Label of the plan's runs; repeatable.")
@click.option(
    "--priority", type=click.IntRange(-100, 100), help="Priority of the plan's runs; higher values start first."
)
@click.option("--no-review", "review", flag_value="off", help="Do not review textual definitions of done.")
@arguments.repeatable("Repeating the command with the same key returns the same plan.")
@detach
@options.as_json
@options.anywhere
def create(place: options.Place, as_json: bool, detach: bool, **given: Any) -> int:
    """Create a plan from INTENT, which the chief splits into tasks, from tasks, or from a file.

    If tasks are given, INTENT is only a title.
    """
    new = _new(**given)
    return changed(
        place,
        lambda client: client.call(plan_use_cases.create_plan, new),
        as_json,
        detach=detach,
        follows=True,
        goes_on=plan_formats.chief_is_at_work,
    )


@plan.command("list")
@click.option("--status", type=click.Choice(_STATES), help="Only plans in this state.")
@options.limit("plans")
@options.as_json
@options.anywhere
def list_(place: options.Place, as_json: bool, **filters: Any) -> int:
    """List plans, newest first."""
    from app.domain import plans as domain_plans

    query = domain_plans.PlanQuery(**filters)
    return exit_codes.shown(place.ask(plan_use_cases.list_plans, query), as_json, plan_formats.plans)


@plan.command()
@click.argument("session_id")
@options.as_json
@options.anywhere
def show(place: options.Place, as_json: bool, session_id: str) -> int:
    """Show a plan as a checklist, with open questions and the next command to type."""
    from app.cli import asking, halting

    async def work(client: Client) -> tuple[JsonObject, list[JsonObject], list[JsonObject]]:
        found = await client.call(plan_use_cases.show_plan, session_id)
        paused = await halting.paused_of_session(client, session_id, plan_formats.HINTS)
        return found, await asking.gates_of_session(client, session_id), paused

    found, gates, paused = place.work(work, Access.EXAMINE)
    pauses = [halting.pause(detail) for detail in paused]
    return exit_codes.shown(found, as_json, lambda plan: plan_formats.plan(plan, gates, pauses))


@plan.command()
@click.argument("session_id")
@revision
@options.anywhere
def delete(place: options.Place, session_id: str, revision: int | None) -> int:
    """Delete a plan with no active tasks. Its runs, receipts and issues are kept."""
    place.ask(plan_use_cases.delete_plan, session_id, revision)
    return exit_codes.ExitCode.DONE


@plan.command()
@click.argument("session_id")
@options.as_json
@options.anywhere
def follow(place: options.Place, as_json: bool, session_id: str) -> int:
    """Show a plan's changes until it needs a person or ends; without --server, execute it in this process."""
    from app.cli import plan_following

    async def work(client: Client) -> int:
        found = await client.call(plan_use_cases.continue_plan, session_id)
        return await plan_following.follow(client, found, as_json)

    return place.work(work, Access.CHANGE)


@plan.command()
@click.argument("session_id")
@click.argument("tasks", nargs=-1, required=True, type=click.IntRange(1), metavar="TASK...")
@revision
@options.as_json
@options.anywhere
def order(place: options.Place, as_json: bool, session_id: str, tasks: tuple[int, ...], revision: int | None) -> int:
    """Reorder the tasks: list all their numbers, each after its dependencies."""
    return changed(
        place, lambda client: client.call(plan_use_cases.reorder_tasks, session_id, tasks, revision), as_json
    )


@plan.command()
@click.argument("session_id")
@click.argument("review", type=click.Choice(("on", "off")), metavar="on|off")
@revision
@options.as_json
@options.anywhere
def review(place: options.Place, as_json: bool, session_id: str, review: str, revision: int | None) -> int:
    """Turn reviews of textual definitions of done on or off; a review that has started continues."""
    return changed(place, lambda client: client.call(plan_use_cases.set_review, session_id, review, revision), as_json)


def _add_decision(name: str, decide: UseCase[[str, int, int | None], JsonObject], meaning: str) -> None:
    @plan.command(name, help=meaning)
    @click.argument("session_id")
    @click.argument("proposal_id", type=click.IntRange(1), metavar="PROPOSAL")
    @revision
    @options.as_json
    @options.anywhere
    def decided(place: options.Place, as_json: bool, session_id: str, proposal_id: int, revision: int | None) -> int:
        return changed(place, lambda client: client.call(decide, session_id, proposal_id, revision), as_json)


_add_decision("accept", plan_use_cases.accept_proposal, "Accept a change that the chief has proposed.")
_add_decision("dismiss", plan_use_cases.dismiss_proposal, "Dismiss a change that the chief has proposed.")


def _add_move(name: str, move: UseCase[[str, int | None], JsonObject], meaning: str, *, follows: bool = False) -> None:
    @options.as_json
    @options.anywhere
    def moved(place: options.Place, as_json: bool, session_id: str, revision: int | None, detach: bool = False) -> int:
        return changed(
            place, lambda client: client.call(move, session_id, revision), as_json, detach=detach, follows=follows
        )

    command = detach(moved) if follows else moved
    plan.command(name, help=meaning)(click.argument("session_id")(revision(command)))


_add_move("approve", plan_use_cases.approve_plan, "Approve a draft plan, so that it can be started.")
_add_move("start", plan_use_cases.start_plan, "Start or continue a plan and follow it.", follows=True)
_add_move("pause", plan_use_cases.pause_plan, "Start no further tasks. Running tasks finish.")
_add_move("resume", plan_use_cases.resume_plan, "Resume a paused plan and follow it.", follows=True)


def _new(
    intent: str | None,
    tasks: tuple[str, ...],
    in_order: bool,
    file: Path | None,
    labels: tuple[str, ...],
    **given: Any,
) -> requests.NewPlan:
    from app.services.plans import requests

    if file is not None and (intent is not None or tasks):
        raise click.UsageError("--file contains the whole plan: omit INTENT and --task.")
    if file is None and intent is None and not tasks:
        raise click.UsageError("give INTENT, --task or --file.")
    if in_order and not tasks:
        raise click.UsageError("--in-order is about the tasks of --task.")
    made = read_plan(file) if file is not None else requests.NewPlan(intent=intent, tasks=_tasks(tasks, in_order))
    fields = {name: value for name, value in given.items() if value is not None}
    if labels:
        fields["labels"] = {**made.labels, **arguments.labels(labels)}
    if made.parent_run_id is None:
        fields |= {"parent_run_id": arguments.parent_run_id(), "runs_above": arguments.runs_above()}
    return dataclasses.replace(made, **fields)


def _tasks(texts: tuple[str, ...], in_order: bool) -> tuple[requests.NewTask, ...]:
    from app.services.plans import requests

    return tuple(
        requests.NewTask(id=number, description=text, deps=(number - 1,) if in_order and number > 1 else ())
        for number, text in enumerate(texts, 1)
    )


def read_plan(path: Path) -> requests.NewPlan:
    """Return the plan in a file, which has the form of a `POST /api/sessions` request.

    Raises:
        errors.InputRefused: the file cannot be read or describes no plan; with every flaw and its place.
    """
    import pydantic

    from app.api import errors as http_errors
    from app.api import plan_requests, request_models
    from app.domain import json_text

    content = arguments.read_bytes(path)
    request_models.check(content)
    try:
        return plan_requests.PlanBody.model_validate(json_text.read(content.decode(), exact=True)).plan(None)
    except pydantic.ValidationError as error:
        raise http_errors.unfit(error.errors(include_url=False), plan_requests.PlanBody) from error


for command in plan_tasks.COMMANDS:
    plan.add_command(command)
