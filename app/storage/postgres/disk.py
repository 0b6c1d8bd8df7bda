"""A disk whose files are rows in Postgres, so that the store's code works on it as on folders.

Every write is committed at once, so that a sync has no effect, except that lines of journals wait for their commit. New
content for a file stays in memory until it replaces the file.
"""

# Why: docs/decisions/0300.

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from app.storage import layout
from app.storage.disk.disk_port import AppendFile, Lock, Signature, Syncer
from app.storage.postgres import journals, places, rows
from app.storage.postgres.database import Cursor, Database
from app.storage.postgres.journals import Append
from app.storage.postgres.leases import Leases
from app.storage.postgres.locks import FolderLock, FolderLocks
from app.storage.postgres.ownership import Ownership
from app.storage.postgres.places import Place

_END = 2**62
_NO_LEASE = -1

T = TypeVar("T")


@dataclass(slots=True)
class _Fresh:
    content: bytes
    version: int | None = None


class PostgresDisk:
    """`Disk` over a database.

    Args:
        ownership: Proves before each write that this process may write; None: the disk is read-only.
        shared: Whether other processes write, too.
    """

    def __init__(self, database: Database, ownership: Ownership | None, *, shared: bool = False) -> None:
        self._database = database
        self._ownership = ownership
        self._locks = FolderLocks()
        self._fresh: dict[str, _Fresh] = {}
        self._pending: dict[str, list[bytes]] = {}
        # Taken and committed under one lock, so that lines are committed in the order in which they were written.
        self._commits = threading.Lock()
        self._leases: Leases | None = None
        if shared and ownership is not None:
            self._leases = Leases(database, ownership, flush=self._flush, drop=self._drop)

    def close(self) -> None:
        """Return released leases to the store."""
        if self._leases is not None:
            self._leases.close()

    # -- journals

    def commit(self, paths: Iterable[str]) -> Mapping[str, OSError]:
        """Commit written lines of journals in one transaction, and return the refused journals with the reasons.

        Raises:
            OSError: the commit failed, or may have failed.
        """
        with self._commits:
            # Several commits of one run become one: its lines are in order.
            taken = {path: lines for path in dict.fromkeys(paths) if (lines := self._pending.pop(path, None))}
            if not taken:
                return {}
            owner = self._owner("")
            appends = [
                Append(place=places.of(path), lines=lines, lease=self._lease(path)) for path, lines in taken.items()
            ]
            announces = self._leases is not None
            outcomes = owner.transact(lambda cursor: journals.append(cursor, owner.epoch, appends, announces=announces))
        return {path: error for path, error in zip(taken, outcomes, strict=True) if error is not None}

    def commit_all(self) -> None:
        """Commit written lines of journals that needed no commit before.

        Raises:
            OSError: they were not committed.
        """
        for error in self.commit(list(self._pending)).values():
            raise error

    # -- `Disk`

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        end = offset + size if size >= 0 else _END
        if (fresh := self._fresh.get(path)) is not None:
            return fresh.content[offset:end]
        place = self._committed_place(path)
        reads = journals.read if place.is_journal else rows.read
        content = self._database.read(lambda cursor: reads(cursor, place, offset, end))
        if content is None:
            raise self._absent(path)
        return content

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        """Return a file's content from an offset; it is durable."""
        return self.read(path, offset)

    def size(self, path: str) -> int:
        return self._stat_existing(path)[1]

    def signature(self, path: str) -> Signature:
        """Return the number of the last change, and the length."""
        if (fresh := self._fresh.get(path)) is not None:
            fresh.version = fresh.version or self._database.read(rows.next_version)
            return fresh.version, len(fresh.content)
        is_folder, size, version = self._stat_existing(path)
        if is_folder:
            raise self._absent(path)
        return version, size

    def changed_at(self, path: str) -> int:
        """Return the number of the last change."""
        own = 0 if places.is_run(path) else self._stat_existing(path)[2]
        if places.is_run(path) and not self.has_folder(path):
            raise self._absent(path)
        return max(own, self._database.read(lambda cursor: rows.newest(cursor, path)))

    def names(self, folder: str) -> list[str]:
        return self._database.read(lambda cursor: rows.names(cursor, folder))

    def has_file(self, path: str) -> bool:
        """Return whether the file exists."""
        found = self._stat(path)
        return path in self._fresh or (found is not None and not found[0])

    def has_folder(self, path: str) -> bool:
        if places.is_run(path):
            return self._database.read(lambda cursor: rows.has_run(cursor, path))
        found = self._stat(path)
        return not path or (found is not None and found[0])

    def add_folder(self, path: str) -> bool:
        if places.is_run(path):
            return self._written(path, lambda cursor, epoch: rows.add_run(cursor, path, epoch))
        return self._written(path, lambda cursor, _: rows.add_folder(cursor, places.of(path)))

    def append_to(self, path: str) -> AppendFile:
        """Open a file for appending, without a query before the first write."""
        self._owner(path)
        if places.of(path).is_journal:
            return JournalFile(path, self._pending, self.commit)
        return ChunkedFile(lambda content: self._put(path, content, append=True))

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        name = path.rpartition("/")[2]
        if name.startswith(".") and name.endswith(".new"):
            self._owner(path)
            self._fresh[path] = _Fresh(content)
            return
        self._put(path, content)

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        place = self._committed_place(path)
        if place.is_journal:
            self._put(path, self.read(path, 0, size))
        else:
            self._written(path, lambda cursor, _: rows.cut(cursor, place, size))

    def rename(self, old: str, new: str) -> None:
        if (fresh := self._fresh.pop(old, None)) is not None:
            self._put(new, fresh.content, version=fresh.version)
        elif places.is_run(old):
            self._flush(old)
            self._locks.moved(old, new, lambda: self._move_run(old, new))
        elif places.of(old).is_journal or places.of(new).is_journal:
            content = self.read(old)
            self._put(new, content)
            self.remove(old)
        else:
            self._written(old, lambda cursor, _: rows.move(cursor, places.of(old), places.of(new)))

    def sync_folder(self, path: str) -> None:
        """Do nothing; names are durable as soon as they are written."""

    def syncer(self, folders: Iterable[str]) -> Syncer:
        """Return a syncer that does nothing."""
        return _NoSyncer()

    def boot_id(self) -> str:
        """Return the same value at every start: no written data can be lost."""
        return "postgres"

    def remove(self, path: str) -> None:
        self._pending.pop(path, None)
        if self._fresh.pop(path, None) is None and not self._written(
            path, lambda cursor, _: rows.remove(cursor, places.of(path))
        ):
            raise self._absent(path)

    def remove_tree(self, path: str) -> None:
        self._drop(path)
        if not self._written(path, lambda cursor, _: rows.remove_tree(cursor, path)):
            raise self._absent(path)
        if self._leases is not None:
            self._leases.forget(path)

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        """Lock a folder; from then on a run refuses lines of an earlier owner or lease."""
        if not self.has_folder(folder):
            raise self._absent(folder)
        lock = self._locks.acquire(folder, wait=wait)
        if lock is None or self._ownership is None or not (places.is_run(folder) or self._leases):
            return lock
        try:
            if self._leases is not None:
                return self._leased(lock, wait=wait)
            if self._written(folder, lambda cursor, epoch: rows.claim_run(cursor, folder, epoch)):
                return lock
            raise self._absent(folder) if not self.has_folder(folder) else self._database.fenced()
        except BaseException:
            lock.release()
            raise

    # -- shared by these

    def _put(self, path: str, content: bytes, *, append: bool = False, version: int | None = None) -> None:
        place = places.of(path)
        if not place.is_journal:

            def put(cursor: Cursor, _: int) -> None:
                begin = rows.put(cursor, place, content, append=append, version=version)
                if place[1:] == ("", layout.EVENTS):
                    self._announce(cursor, place.run, begin)

            self._written(path, put)
            return
        with self._commits:
            # Written and uncommitted lines are replaced as well.
            self._pending.pop(path, None)
            owner = self._owner(path)

            def replace(cursor: Cursor) -> bool:
                self._database.check_epoch(cursor, owner.epoch)
                if self._leases is not None:
                    self._leases.check(cursor, path)
                return journals.replace(cursor, place, content)

            if not owner.transact(replace):
                raise self._absent(path)

    def _move_run(self, old: str, new: str) -> None:
        def move(cursor: Cursor, _: int) -> bool:
            if rows.has_run(cursor, new):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
            self._announce(cursor, new, 0)
            self._announce(cursor, old)
            return rows.move_run(cursor, old, new)

        if not self._written(old, move):
            raise self._absent(old)
        if self._leases is not None:
            self._leases.moved(old, new)

    def _announce(self, cursor: Cursor, run: str, begin: int | None = None) -> None:
        # No other process knows a run that is being built.
        if self._leases is not None and layout.run_of(run) is not None:
            rows.announce(cursor, run, begin, self._owner(run).number)

    def _committed_place(self, path: str) -> Place:
        if path in self._pending:
            for error in self.commit([path]).values():
                raise error
        return places.of(path)

    def _stat(self, path: str) -> tuple[bool, int, int] | None:
        place = self._committed_place(path)
        return self._database.read(lambda cursor: rows.stat(cursor, place))

    def _stat_existing(self, path: str) -> tuple[bool, int, int]:
        if (found := self._stat(path)) is None:
            raise self._absent(path)
        return found

    def _written(self, path: str, job: Callable[[Cursor, int], T]) -> T:
        epoch, leases = self._owner(path).epoch, self._leases

        def write(cursor: Cursor) -> T:
            if leases is not None:
                leases.check(cursor, path)
            return job(cursor, epoch)

        return self._database.write(epoch, write)

    def _leased(self, lock: FolderLock, *, wait: bool) -> Lock | None:
        assert self._leases is not None
        held = self._leases.acquire(lock, wait=wait)
        if held is None:
            lock.release()
            if not self.has_folder(lock.folder):
                raise self._absent(lock.folder)
        return held

    def _lease(self, path: str) -> int | None:
        if self._leases is None:
            return None
        return self._leases.number(path) or _NO_LEASE

    def _flush(self, run: str) -> None:
        for error in self.commit([f"{run}/{name}" for name in places.JOURNALS]).values():
            raise error

    def _drop(self, run: str) -> None:
        for name in places.JOURNALS:
            self._pending.pop(f"{run}/{name}", None)

    def _owner(self, path: str) -> Ownership:
        if self._ownership is None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return self._ownership

    @staticmethod
    def _absent(path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class JournalFile:
    """`AppendFile` over a journal: written bytes wait in memory for the next commit."""

    def __init__(
        self, path: str, pending: dict[str, list[bytes]], commit: Callable[[Iterable[str]], Mapping[str, OSError]]
    ) -> None:
        self._path = path
        self._pending = pending
        self._commit = commit
        self._closed = False

    def write(self, content: bytes) -> None:
        """Add sealed lines."""
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        self._pending.setdefault(self._path, []).extend(journals.split(content))

    def sync(self) -> None:
        """Commit the written lines."""
        for error in self._commit([self._path]).values():
            raise error

    def close(self) -> None:
        """Refuse further writes; lines without a commit are committed with later ones or before the next read."""
        self._closed = True


class ChunkedFile:
    """`AppendFile` over any other file."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def write(self, content: bytes) -> None:
        """Append the content, durable at once."""
        self._put(content)

    def sync(self) -> None:
        """Do nothing; written bytes are durable."""

    def close(self) -> None:
        """Do nothing; this file has no connection."""


class _NoSyncer:
    def sync(self, paths: Callable[[], Iterable[str]]) -> None:
        pass

    def close(self) -> None:
        pass
