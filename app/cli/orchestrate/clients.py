"""The client of a data directory of workflows: what `orchestrate` asks beside what every command asks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from app import bootstrap, errors, settings
from app.cli import folders, local
from app.cli.access import Access
from app.domain import plain, runs, states
from app.engine import stores
from app.services import recipe_versions, requests
from app.storage import data_directory

_UNFINISHED = (states.RunState.PENDING, states.RunState.RUNNING)


@contextlib.asynccontextmanager
async def connect(
    chosen: settings.Settings, access: Access, platform: bootstrap.Platform | None = None
) -> AsyncIterator[WorkflowClient]:
    """Open a data directory for a command.

    Raises:
        errors.ConfigurationError: it cannot be used.
    """
    async with folders.opened(chosen, access, platform) as folder:
        yield WorkflowClient(folder)


class WorkflowClient(local.FolderClient):
    """Run workflows that lie anywhere, and look after their runs."""

    @property
    def stopped(self) -> bool:
        """Tell whether a signal has asked for a stop."""
        return self._signals is not None and self._signals.asked > 0

    @property
    def masker(self) -> plain.Masker:
        """Return what hides the secrets of the environment."""
        return self._application.masker

    async def begin(self, request: requests.StartRequest, recipe_version: recipe_versions.RecipeVersion) -> str:
        """Start a run of a workflow and return its id."""
        started = await self._application.runs.start(dataclasses.replace(request, owner="process"), own=recipe_version)
        return started.run_id

    async def examine(self, request: requests.StartRequest, recipe_version: recipe_versions.RecipeVersion) -> None:
        """Find out whether a run could be started, and leave it at that.

        Raises:
            errors.RequestInvalid: it could not.
        """
        self._application.starter.prepare(dataclasses.replace(request, parent_run_id=None), own=recipe_version)

    async def told_so_far(self, run_id: str) -> int:
        """Return the number of the last event that a run has written."""
        events = await self._application.store.read_events(run_id)
        return events[-1].seq if events else 0

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row."""
        return await self._application.store.summary(run_id)

    async def begun(self, run_id: str) -> runs.RunStart:
        """Return what a run began with."""
        return (await self._application.runs.view(run_id)).start

    async def show(self, run_id: str) -> None:
        """Write the run's files out as they should stand now."""
        await self._application.store.maintenance.show(run_id)

    async def send_on(self, run_id: str, request: requests.ResumeRequest) -> None:
        """Let a run go on here, wherever it was left."""
        found = await self.summary(run_id)
        status = states.RunState(found.status)
        if found.owner != "service" or status.finished:
            await self.resume(run_id, request)
        elif request != requests.ResumeRequest():
            # What it was told anew counts from an ending on, so it gets one.
            await self.cancel(run_id)
            await self.resume(run_id, request)
        elif status in _UNFINISHED:
            await self._application.engine.submit(run_id)
        else:
            await self.unpause(run_id)

    async def every_run(self) -> list[stores.RunSummary]:
        """Return all runs, newest first."""
        return [summary async for summary in stores.every_run(self._application.store, stores.RunQuery())]

    async def sweep(self) -> None:
        """Free what deleted runs have taken."""
        await self._application.store.sweep()


def refuse_service(chosen: settings.Settings) -> None:
    """Refuse a data directory whose runs a service looks after.

    Raises:
        errors.DataDirectoryBusy: naming it.
    """
    from app import clock

    folder = chosen.project.data_directory
    if not folder.is_dir():
        return
    service = data_directory.DataDirectory(folder, clock=clock.SystemClock(), ids=clock.RandomIds()).service()
    if service is not None:
        message = f"process {service['pid']} serves the runs of {folder}; resume them there"
        raise errors.DataDirectoryBusy(message, detail=service)
