"""Transfer: copies a run from one disk to another byte for byte, with its receipts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

from app import errors
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.index.index_port import ReceiptPlace
from app.storage.journal import commit_records
from app.storage.runs import authority, receipts

_AUTHORITY = (layout.START, layout.STEPS, layout.CONTROL)


def run_ids(files: Disk) -> list[str]:
    """Return the runs on a disk.

    Raises:
        errors.Conflict: `source_in_use`, its last service was killed, and lines are only in its commit log.
    """
    if any(map(commit_records.number, files.names(layout.COMMITS))):
        message = "the service of these runs was not stopped; start it once and stop it, then repeat the command"
        raise errors.Conflict(message, code="source_in_use")
    return layout.run_ids(files.names(layout.RUNS))


def copy(source: Disk, target: Disk, run_id: str, reach: Callable[[str], None]) -> bool:
    """Copy a run, locked against writers, and return whether it is new on the target.

    The copy is built aside and moved into place at once, so that an interrupted one can be repeated.

    Raises:
        errors.NotFound: the run does not exist.
        errors.JournalCorrupt: the run is damaged.
        errors.Conflict: `run_exists`, the target has another run with that id; `transfer_refused`, the folder was
            written by hand and never started; `run_busy`, a command executes the run.
        OSError: a file could not be read or written.
    """
    lock = authority.lock_run(source, run_id)
    try:
        return _copied(source, target, run_id, reach)
    finally:
        lock.release()


def copy_receipts(source: Disk, target: Disk, run_id: str) -> list[ReceiptPlace]:
    """Copy the missing receipts of a copied run, and return the positions of all its receipts.

    Raises:
        OSError: a file could not be read or written.
    """
    start, _ = authority.read_start(source, run_id)
    lines = dict(_receipts(source, start.session_id, run_id))
    if not lines:
        return []
    known, folder = receipts.find(target, start.session_id, lines), layout.session_folder(start.session_id)
    if missing := b"".join(line for receipt_id, line in lines.items() if receipt_id not in known):
        target.add_folder(folder)
        disk_port.append_whole(target, layout.receipts_file(start.session_id), missing, sync=True)
        target.sync_folder(folder)
        target.sync_folder(layout.SESSIONS)
    return list(receipts.find(target, start.session_id, lines).values())


def _copied(source: Disk, target: Disk, run_id: str, reach: Callable[[str], None]) -> bool:
    folder, fresh = layout.run_folder(run_id), layout.new_folder(run_id)
    try:
        authority.read(source, run_id, deep=True).loaded()
    except errors.NotFound:
        message = f"run {run_id} has no start.json: its folder was written by hand, or is empty; copy it as a folder"
        raise errors.Conflict(message, code="transfer_refused", detail={"run_id": run_id}) from None
    if target.has_folder(folder):
        if all(_content(source, f"{folder}/{name}") == _content(target, f"{folder}/{name}") for name in _AUTHORITY):
            return False
        message = f"there is another run {run_id} already, or it has continued since it was copied; it stays as it is"
        raise errors.RunExists(message, detail={"run_id": run_id})
    if target.has_folder(fresh):
        target.remove_tree(fresh)
    target.add_folder(fresh)
    for path in _paths(source, folder):
        _copy_one(source, target, f"{folder}/{path}", f"{fresh}/{path}")
    target.sync_folder(fresh)
    reach("storage.create.before_rename")
    target.rename(fresh, folder)
    target.sync_folder(layout.RUNS)
    return True


def _paths(files: Disk, folder: str, within: str = "") -> Iterator[str]:
    for name in files.names(f"{folder}/{within}".rstrip("/")):
        path = f"{within}/{name}" if within else name
        if name.startswith(".") and name.endswith(".new"):
            continue
        yield path
        if files.has_folder(f"{folder}/{path}"):
            yield from _paths(files, folder, path)


def _copy_one(source: Disk, target: Disk, old: str, new: str) -> None:
    if source.has_folder(old):
        target.add_folder(new)
    elif source.has_file(old):
        target.write(new, source.read(old), sync=True)


def _content(files: Disk, path: str) -> bytes | None:
    try:
        return files.read(path)
    except FileNotFoundError:
        return None


def _receipts(files: Disk, session_id: str, run_id: str) -> Iterator[tuple[str, bytes]]:
    content = _content(files, layout.receipts_file(session_id)) or b""
    for line in content.splitlines(keepends=True):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            receipt = json.loads(line)
            if receipt["run_id"] == run_id and line.endswith(b"\n"):
                yield str(receipt["receipt_id"]), line
