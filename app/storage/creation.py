"""
Creation: a run's folder, built aside and put in place in one move.
"""

from __future__ import annotations

import contextlib

from app.engine import events, plain, runs, states, views
from app.storage import events_book, layout
from app.storage.disk import Disk
from app.storage.means import Means


def build(means: Means, start: runs.RunStart) -> None:
    """
    Make a run durable; it exists from the rename on.

    Both journals are made here, empty, so that their names are synced with the folder and never again.

    Raises:
        FileExistsError: there is a run of that id.
        OSError: the disk refused.
    """
    files, reach = means.disk, means.probes.reach
    folder, final = layout.new_folder(start.run_id), layout.run_folder(start.run_id)
    reach("storage.create.before_folder")
    if files.has_folder(final) or not files.add_folder(folder):
        raise FileExistsError(final)
    # Held, so that the start of a service does not sweep what another process is building.
    lock = files.lock(folder)
    try:
        _fill(means, folder, start)
        reach("storage.create.before_rename")
        _put_in_place(means, folder, final)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove_tree(folder)
        raise
    finally:
        if lock is not None:
            lock.release()


def sweep(files: Disk) -> None:
    """
    Remove what was being built when a process died.
    """
    for folder in layout.unfinished_folders(files.names(layout.RUNS)):
        with contextlib.suppress(OSError):
            lock = files.lock(folder)
            if lock is not None:
                files.remove_tree(folder)
                lock.release()


def _put_in_place(means: Means, folder: str, final: str) -> None:
    means.disk.rename(folder, final)
    means.probes.reach("storage.create.before_runs_sync")
    try:
        means.disk.sync_folder(layout.RUNS)
    except OSError:
        # Whoever asked is told that there is no room, so nobody may find the run there.
        means.disk.rename(final, folder)
        raise


def _fill(means: Means, folder: str, start: runs.RunStart) -> None:
    files, reach = means.disk, means.probes.reach
    reach("storage.create.before_start")
    files.write(f"{folder}/{layout.START}", plain.encode(start.to_json()) + b"\n", sync=True)
    manifest = views.manifest(views.RunView(start=start, status=states.RunState.PENDING, updated_at=start.created_at))
    created = events.Event(
        seq=1,
        at=start.created_at,
        type=events.EventType.RUN_CREATED.value,
        run_id=start.run_id,
        data={"recipe_id": start.recipe_id},
    )
    for name, content in (
        (layout.STEPS, b""),
        (layout.CONTROL, b""),
        (layout.MANIFEST, plain.encode(manifest) + b"\n"),
        (layout.EVENTS, events_book.encoded(created)),
    ):
        files.write(f"{folder}/{name}", content, sync=False)
    reach("storage.create.before_folder_sync")
    files.sync_folder(folder)
