"""The command itself: its options, and each way of calling it (agent-recipes, 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from app import __version__
from app.cli import arguments, boundary, terminal
from app.cli.agent_recipes import exit_codes, projects, running, showing

if TYPE_CHECKING:
    from app.services import requests

TIERS = ("haiku", "sonnet", "opus")

FLAGS = {
    "backend": "--backend", "model": "--model", "max_steps": "--max-steps", "max_visits": "--max-visits",
    "max_restarts": "--max-restarts", "system_prompt": "--system-prompt", "agent_session_id": "--session-id",
}  # fmt: skip
"""Arguments of every run, with their options."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.argument("recipe_id", required=False, metavar="RECIPE-ID")
@click.option("--backend", metavar="NAME", help="Backend of all steps; by default the project's.")
@click.option("--list", "listing", is_flag=True, help="List the recipes with their descriptions.")
@click.option("--dry-run", is_flag=True, help="Print the recipe's steps, transitions and guardrails; start nothing.")
@click.option("--verbose", is_flag=True, help="Log steps, outcomes and transitions to stderr.")
@click.option("--events", is_flag=True, help="Log the same to stderr as structured lines.")
@click.option("--model", type=click.Choice(TIERS), help="Model tier of all steps.")
@click.option(
    "--max-steps", type=click.IntRange(1), metavar="N", help="Maximum number of steps, instead of the recipe's."
)
@click.option(
    "--max-visits",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of visits per step, instead of the recipe's.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(0),
    metavar="N",
    help="Maximum number of restarts in a new session.  [default: no limit]",
)
@click.option("--working-dir", metavar="PATH", help="Working folder of the agent.  [default: the current folder]")
@click.option(
    "--system-prompt", metavar="TEXT", help="Text to append to the backend's system prompt, if the backend supports it."
)
@click.option("--session-id", "agent_session_id", metavar="ID", help="Existing conversation to continue.")
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the list, the plan, or the run when it stops.")
@click.version_option(__version__, prog_name="agent-recipes", message="%(prog)s %(version)s")
def agent_recipes(
    recipe_id: str | None, listing: bool, dry_run: bool, as_json: bool, working_dir: str | None, **given: Any
) -> int:
    """Run an agent recipe in the working directory; print the agent's replies, then the reason for the exit.

    The run is stored in the project that contains the directory. Ctrl-C stops it so that `control-room runs resume` can
    continue it; a second Ctrl-C does not wait for the agent.

    Exit codes: 0 done, 1 invalid recipe, 2 no outcome, 3 guardrail, 4 backend failed, 5 usage or configuration,
    130 stopped by a person.
    """
    if listing == (recipe_id is not None):
        raise click.UsageError("Give a recipe or --list." if recipe_id is None else "--list takes no recipe.")
    if listing and dry_run:
        raise click.UsageError("--dry-run needs a recipe.")
    project = projects.of(working_dir)
    output = terminal.OutputOptions(as_json=as_json, verbose=given.pop("verbose"), events=given.pop("events"))
    if recipe_id is None:
        return showing.list_recipes(project, as_json)
    request = _request(recipe_id, project, **given)
    return showing.draw(project, request, as_json) if dry_run else running.run(project, request, output)


PROGRAM = boundary.Program(
    name="agent-recipes", command=agent_recipes, usage=exit_codes.CONFIGURATION, of_error=exit_codes.of_error
)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Execute a command line and return its exit code; errors are reported on stderr, one a line."""
    return boundary.execute(PROGRAM, arguments)


def _request(recipe_id: str, project: projects.Project, given: tuple[str, ...], **flags: Any) -> requests.StartRequest:
    from app.services import requests

    return requests.StartRequest(
        recipe_id=recipe_id,
        args=_args(arguments.collect(given, None), flags),
        working_dir=str(project.working_dir),
        parent_run_id=arguments.parent_run_id(),
        runs_above=arguments.runs_above(),
    )


def _args(given: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: value for name, value in flags.items() if value is not None}
    for name in named:
        if name in given:
            raise click.UsageError(f"{FLAGS[name]} and --arg {name} are the same argument: give one of them.")
    return {**given, **named}
