"""Running: execute a workflow, from its file to the rest of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import errors
from app.cli import arguments, terminal, use_cases
from app.cli.client import Access
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import exit_codes, links, processed
from app.cli.orchestrate.places import Place
from app.cli.terminal import OutputOptions
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.cli.orchestrate.workflows import Workflow
    from app.services import requests

ONLY = "only_step"  # Label of runs that execute a single step of their workflow.
INSTEAD = "instead_of"  # Label of runs that were started instead of another one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Settings for executing a run."""

    place: Place  # Its workspace and data directory.
    output: OutputOptions  # Its reports.
    options: Mapping[str, Any] = field(default_factory=dict)  # Options of the run that were given.
    backup: bool = False  # Whether the state is backed up before each step.
    heeds_late_stops: bool = False
    """Whether a stop counts that came after the end of the run, since further runs would follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Settings for the folder of finished task files."""

    clean: bool = False  # Whether it is emptied before the run.
    archive: str | None = None
    """Path of the archive that is made when the run has completed; empty: in the folder of the run;
    None: no archive is made.
    """

    def plan(self, workflow: Workflow, place: Place) -> tuple[processed.Processed | None, Path | None]:
        """Return the folder, and the path of the archive, if they are needed.

        Raises:
            errors.RequestInvalid: one of them is not safe.
        """
        if not self.clean and self.archive is None:
            return None, None
        folder = processed.of(workflow, place)
        if not self.archive:
            return folder, None
        target = processed.target(self.archive, place)
        folder.refuse_target(target)
        return folder, target


def run(
    asked: Asked,
    workflow: Workflow,
    context: Mapping[str, Any],
    queue: Queue,
    labels: Mapping[str, str] | None = None,
) -> int:
    """Start a run, report its progress, and return the exit code for its final state.

    Raises:
        errors.ControlRoomError: it cannot be started; then no file was made or removed.
    """
    folder, target = queue.plan(workflow, asked.place)
    request = request_of(asked, workflow, context, labels or {})

    async def work(client: FolderClient) -> int:
        import asyncio

        if folder is not None and queue.clean:
            examine(client, request, workflow)
            await asyncio.to_thread(folder.clean)
        run_id = await begin(client, request, workflow)
        links.point(asked.place, run_id)
        archive = target or asked.place.run_root(run_id) / processed.ARCHIVE
        archives = (lambda: _archive(asked, workflow, archive)) if queue.archive is not None else None
        return await follow(asked, workflow, client, run_id, afterwards=archives)

    return execute(asked, work)


def execute(asked: Asked, work: Callable[[FolderClient], Awaitable[int]]) -> int:
    """Do work that executes a run."""
    from app import bootstrap
    from app.cli.orchestrate import backups

    kept, known = backups.Backups(), []

    async def backed_up(client: FolderClient) -> int:
        kept.show = client.application.store.maintenance.show
        known.append(client)
        return await work(client)

    platform = bootstrap.real_platform(os.environ)
    code = asked.place.work_here(backed_up, Access.START, kept.platform(platform) if asked.backup else platform)
    # A stop may be requested while the run's files are put away.
    late = asked.heeds_late_stops and any(client.stopping for client in known)
    return ExitCode.INTERRUPTED if late else code


async def follow(
    asked: Asked,
    workflow: Workflow,
    client: FolderClient,
    run_id: str,
    *,
    after: int | None = None,
    afterwards: Callable[[], None] | None = None,
) -> ExitCode:
    """Report a run that executes in this process until it rests.

    Args:
        after: Number of the last event that another process reported; None: the run is new.
        afterwards: Called when the run has completed.
    """
    import asyncio

    from app.cli.orchestrate import reporting

    reporter = reporting.RunReporter(asked.place, workflow, run_id, asked.output)
    try:
        detail, fault = await reporter.follow(client, after), None
        if afterwards is not None and exit_codes.of_run(detail) is ExitCode.DONE:
            try:
                await asyncio.to_thread(afterwards)
            except errors.ControlRoomError as error:
                fault = error
        code = reporter.report_end(detail, fault)
        if afterwards is not None and code is not ExitCode.DONE and fault is None:
            terminal.warn(
                f"{workflow.processed_dir} was not archived: the run has not completed; a resume archives nothing"
            )
        return code
    except (terminal.PipeClosed, OSError):
        await client.stop()
        left = await client.call(use_cases.show_run, run_id)
        with contextlib.suppress(terminal.PipeClosed):
            reporter.suggest_next(left)
        raise


async def begin(client: FolderClient, request: requests.StartRequest, workflow: Workflow) -> str:
    """Start a run of a workflow and return its id."""
    request = dataclasses.replace(request, owner="process")
    return (await client.application.runs.start(request, workflow.recipe_version(), authors.LOCAL)).run_id


def examine(client: FolderClient, request: requests.StartRequest, workflow: Workflow) -> None:
    """Check that a run could be started, without starting it.

    Raises:
        errors.RequestInvalid: it could not.
    """
    client.application.starter.prepare_now(
        dataclasses.replace(request, parent_run_id=None), own=workflow.recipe_version()
    )


def request_of(
    asked: Asked, workflow: Workflow, context: Mapping[str, Any], labels: Mapping[str, str]
) -> requests.StartRequest:
    """Return the request of a new run."""
    from app.services import requests

    return requests.StartRequest(
        recipe_id=workflow.recipe.recipe_id,
        args=context,
        options={**asked.options, "workflow_file": workflow.shown},
        working_dir=str(asked.place.workspace),
        labels=labels,
        parent_run_id=arguments.parent_run_id(),
        runs_above=arguments.runs_above(),
    )


def _archive(asked: Asked, workflow: Workflow, target: Path) -> None:
    # The run may have created links.
    folder = processed.of(workflow, asked.place)
    folder.refuse_target(target.resolve())
    try:
        folder.archive(target)
    except OSError as error:
        message = f"{workflow.processed_dir} was not archived: {error}"
        raise errors.ControlRoomError(message, code="not_archived") from error
    if asked.output.prints_steps:
        terminal.say(f"archived {workflow.processed_dir}: {asked.place.shown_path(target)}")
