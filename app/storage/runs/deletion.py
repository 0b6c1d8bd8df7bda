"""Deletion: moves a finished run to the trash at once, which is swept later."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from functools import partial

from app import errors
from app.domain import decisions, states
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.runs import adoption, authority, receipts
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)


def put_away(context: StorageContext, run_id: str) -> None:
    """Move a locked run to the trash, after a sync of its receipts, which the run can no longer restore."""
    files = context.disk
    with contextlib.suppress(errors.NotFound, errors.JournalCorrupt):
        receipts.make_durable(files, authority.read_start(files, run_id)[0].session_id)
    discard(context, run_id, layout.run_folder(run_id))


def discard(context: StorageContext, run_id: str, folder: str) -> None:
    """Move a run's folder to the trash, where it also records that recovery must restore nothing of the run."""
    files, reach = context.disk, context.probes.reach
    trash = next(
        place for count in itertools.count() if not files.has_folder(place := f"{layout.TRASH}/{run_id}.{count}")
    )
    reach("storage.delete.before_rename")
    files.rename(folder, trash)
    reach("storage.delete.before_sync")
    # The new name first: after a power cut the folder has one of its names or both, but never none.
    files.sync_folder(layout.TRASH)
    files.sync_folder(layout.RUNS)


def discard_refused(context: StorageContext, run_id: str) -> None:
    """Discard a folder that could not be made durable, since a refused caller must not find the run later."""
    for folder in (layout.new_folder(run_id), layout.run_folder(run_id)):
        try:
            if context.disk.has_folder(folder):
                discard(context, run_id, folder)
        except OSError as error:
            _log.error("a refused run may come back: %s", error, extra={"run_id": run_id})


def remove_unfinished(files: Disk) -> None:
    """Remove folders that a dead process was building; those that cannot be read now wait for the next start."""
    names: list[str] = []
    with contextlib.suppress(errors.Unreadable):
        names = files.names(layout.RUNS)
    for folder in layout.unfinished_folders(names):
        with contextlib.suppress(OSError, errors.Unreadable):
            lock = files.lock(folder)
            if lock is not None:
                files.remove_tree(folder)
                lock.release()


def put_away_ids(files: Disk) -> frozenset[str]:
    """Return the runs in the trash."""
    return frozenset(name.rpartition(".")[0] for name in files.names(layout.TRASH))


async def sweep(context: StorageContext, stopping: Callable[[], bool]) -> None:
    """Remove the runs in the trash one by one, until it is empty or the service stops."""
    names: list[str] = []
    with contextlib.suppress(errors.Unreadable):
        names = await context.workers.run(lambda: context.disk.names(layout.TRASH))
    for name in names:
        if stopping():
            return
        context.probes.reach("storage.delete.before_sweep")
        with contextlib.suppress(OSError, errors.Unreadable):
            # While the commit log mentions a run, its folder in the trash records that the run is deleted.
            await context.committer.checkpoint(name.rpartition(".")[0])
            await context.workers.run(partial(context.disk.remove_tree, f"{layout.TRASH}/{name}"))


def status(files: Disk, run_id: str) -> states.RunState:
    """Return the state of a run from its folder.

    Raises:
        errors.NotFound: the run does not exist.
        errors.JournalCorrupt: its state cannot be determined.
    """
    try:
        found = authority.read(files, run_id)
    except errors.NotFound:
        return adoption.status_of(adoption.read_manifest(files, run_id))
    decided: decisions.Decisions = found.loaded().decisions
    return decided.status
