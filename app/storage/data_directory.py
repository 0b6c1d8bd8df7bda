"""The data directory: its folders, its identity, and which process is its service."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from app import clock, errors
from app.domain import plain
from app.storage import layout, layout_version
from app.storage.disk import disk_health, disk_port, os_disk
from app.storage.disk.os_disk import OsDisk, OsLock

T = TypeVar("T")

_IDENTITY = "data_directory_id"
SERVICE = "service.json"  # File of the process that is the service.
_INDEX = "index.db"
_FOLDER_MODE = 0o700
_MOST_ATTEMPTS = 5
_ATTEMPT_SECONDS = 0.01

_IGNORING = "# Written by Control Room on first use: what runs leave behind stays out of the project's history.\n"
_GITIGNORE = f"""\
{_IGNORING}/.gitignore
/{_IDENTITY}
/{layout_version.FILE}
/{SERVICE}
/audit/
/commits/
/{layout.COMMON}/
/{_INDEX}*
/issues/
/keys.json
/processes/
/rate_limits.json
/{layout.RATES}/
/runs/
/sessions/
/workers/
/{layout.BLOBS_MARK}
/{layout.STORE_MARK}
"""


class ServiceLock:
    """The lock that makes a process the service of a data directory; it ends with the process."""

    def __init__(self, disk: OsDisk, lock: disk_port.Lock, facts: dict[str, plain.Json]) -> None:
        self._disk = disk
        self._lock = lock
        self._facts = facts

    def announce(self, url: str | None) -> None:
        """Publish which process the service is and where it listens."""
        self._facts |= {"url": url}
        self._disk.write(f".{SERVICE}.new", plain.encode(self._facts) + b"\n", sync=False)
        self._disk.rename(f".{SERVICE}.new", SERVICE)

    def release(self) -> None:
        """Stop being the service of the data directory."""
        with contextlib.suppress(OSError):
            self._disk.remove(SERVICE)
        self._lock.release()
        self._disk.close()


def other_engine(
    runs_of: str, *, shared: bool, holder: Mapping[str, plain.Json] = MappingProxyType({})
) -> errors.ConfigurationError:
    """Return the refusal of a process whose engine differs from the one that executes the runs.

    Args:
        runs_of: The store.
        shared: Whether the refused process is one of several on Temporal.
        holder: The process that executes the runs.
    """
    if shared:
        message = f"an embedded engine executes the runs of {runs_of}: stop it first, since two would repeat steps"
    else:
        message = (
            f"workers on Temporal execute the runs of {runs_of}: give orders with --server and the address of a "
            "service, serve with --engine temporal, or stop them first, since two engines would repeat steps"
        )
    return errors.ConfigurationError(message, code="other_engine", detail=holder)


class DataDirectory:
    """The folder `.control-room` of a project."""

    def __init__(self, path: Path, *, clock: clock.Clock, ids: clock.Ids) -> None:
        self.path = path
        """The folder."""
        self._clock = clock
        self._ids = ids
        self._disk = OsDisk(path)
        self._identity: str | None = None

    @property
    def identity(self) -> str:
        """Return the identity of this data directory; `prepare` must have been called."""
        return self._identity if self._identity is not None else self.prepare()

    def prepare(self) -> str:
        """Create missing folders and files, accessible to their owner only, and return the identity.

        Raises:
            errors.ConfigurationError: it cannot be made or read, or is of a later version (`data_directory_newer`).
        """
        try:
            if not self.path.exists():
                self.path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
                OsDisk(self.path.parent).sync_folder("")
            marked = layout_version.check(self._disk, self.path)
            for folder in ("", *layout.FOLDERS):
                self._make_private(folder)
            self._ignore()
            self._identity = (self._known_identity() if marked else "") or self._identified()
        except OSError as error:
            raise disk_health.unusable(self.path, error) from error
        return self._identity

    @property
    def index_file(self) -> Path:
        """Return the index database inside."""
        return self.path.resolve() / _INDEX

    def index_url(self) -> str:
        """Return the address of the index database inside."""
        # Commands that only read open the file itself, without this address.
        from app.storage.index.sql import database

        return database.url_of(str(self.index_file))

    def read_identity(self) -> str:
        """Return the identity without changing any file; empty if none exists yet.

        Raises:
            errors.ConfigurationError: it cannot be read, or is of a later version (`data_directory_newer`).
        """
        try:
            layout_version.check(self._disk, self.path)
            return self._known_identity()
        except OSError as error:
            raise disk_health.unusable(self.path, error) from error

    def lock_service(self) -> ServiceLock:
        """Become the service.

        Raises:
            errors.DataDirectoryBusy: another process is; `detail` names it: `pid, host, since, url`.
            errors.ConfigurationError: it cannot be written.
        """
        self.prepare()
        # If the directory is replaced, the file of the other one belongs to another service.
        disk = OsDisk(self.path)
        try:
            disk.hold()
            # `service` of another process takes the lock for an instant; a service keeps it longer than these tries.
            lock = _tried(lambda: disk.lock(""))
        except OSError as error:
            raise disk_health.unusable(self.path, error) from error
        if lock is None:
            raise self._busy()
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": clock.stamp(self._clock.now())}
        held = ServiceLock(disk, lock, facts)
        try:
            if layout_version.check(self._disk, self.path) != layout_version.LAYOUT:
                layout_version.write(self._disk)
            held.announce(None)
        except OSError as error:
            held.release()
            raise disk_health.unusable(self.path, error) from error
        return held

    def lock_engine(self, *, shared: bool) -> OsLock:
        """Lock the runs for an engine; processes of the same engine share the lock.

        Raises:
            errors.ConfigurationError: `other_engine`, another engine executes them; or the lock fails.
        """
        try:
            # `has_workers` of another process takes the lock for an instant.
            lock = _tried(lambda: os_disk.lock_file(str(self.path / _IDENTITY), shared=shared))
        except OSError as error:
            raise disk_health.unusable(self.path, error) from error
        if lock is None:
            raise other_engine(str(self.path), shared=shared)
        return lock

    @property
    def is_used(self) -> bool:
        """Return whether the directory may contain runs; a first use on a full disk leaves only empty folders."""
        runs = self.path / layout.RUNS
        return (self.path / _IDENTITY).exists() or (
            runs.is_dir() and any(not path.name.startswith(".") for path in runs.iterdir())
        )

    def service(self) -> dict[str, Any] | None:
        """Return the running service as `pid, host, since, url`; None if none runs.

        Raises:
            errors.ConfigurationError: its lock cannot be examined.
        """
        try:
            lock = os_disk.lock(str(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                # A service needs a disk that can be written, so none runs here.
                return None
            # A process that cannot examine the lock must not report that no service runs.
            raise disk_health.unusable(self.path, error) from error
        if lock is not None:
            lock.release()
            return None
        return self._holder()

    def has_workers(self) -> bool:
        """Return whether processes of the engine on Temporal execute the runs, whose lock is shared."""
        try:
            return self._is_free(shared=True) and not self._is_free(shared=False)
        except OSError:
            return False

    def _is_free(self, *, shared: bool) -> bool:
        lock = os_disk.lock_file(str(self.path / _IDENTITY), shared=shared)
        if lock is not None:
            lock.release()
        return lock is not None

    def is_executed(self, run_id: str) -> bool | None:
        """Return whether a process executes a run of the folder; None if this process cannot find out."""
        try:
            lock = os_disk.lock(str(self.path / layout.run_folder(run_id)))
        except OSError:
            return None
        if lock is not None:
            lock.release()
        return lock is None

    def refuse_second_service(self) -> None:
        """Refuse to continue while a service runs; nothing is written.

        Raises:
            errors.DataDirectoryBusy: one runs, or is still stopping.
            errors.ConfigurationError: its lock cannot be examined.
        """
        if self.service() is not None:
            raise self._busy()

    def _make_private(self, folder: str) -> None:
        if folder and self._disk.add_folder(folder):
            self._disk.sync_folder(folder.rpartition("/")[0])
        place = self.path / folder
        mode = stat.S_IMODE(place.stat().st_mode)
        if mode == _FOLDER_MODE:
            return
        try:
            place.chmod(_FOLDER_MODE)
        except PermissionError as error:
            # A volume may belong to another user; its administrator has chosen its group.
            if mode & stat.S_IRWXO:
                reason = f"{place} is open to all users (mode {mode:04o}) and has another owner"
                remedy = "as its owner, chmod it to 700, or mount it with umask=077"
                raise PermissionError(error.errno, f"{reason}; {remedy}") from error

    def _ignore(self) -> None:
        content = ""
        with contextlib.suppress(FileNotFoundError):
            content = self._disk.read(".gitignore").decode("utf-8", "replace")
        # A file of a person is kept; our file gets the lines that an earlier version did not write.
        missing = [line for line in _GITIGNORE.splitlines() if line not in content.splitlines()]
        if not content:
            self._disk.write(".gitignore", _GITIGNORE.encode(), sync=False)
        elif missing and content.startswith(_IGNORING):
            self._disk.write(".gitignore", "\n".join([content.rstrip("\n"), *missing, ""]).encode(), sync=False)

    def _identified(self) -> str:
        # Two processes may be here at once, and not every file system has links, where the first one would win.
        lock = self._disk.lock(layout.RUNS, wait=True)
        try:
            # The other one may have become the service meanwhile, which raises the mark.
            if layout_version.check(self._disk, self.path) is None:
                layout_version.write(self._disk, layout_version.FIRST)
            if not self._known_identity():
                content = f"{self._ids.token('dir_')}\n".encode()
                disk_port.replace(self._disk, _IDENTITY, content, sync=True)
            return self._known_identity()
        finally:
            if lock is not None:
                lock.release()

    def _known_identity(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._disk.read(_IDENTITY).decode("utf-8", "replace").strip()
        return ""

    def _busy(self) -> errors.DataDirectoryBusy:
        holder = self._holder()
        who = f"process {holder['pid']} on {holder['host']}" if holder["pid"] else "another process"
        since = f" since {holder['since']}" if holder["since"] else ""
        if holder["url"]:
            message = f"{who} has been the service of {self.path}{since}; a data directory has one service at a time"
        else:
            message = f"{who} has been at work on {self.path}{since}; let it end, or stop it where it was started"
        return errors.DataDirectoryBusy(message, detail=holder)

    def _holder(self) -> dict[str, Any]:
        holder: Any = None
        with contextlib.suppress(OSError, ValueError):
            holder = json.loads(self._disk.read(SERVICE))
        known = holder if isinstance(holder, dict) else {}
        return {name: known.get(name) for name in ("pid", "host", "since", "url")}


def _tried(lock: Callable[[], T | None]) -> T | None:
    for _ in range(_MOST_ATTEMPTS):
        if (held := lock()) is not None:
            return held
        threading.Event().wait(_ATTEMPT_SECONDS)
    return None
