"""The project's folder as commands open it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from app import bootstrap, errors, settings
from app.cli import terminal
from app.cli.access import Access
from app.services import workspace_claims
from app.storage import workspace_locks
from app.worker import stop_signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A project's folder, open for a command."""

    application: bootstrap.Application
    """The use cases."""
    held: workspace_claims.WorkspaceClaims
    """Takes workspaces for runs of this process."""
    signals: stop_signals.StopSignals | None
    """Stops what executes here; None where nothing does."""


@contextlib.asynccontextmanager
async def opened(
    chosen: settings.Settings, access: Access, platform: bootstrap.Platform | None = None
) -> AsyncIterator[Opened]:
    """Open the project's folder, for a client of it.

    Raises:
        errors.ConfigurationError: as `connect`.
    """
    _refuse_faults(chosen)
    bootstrap.conceal(chosen)
    look_only = access is Access.READ
    use = bootstrap.OpenMode(look_only=look_only, alone=access is Access.CHANGE)
    locks = workspace_locks.WorkspaceLocks(chosen.project.data_directory)
    with contextlib.closing(locks):
        async with bootstrap.build(chosen, use, platform) as application:
            held = workspace_claims.WorkspaceClaims(application.store, locks.take)
            if look_only:
                yield Opened(application=application, held=held, signals=None)
                return
            grace = chosen.pool.stop_grace_seconds > 0
            signals = stop_signals.StopSignals(lambda hurried: _stop(application, grace, hurried))
            with signals.caught():
                yield Opened(application=application, held=held, signals=signals)


async def _stop(application: bootstrap.Application, grace: bool, hurried: bool) -> None:
    if grace and not hurried:
        terminal.warn("stopping after the step in flight; once more to cut it off")
    application.runs.release()
    await application.engine.stop(0 if hurried else None)


def _refuse_faults(chosen: settings.Settings) -> None:
    faults = [remark for remark in settings.check(chosen) if remark.fatal]
    if faults:
        told = "; ".join(f"{fault.setting} {fault.message}" for fault in faults)
        raise errors.ConfigurationError(f"The settings cannot work: {told}", code="settings_invalid")
