"""Running: start a run, print its progress, and report its final state."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app import errors
from app.cli import exit_codes as common
from app.cli import formats, terminal, use_cases
from app.cli.agent_recipes import exit_codes, projects, showing, story
from app.cli.client import Access, JsonObject
from app.cli.terminal import OutputOptions

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services import requests

DEFAULT_BACKEND = "claude-code"

_UNDONE = {
    "pending": "resume", "running": "resume", "failed": "resume", "cancelled": "resume",
    "paused": "unpause", "waiting": "show",
}  # fmt: skip
"""Status words of unfinished runs, and the subcommand that continues each."""

LIMITS = {
    "max_total_steps": "max_steps", "max_step_visits_exceeded": "max_visits", "max_restarts": "max_restarts",
}  # fmt: skip
"""Arguments that set the guardrails, by the codes of the errors."""


def run(project: projects.Project, request: requests.StartRequest, output: OutputOptions) -> int:
    """Start a run, print its progress, and return the exit code for its final state.

    Raises:
        errors.ControlRoomError: it cannot be started; then no file was made.
    """
    # Twice: a run that cannot work is refused before its data directory is made.
    project.work_here(lambda client: _examine(client, project, request), Access.EXAMINE)
    return project.work_here(lambda client: _run(client, project, request, output), Access.START)


async def _examine(client: FolderClient, project: projects.Project, request: requests.StartRequest) -> None:
    from app import bootstrap

    await showing.of_this_language(client, request.recipe_id or "")
    backend = request.args.get("backend") or bootstrap.default_backend(project.settings()) or DEFAULT_BACKEND
    problem = bootstrap.examine_backend(project.settings(), backend)
    if problem is not None:
        raise errors.ConfigurationError(problem, code="backend_unusable", detail={"backend": backend})
    await client.call(use_cases.plan_run, request)


async def _run(
    client: FolderClient, project: projects.Project, request: requests.StartRequest, output: OutputOptions
) -> int:
    from app.cli import following

    run_id = (await client.call(use_cases.start_run, request))["run_id"]

    async def said(position: int) -> str:
        record = (await client.application.runs.steps(run_id))[position]
        if record.blob is None:
            return str(record.output)
        return str(await client.application.store.read_blob(run_id, record.blob))

    printer = story.Story(None if output.as_json else said, verbose=output.verbose, events=output.events)
    try:
        detail = await following.watch(client, run_id, printer.print_event)
        _report_end(detail, project, output)
    except (terminal.PipeClosed, OSError):
        # stdout cannot be written, but the run has begun: stop it in order, and print to stderr how to continue it.
        await client.stop()
        left = await client.call(use_cases.show_run, run_id)
        with contextlib.suppress(terminal.PipeClosed):
            _suggest_next(left, project)
        raise
    return exit_codes.of_run(detail)


def _report_end(detail: JsonObject, project: projects.Project, output: OutputOptions) -> None:
    reason = exit_codes.reason(detail)
    if output.as_json:
        terminal.say_json(detail)
    elif reason is not None:
        terminal.say(reason)
    _report_cost(detail, output)
    if detail.get("error"):
        terminal.warn(f"agent-recipes: {formats.error(detail['error'])}")
    if short := formats.partial(detail.get("ending")):
        terminal.warn(f"agent-recipes: done {short}")
    _suggest_next(detail, project)


def _report_cost(detail: JsonObject, output: OutputOptions) -> None:
    machine = detail.get("machine") or {}
    if machine.get("costUsd") is None:
        return
    message = f"Total cost: {story.cost(machine['costUsd'], machine['stepCostsUsd'])}"
    if output.verbose:
        terminal.warn(f"[orchestration] {message}")
    elif not output.as_json and not output.events:
        terminal.warn(message)


def _suggest_next(detail: JsonObject, project: projects.Project) -> None:
    status = detail["status"]
    if status in _UNDONE:
        what = "interrupted" if common.is_interrupted(status) else status
        words = ("runs", _UNDONE[status], detail["run_id"], *_higher_limit(detail.get("error") or {}))
        terminal.warn(f"{what}; continue with: {project.command(*words)}")


def _higher_limit(error: Mapping[str, Any]) -> tuple[str, ...]:
    name = LIMITS.get(error.get("code", ""))
    return ("--arg", f"{name}:={max(1, 2 * error['detail']['limit'])}") if name else ()
