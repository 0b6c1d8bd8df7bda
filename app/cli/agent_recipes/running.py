"""
A run from its start to its rest.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import errors
from app.cli import client, formats, terminal
from app.cli.access import Access
from app.cli.agent_recipes import endings, projects, showing, story

if TYPE_CHECKING:
    from app.cli import local
    from app.control import requests

_UNDONE = {
    "pending": "resume", "running": "resume", "failed": "resume", "cancelled": "resume",
    "paused": "unpause", "waiting": "show",
}  # fmt: skip
"""What a run that was not done goes on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """
    What is printed of a run.
    """

    as_json: bool = False
    """Whether stdout gets the run at its rest as JSON, in place of replies and reason."""
    verbose: bool = False
    """Whether stderr gets lines of the orchestration."""
    events: bool = False
    """Whether stderr gets structured lines."""


def run(project: projects.Project, request: requests.StartRequest, output: Output) -> int:
    """
    Start a run, tell it as it happens, and return the exit code that says how it stands in the end.

    Raises:
        errors.ControlRoomError: it cannot be started; then nothing was made.
    """
    from app import bootstrap

    plan = project.ask(lambda connected: _planned(connected, request))
    backend = plan["args"]["backend"]
    problem = bootstrap.examine_backend(project.settings(), backend)
    if problem is not None:
        raise errors.ConfigurationError(problem, code="backend_unusable", detail={"backend": backend})
    return project.ask(lambda connected: _run(connected, project, request, output), Access.START)


async def _planned(connected: local.FolderClient, request: requests.StartRequest) -> client.Answer:
    await showing.of_this_language(connected, request.recipe_id or "")
    return await connected.plan(request)


async def _run(
    connected: local.FolderClient, project: projects.Project, request: requests.StartRequest, output: Output
) -> int:
    from app.cli import following

    run_id = (await connected.start(request))["run_id"]

    async def said(position: int) -> str:
        return await connected.said(run_id, position)

    told = story.Story(None if output.as_json else said, verbose=output.verbose, events=output.events)
    try:
        detail = await following.watch(connected, run_id, told.tell)
    except terminal.PipeClosed:
        with contextlib.suppress(terminal.PipeClosed):
            terminal.warn(_way_on(project, run_id, "running"))
        raise
    _tell_rest(detail, project, output)
    return endings.of_run(detail)


def _tell_rest(detail: client.Answer, project: projects.Project, output: Output) -> None:
    reason = endings.reason(detail)
    if output.as_json:
        terminal.say_json(detail)
    elif reason is not None:
        terminal.say(reason)
    _tell_cost(detail, output)
    if detail.get("error"):
        terminal.warn(f"agent-recipes: {formats.error(detail['error'])}")
    if detail["status"] in _UNDONE:
        terminal.warn(_way_on(project, detail["run_id"], detail["status"]))


def _tell_cost(detail: client.Answer, output: Output) -> None:
    machine = detail.get("machine") or {}
    if not machine.get("costUsd"):
        return
    told = f"Total cost: {story.cost(machine['costUsd'], machine['stepCostsUsd'])}"
    if output.verbose:
        terminal.warn(f"[orchestration] {told}")
    elif not output.as_json and not output.events:
        terminal.warn(told)


def _way_on(project: projects.Project, run_id: str, status: str) -> str:
    what = "interrupted" if status in ("pending", "running") else status
    return f"{what}; go on with: {project.command('runs', _UNDONE[status], run_id)}"
