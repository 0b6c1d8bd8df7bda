"""Leases: record which of several processes that share a store writes a run, and which one locks a folder.

A run's row counts its leases. A process that acquires the run gets the next number, and from then on writes with an
earlier number are refused. A process that died loses its leases with its session; a frozen one loses them when another
process needs them.
"""

# Why: docs/decisions/0321.

from __future__ import annotations

import errno
import hashlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from app.storage.disk.disk_port import LeaseLost, Lock
from app.storage.postgres import places
from app.storage.postgres.database import SCHEMA, Cursor, Database
from app.storage.postgres.locks import FolderLock
from app.storage.postgres.ownership import Ownership

LEASE_SECONDS = 10.0  # Time for which a process can keep a run from others that need it.

STUCK_SECONDS = 30.0
"""Time for which a process can lock a folder that others wait for; then its session is ended."""

_RETRY_SECONDS = 0.02
_FOLDERS = 0x4352

# A holder whose session has ended no longer holds its own advisory lock.
_TAKE = f"""
UPDATE {SCHEMA}.runs SET epoch = %(epoch)s, lease = lease + 1, holder = %(me)s,
  held_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE place = %(place)s AND epoch <= %(epoch)s AND (holder IS NULL OR holder = %(me)s
  OR held_until < clock_timestamp() OR pg_try_advisory_xact_lock_shared(-holder))
RETURNING lease
"""
_GIVE_BACK = f"UPDATE {SCHEMA}.runs SET holder = NULL, held_until = NULL WHERE place = %s AND lease = %s"
_HELD = f"SELECT 1 FROM {SCHEMA}.runs WHERE place = %s AND lease = %s FOR SHARE"
_END_HOLDER = """
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
AND classid = %s::int::oid AND objid::bigint = %s::bigint & 4294967295 AND pid <> pg_backend_pid()
"""

_log = logging.getLogger(__name__)

Flush: TypeAlias = Callable[[str], None]
"""Commits written lines of a run's journals that needed no commit before."""


class Leases:
    """The leases of one process.

    Args:
        drop: Discards lines that `flush` would commit, since another process has written meanwhile.
    """

    def __init__(self, database: Database, ownership: Ownership, *, flush: Flush, drop: Flush) -> None:
        self._database = database
        self._ownership = ownership
        self._flush = flush
        self._drop = drop
        self._clock = database.clock
        self._guard = threading.Condition()
        self._numbers: dict[str, int] = {}
        self._acquiring: set[str] = set()
        self._returning = ""
        self._returns: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def acquire(self, lock: FolderLock, *, wait: bool) -> Lock | None:
        """Lock a folder that this process has locked against other processes, too; return None if one of them has it.

        Raises:
            FileNotFoundError: the folder is gone.
        """
        acquire = self._acquire_run if places.is_run(lock.folder) else self._acquire_folder
        began = self._clock.monotonic()
        while not acquire(lock.folder):
            if not wait or self._closed.is_set():
                return None
            # The session of a folder's holder may hang in a network that drops all packets.
            if not places.is_run(lock.folder) and self._clock.monotonic() - began > STUCK_SECONDS:
                self._ownership.ask(_END_HOLDER, (_FOLDERS, _key(lock.folder)))
            self._closed.wait(_RETRY_SECONDS)
        return _Lease(lock, self._give_back)

    def number(self, path: str) -> int | None:
        """Return the lease under which this process writes a file; None if the file is in no run that it has leased."""
        run = path if places.is_run(path) else places.of(path).run
        return self._numbers.get(run)

    def check(self, cursor: Cursor, path: str) -> None:
        """Make sure that the lease of a file's run lasts until the end of the transaction.

        Raises:
            LeaseLost: another process has taken it.
        """
        run = path if places.is_run(path) else places.of(path).run
        number = self._numbers.get(run)
        if number is not None and cursor.execute(_HELD, (run, number)).fetchone() is None:
            raise lost(run)

    def moved(self, old: str, new: str) -> None:
        """Record that the folder of a run has another name."""
        with self._guard:
            if (number := self._numbers.pop(old, None)) is not None:
                self._numbers[new] = number

    def forget(self, run: str) -> None:
        """Record that the folder of a run is gone."""
        with self._guard:
            self._numbers.pop(run, None)

    def close(self) -> None:
        """Return released leases, and stop the thread."""
        self._closed.set()
        if self._thread is not None:
            self._returns.put(None)
            self._thread.join()

    def _acquire_run(self, folder: str) -> bool:
        me, epoch = self._ownership.number, self._ownership.epoch
        asked = {"epoch": epoch, "me": me, "seconds": LEASE_SECONDS, "place": folder}
        with self._guard:
            # Lines that a return flushes belong to the former lease, and are lost if it has ended meanwhile.
            self._guard.wait_for(lambda: self._returning != folder)
            self._acquiring.add(folder)
        try:
            row = self._database.write(epoch, lambda cursor: cursor.execute(_TAKE, asked).fetchone())
            if row is None:
                return False
            with self._guard:
                former = self._numbers.get(folder)
                self._numbers[folder] = int(row[0])
        finally:
            with self._guard:
                self._acquiring.discard(folder)
        # Another process had the run in between, so what this process knows of it is outdated.
        if former is not None and former + 1 != row[0]:
            self._drop(folder)
        return True

    def _acquire_folder(self, folder: str) -> bool:
        row = self._ownership.ask("SELECT pg_try_advisory_lock(%s, %s)", (_FOLDERS, _key(folder)))
        return row is not None and bool(row[0])

    def _give_back(self, folder: str) -> None:
        number = self._numbers.get(folder)
        if places.is_run(folder):
            self._later(lambda: self._return_run(folder, number))
        else:
            unlock = "SELECT pg_advisory_unlock(%s, %s)"
            self._later(lambda: self._ownership.ask(unlock, (_FOLDERS, _key(folder))))

    def _return_run(self, folder: str, number: int | None) -> None:
        with self._guard:
            # The row belongs to the newer lease now.
            if number is None or self._numbers.get(folder) != number or folder in self._acquiring:
                # This process has acquired it again.
                return
            self._returning = folder
        try:
            # Before the row is free: the next holder's lease number fences off lines that are not committed yet.
            self._flush(folder)
            self._database.write(self._ownership.epoch, lambda cursor: cursor.execute(_GIVE_BACK, (folder, number)))
            with self._guard:
                if self._numbers.get(folder) == number:
                    del self._numbers[folder]
        finally:
            with self._guard:
                self._returning = ""
                self._guard.notify_all()

    def _later(self, job: Callable[[], object]) -> None:
        # A release happens on the event loop, which does not wait for a database.
        with self._guard:
            if self._closed.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="leases", daemon=True)
                self._thread.start()
        self._returns.put(lambda: _tried(job))

    def _work(self) -> None:
        while (job := self._returns.get()) is not None:
            job()


class _Lease:
    def __init__(self, lock: FolderLock, give_back: Callable[[str], None]) -> None:
        self._lock = lock
        self._give_back: Callable[[str], None] | None = give_back

    def release(self) -> None:
        """Release the folder; other processes may take it a moment later."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back(self._lock.folder)
            self._lock.release()


def lost(run: str) -> LeaseLost:
    """Return the error for a run that another process has taken."""
    return LeaseLost(errno.ESTALE, f"{run} was taken over by another process meanwhile")


def _key(folder: str) -> int:
    return int.from_bytes(hashlib.sha256(folder.encode()).digest()[:4], signed=True)


def _tried(job: Callable[[], object]) -> None:
    try:
        job()
    except OSError as error:
        _log.warning("a lease was not given back, and ends by itself: %s", error)
