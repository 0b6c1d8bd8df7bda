"""Transfers: copy runs between the store of a project and a folder with the layout of a data directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from app import errors, settings
from app.bootstrap.container import Application, build
from app.bootstrap.platform import OpenMode
from app.storage import layout
from app.storage.disk import disk_health, os_disk
from app.storage.runs import transfer

Refusal: TypeAlias = errors.ControlRoomError | errors.Unreadable
"""Why a run was not copied."""

_REFUSALS = (errors.NotFound, errors.Conflict, errors.JournalCorrupt, errors.Unreadable)


async def export_runs(
    config: settings.Settings, run_ids: Collection[str], folder: Path
) -> Mapping[str, bool | Refusal]:
    """Copy runs from the store of a project to a folder, and return for each whether it was new, or its refusal.

    Args:
        run_ids: The runs; empty: all.

    Raises:
        errors.ConfigurationError: the store is in use, or the folder cannot be written.
    """
    refuse_same(config, folder)
    async with _opened(config) as application:
        disk, runs = application.store.checked_disk, application.store.maintenance
        with _held(folder, make=True) as target:
            return await _each(run_ids or transfer.run_ids(disk), lambda run_id: runs.export(run_id, target))


async def import_runs(
    config: settings.Settings, run_ids: Collection[str], folder: Path
) -> Mapping[str, bool | Refusal]:
    """Copy runs from a folder to the store of a project, and return for each whether it was new, or its refusal.

    Args:
        run_ids: The runs; empty: all.

    Raises:
        errors.ConfigurationError: the store or the folder is in use.
    """
    refuse_same(config, folder)
    with _held(folder, make=False) as source:
        # Read before the store is opened, so that a folder without runs changes nothing.
        found = transfer.run_ids(source)
        async with _opened(config) as application:
            runs = application.store.maintenance
            return await _each(run_ids or found, lambda run_id: runs.bring_in(run_id, source))


async def _each(run_ids: Iterable[str], copy: Callable[[str], Awaitable[bool]]) -> Mapping[str, bool | Refusal]:
    found: dict[str, bool | Refusal] = {}
    for run_id in run_ids:
        try:
            found[run_id] = await copy(run_id)
        except _REFUSALS as refusal:
            # A run that cannot be copied does not keep back the others.
            found[run_id] = refusal
    return found


def refuse_same(config: settings.Settings, folder: Path) -> None:
    """Refuse to copy a data directory to itself.

    Raises:
        errors.ConfigurationError: `transfer_refused`.
    """
    if os.path.realpath(folder) == os.path.realpath(config.project.data_directory):
        message = f"{folder} is the data directory of this project; name another folder"
        raise errors.ConfigurationError(message, code="transfer_refused")


@contextlib.asynccontextmanager
async def _opened(config: settings.Settings) -> AsyncIterator[Application]:
    try:
        async with build(config, OpenMode(alone=True)) as application:
            yield application
    except errors.DataDirectoryBusy as busy:
        # A service cannot copy runs, so its address would not help. Without one, it is a command, which ends.
        message = f"{busy.message}: stop it first" if busy.detail["url"] else busy.message
        raise errors.DataDirectoryBusy(message, detail=busy.detail | {"url": None}) from None


@contextlib.contextmanager
def _held(folder: Path, *, make: bool) -> Iterator[os_disk.OsDisk]:
    try:
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Two copies at the same time would write the same runs.
        lock = os_disk.lock(str(folder))
        if lock is None:
            message = f"{folder} is in use by a service, or by another export or import; stop it, or let it end, first"
            raise errors.ConfigurationError(message, code="data_directory_busy")
        try:
            yield _laid_out(folder, make=make)
        finally:
            lock.release()
    except OSError as error:
        raise disk_health.unusable(folder, error) from error


def _laid_out(folder: Path, *, make: bool) -> os_disk.OsDisk:
    disk = os_disk.OsDisk(folder)
    for name in layout.FOLDERS if make else ():
        disk.add_folder(name)
    if not disk.has_folder(layout.RUNS):
        message = f"{folder} has no folder {layout.RUNS!r}: name a data directory, or a folder made by `runs export`"
        raise errors.ConfigurationError(message, code="transfer_refused")
    return disk
