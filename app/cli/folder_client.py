"""The transport in process: the services of the project's folder answer use cases."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, cast

from app import bootstrap, errors, settings
from app.cli import terminal
from app.cli.client import Access, JsonObject, P, T, UseCase
from app.domain import states

if TYPE_CHECKING:
    from app.engine import stores
    from app.services import requests, workspaces
    from app.worker import stop_signals

_AWAY = ("store_away", "store_unusable")
_VERIFIED_PER_PAGE = 100


class FolderClient:
    """Call the services directly; runs that it starts execute in this process.

    Args:
        claims: Claims workspaces for runs of this process; None: no run executes here.
        signals: Stops the runs that execute here.
    """

    executes = True

    def __init__(
        self,
        application: bootstrap.Application,
        claims: workspaces.WorkspaceClaims | None = None,
        signals: stop_signals.StopSignals | None = None,
    ) -> None:
        self.application = application
        """The services; for a command that only reads, the reading ones."""
        self._claims = claims
        self._signals = signals
        self._above: dict[str, list[str]] = {}

    @property
    def stopping(self) -> bool:
        """Return whether a signal has asked for a stop."""
        return self._signals is not None and self._signals.received

    async def call(self, wanted: UseCase[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of the services."""
        return await wanted.perform(self, *args, **kwargs)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[JsonObject, None]:
        """Yield the events as they are written; after a stop, also those of the stop."""
        async for event in await self.application.runs.follow(run_id, after):
            after = event.seq
            yield event.to_json()
        if self.stopping:
            await self.stopped()
            for event in await self.application.store.read_events(run_id, after):
                yield event.to_json()

    async def follow_log(self, run_id: str, name: str) -> AsyncGenerator[str | None, None]:
        async for piece in await self.application.runs.follow_log(run_id, name, 0):
            if piece.kind != "alive":
                yield piece.text if piece.kind == "text" else None

    async def verify_all(self) -> AsyncGenerator[list[JsonObject], None]:
        cursor: str | None = None
        while True:
            found = await self.application.maintenance.verify_page(cursor, _VERIFIED_PER_PAGE)
            yield [dict(report) for report in found.reports]
            if (cursor := found.cursor) is None:
                return

    def refuse_abandoned(self, started: requests.Started) -> None:
        """Refuse a repeated start whose run was left unfinished: nothing would happen to it while it is followed.

        Raises:
            errors.WrongState: no process executes the run.
        """
        if not started.existed or started.status not in (states.RunState.PENDING, states.RunState.RUNNING):
            return
        surroundings = self.application.explanations.surroundings
        if surroundings.service() is not None or surroundings.is_executed(started.run_id) is not False:
            return
        message = f"run {started.run_id} of this key was left unfinished, and no process executes it"
        raise errors.WrongState(message, detail={"act": f"control-room runs resume {started.run_id}"})

    async def claim_workspace(self, run_id: str) -> stores.RunSummary:
        """Claim the workspace of a run that is to continue here, if it is exclusive; return the run's row.

        Raises:
            errors.Conflict: `workspace_busy`.
        """
        found = await self.application.store.summary(run_id)
        # The claim lasts until the end of the command, as a service keeps it until the end of the run.
        if found.exclusive_workspace:
            await self.claims.claim(found.working_dir, run_id=run_id, parent_run_id=found.parent_run_id)
        return found

    async def claim_with_above(self, run_id: str) -> stores.RunSummary:
        """Take the workspaces of a run that is to continue here, and of those that wait for it; return its row.

        Raises:
            errors.Conflict: `workspace_busy`.
        """
        for above in await self.application.runs.waiting_above(run_id):
            await self.claim_workspace(above)
            self._above.setdefault(run_id, []).append(above)
        return await self.claim_workspace(run_id)

    async def continue_above(self, run_id: str) -> None:
        """Continue the runs that wait for a run, whose workspaces were taken, after the run itself continues."""
        for above in self._above.get(run_id, ()):
            await self.application.engine.submit(above)

    def followed(self, run_id: str) -> str:
        return next(iter(self._above.get(run_id, ())), run_id)

    @property
    def claims(self) -> workspaces.WorkspaceClaims:
        """Return the workspace claims of this process."""
        assert self._claims is not None
        return self._claims

    async def stop(self) -> bool:
        """Stop executing, so that every run can be continued later; return whether runs execute in this process."""
        if self._signals is None:
            return False
        await self.application.engine.stop()
        return True

    async def stopped(self) -> None:
        """Wait until a stop that a signal requested is complete; return at once if no signal came."""
        if self._signals is not None:
            await self._signals.stopped()


@contextlib.asynccontextmanager
async def connect(
    config: settings.Settings, access: Access, platform: bootstrap.Platform | None = None
) -> AsyncIterator[FolderClient]:
    """Open the project's folder for a command.

    Raises:
        errors.ConfigurationError: the settings cannot work, or a service holds the folder and the command changes runs.
    """
    refuse_faults(config)
    # An index or a store in a database needs its own driver to be read.
    in_folders = not (config.project.database_url or config.project.store_url)
    if access is Access.RECIPES or (access is Access.READ and in_folders):
        from app.bootstrap import reading

        if not (folder := config.project.data_directory).is_dir():
            terminal.warn(f"{folder} does not exist: nothing has run in this project; --project DIR names another")
        async with reading.opened(config, recipes_only=access is Access.RECIPES) as project:
            yield FolderClient(cast("bootstrap.Application", project))
        return
    bootstrap.conceal(config)
    looks = access in (Access.READ, Access.EXAMINE, Access.PREVIEW)
    mode = bootstrap.OpenMode(look_only=looks, alone=access is Access.CHANGE)
    async with contextlib.AsyncExitStack() as opened:
        try:
            application = await opened.enter_async_context(bootstrap.build(config, mode, platform))
        except errors.ConfigurationError as error:
            if access is not Access.PREVIEW or error.code not in _AWAY:
                raise
            terminal.warn(f"{error.message}; previewed without it, by the policies and prices known here")
            mode = bootstrap.OpenMode(look_only=True, is_storeless=True)
            application = await opened.enter_async_context(bootstrap.build(config, mode, platform))
        if looks:
            yield FolderClient(application)
            return
        async with _executing(config, application) as client:
            yield client


@contextlib.asynccontextmanager
async def _executing(config: settings.Settings, application: bootstrap.Application) -> AsyncIterator[FolderClient]:
    from app.services import workspaces
    from app.storage import workspace_locks
    from app.worker import stop_signals

    grace = config.pool.stop_grace_seconds
    signals = stop_signals.StopSignals(lambda hurried: _stop(application, grace, hurried))
    locks = workspace_locks.WorkspaceLocks(config.project.data_directory)
    # Signals are caught before a run executes: a Ctrl-C must not end the command and leave an agent at work.
    with contextlib.closing(locks), signals.caught():
        claims = workspaces.WorkspaceClaims(application.store, locks.acquire)
        yield FolderClient(application, claims, signals)


async def _stop(application: bootstrap.Application, grace: float, hurried: bool) -> None:
    if grace and not hurried:
        # The signal may have come because the terminal was closed.
        with contextlib.suppress(terminal.PipeClosed):
            terminal.warn(f"stopping: the step in flight has {grace:g} seconds to end; interrupt again to stop at once")
    application.runs.stopping.set()
    await application.engine.stop(0 if hurried else None)


def refuse_faults(config: settings.Settings) -> None:
    """Raise if the settings cannot work.

    Raises:
        errors.ConfigurationError: `settings_invalid`, with every fault.
    """
    faults = [remark for remark in settings.check(config) if remark.fatal]
    if faults:
        from app.cli import typed_options

        named = "; ".join(f"{typed_options.name_of(remark.setting)} {remark.message}" for remark in faults)
        raise errors.ConfigurationError(f"the settings are invalid: {named}", code="settings_invalid")
