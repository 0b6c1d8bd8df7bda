"""A disk whose reads distinguish "cannot be read now" from "is absent"; all of `app/storage` reads through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from app.storage.disk.disk_port import AppendFile, Disk, Lock, Signature, Syncer, SyncRefused
from app.storage.disk.read_faults import ABSENT, ReadFaults, passes

T = TypeVar("T")


class CheckedDisk:
    """`Disk` whose reads raise `errors.Unreadable` if the system refuses them; no handler of `OSError` catches these.

    An absent path, or one that is not a file, is still an `OSError`, and so is a failed write.
    """

    add_folder: Callable[[str], bool]
    append_to: Callable[[str], AppendFile]
    write: Callable[..., None]
    cut: Callable[..., None]
    rename: Callable[[str, str], None]
    sync_folder: Callable[[str], None]
    syncer: Callable[[Iterable[str]], Syncer]
    boot_id: Callable[[], str]
    remove: Callable[[str], None]
    remove_tree: Callable[[str], None]

    def __init__(self, disk: Disk, faults: ReadFaults) -> None:
        self._disk = disk
        self._faults = faults
        # The disk implements the attributes declared above.
        for name in CheckedDisk.__annotations__:
            setattr(self, name, getattr(disk, name))

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        whole = offset == 0 and size < 0
        return self._checked("read", path, partial(self._disk.read, path, offset, size), reports=whole)

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        return self._checked("read_synced", path, partial(self._disk.read_synced, path, offset))

    def size(self, path: str) -> int:
        return self._checked("size", path, partial(self._disk.size, path))

    def signature(self, path: str) -> Signature:
        return self._checked("signature", path, partial(self._disk.signature, path))

    def names(self, folder: str) -> list[str]:
        return self._checked("names", folder, partial(self._disk.names, folder))

    def has_file(self, path: str) -> bool:
        return self._checked("has_file", path, partial(self._disk.has_file, path))

    def has_folder(self, path: str) -> bool:
        return self._checked("has_folder", path, partial(self._disk.has_folder, path))

    def changed_at(self, path: str) -> int:
        """Return the stamp of the last change of a file or folder."""
        return self._checked("changed_at", path, partial(self._disk.changed_at, path))

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        """Lock a folder."""
        return self._checked("lock", folder, partial(self._disk.lock, folder, wait=wait), partial(self._hold, folder))

    def _checked(
        self,
        name: str,
        path: str,
        read: Callable[[], T],
        again: Callable[[], object] | None = None,
        *,
        reports: bool = True,
    ) -> T:
        # Every read passes here, and usually no run is held back and no read has failed.
        faults = self._faults
        if faults.held:
            faults.check(path)
        try:
            found = read()
        except SyncRefused:
            # A failed sync, which the caller handles.
            raise
        except OSError as error:
            if error.errno in ABSENT or not passes(error):
                raise
            repeat = partial(self._checked, name, path, again or read)
            raise faults.failed((name, path), error, repeat) from error
        if reports and (name, path) in faults.noted:
            faults.succeeded((name, path))
        return found

    def _hold(self, folder: str) -> None:
        if (lock := self._disk.lock(folder)) is not None:
            lock.release()
