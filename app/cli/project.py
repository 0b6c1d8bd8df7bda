"""The commands for maintaining a project: `init`, `config`, `agents`, `index`, `openapi`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from app import interruption, printable, settings
from app.cli import exit_codes, formats, options, terminal

_PLACES = (
    ("recipes/*.json", "control_room: pipelines of tools and agents (docs/reference/control_room.md)"),
    (
        "recipes/agent_recipes/",
        "agent_recipes: state machines of prompts to a coding agent, JSON (docs/reference/agent_recipes.md)",
    ),
    (
        "recipes/amplifier/",
        "amplifier: prompts with variables, loops and approvals, YAML (docs/reference/amplifier.md)",
    ),
    ("recipes/orchestrate/", "orchestrate: workflows of commands and programs, YAML (docs/reference/orchestrate.md)"),
    ("prompts/", "templates of prompts"),
    ("agents.json", "agents, backends and `default_backend` (docs/reference/agents.md)"),
)
_NEXT = """Agents speak through a small local model at first, which only shows the machinery. For real work, choose
a backend: write {"default_backend": "claude-code"} to .control-room/agents.json. `control-room agents check`
shows which backends work here."""


@click.command()
@click.option("--example", type=click.Choice(("story", "code")), help="Also create a small example project.")
@options.as_json
@options.in_folder
def init(place: options.Place, as_json: bool, example: str | None) -> int:
    """Create `.control-room/` in a project, with a folder for recipes of each language; existing files are kept."""
    from app import bootstrap

    project = place.settings().project
    written = bootstrap.add_sample(project.project, example) if example else []
    made = bootstrap.prepare_project(project)
    if as_json:
        terminal.say_json({"data_directory": str(made), "example": written})
        return exit_codes.ExitCode.DONE
    terminal.say(f"{made} is ready:")
    has_agents = (made / "agents.json").exists()
    for name, meaning in _PLACES:
        absent = "; not there until you write it" if name == "agents.json" and not has_agents else ""
        terminal.say(f"  {name:<24} {meaning}{absent}")
    if written:
        terminal.say(f"The example {example} is in {project.project}; EXAMPLE.md there describes it.")
    if not has_agents:
        terminal.say_block(_NEXT)
    return exit_codes.ExitCode.DONE


@click.group()
def config() -> None:
    """Check the configuration."""


@config.command("check")
@options.as_json
@options.in_folder
def check_config(place: options.Place, as_json: bool) -> int:
    """Check settings, recipes, prompts, agents and files of the data directory; exit code 5 if the service would refuse
    to start.
    """
    from app import bootstrap

    loaded, remarks = settings.examine(place.environ)
    if loaded is not None and not any(remark.fatal for remark in remarks):
        remarks += bootstrap.examine(loaded)
    found = [dataclasses.asdict(remark) for remark in remarks]
    if as_json:
        terminal.say_json(
            {
                "errors": [remark for remark in found if remark["fatal"]],
                "warnings": [remark for remark in found if not remark["fatal"]],
            }
        )
    else:
        terminal.say_block(formats.remarks(found))
    return exit_codes.ExitCode.CONFIGURATION if any(remark.fatal for remark in remarks) else exit_codes.ExitCode.DONE


@click.group()
def agents() -> None:
    """Check agents."""


@agents.command("check")
@options.as_json
@options.in_folder
def check_agents(place: options.Place, as_json: bool) -> int:
    """List the agents and backends, with the problem of each that cannot work; exit code 5 if an agent cannot."""
    from app import bootstrap

    found = bootstrap.examine_agents(place.settings())
    if as_json:
        terminal.say_json(found)
    else:
        terminal.say_block(formats.agents(found) + "\n")
        terminal.say_block(formats.backends(bootstrap.examine_backends(place.settings())))
    if (outdated := bootstrap.outdated_service(place.settings())) is not None:
        terminal.warn(f"warning: {outdated}")
    return exit_codes.ExitCode.CONFIGURATION if any(agent["problem"] for agent in found) else exit_codes.ExitCode.DONE


@click.group()
def index() -> None:
    """Maintain the index of runs."""


@index.command()
@options.as_json
@options.in_folder
def rebuild(place: options.Place, as_json: bool) -> int:
    """Rebuild the index from the run folders; stop the service first."""
    from app import bootstrap

    rebuilt: dict[str, Any] = interruption.run(bootstrap.rebuild_index(place.settings()))
    if as_json:
        terminal.say_json(rebuilt)
    else:
        terminal.say(f"{printable.counted(rebuilt['runs'], 'run')} indexed")
    return exit_codes.ExitCode.DONE


@click.command()
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write to this file.")
def openapi(output: Path | None) -> int:
    """Print the OpenAPI document of the HTTP interface."""
    from app.api import routes

    if output is None:
        terminal.say_exactly(routes.openapi_text())
    else:
        output.write_text(routes.openapi_text(), encoding="utf-8")
    return exit_codes.ExitCode.DONE
