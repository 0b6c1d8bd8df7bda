"""The key ring: keys.json of a data directory, read again whenever it has changed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from app import clock, errors
from app.domain import access, keys, plain
from app.domain.access import Role
from app.engine import probes
from app.storage import project_file
from app.storage.disk import disk_health, disk_port
from app.storage.disk.disk_port import Signature
from app.storage.disk.os_disk import OsDisk

FILE = "keys.json"  # File with the keys, in the data directory.
RELOAD_SECONDS = 0.5  # Longest delay until a change of the file is noticed.

_log = logging.getLogger(__name__)


_NONE: tuple[None, None] = (None, None)


class KeyRing:
    """Finds keys by their secrets, in memory.

    A file that is unreadable or broken changes nothing for callers: the last known keys remain valid until it can be
    read again.

    Args:
        folder: The data directory.
        disk: Its disk; None: the machine's.
    """

    def __init__(self, folder: Path, time: clock.Clock, disk: disk_port.Disk | None = None) -> None:
        self._folder = folder
        self._disk = disk or OsDisk(folder)
        self._clock = time
        self._signature: Signature | None = None
        self._fault = ""
        self._turn = threading.Lock()
        self.common: project_file.CommonFiles | None = None
        """Common files of a store whose processes share the keys; changes go there, and the folder gets a copy."""
        self.reach = probes.NoProbes().reach
        """Called at each crash point of a write."""
        self._opened: dict[str, tuple[keys.Key | None, datetime | None]] = {}
        self.is_locked = False
        """Whether a file of keys exists, even an empty one, or has existed since the start.

        A service that has lost its last key refuses all callers, also after a restart.
        """

    async def watch(self) -> None:
        """Check the file for changes on a thread, again and again; keys that this ring writes are valid at once."""
        while True:
            await self._clock.sleep(RELOAD_SECONDS)
            await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Read the file again if it has changed; it blocks."""
        try:
            self.check()
            self._fault = ""
        except errors.ConfigurationError as error:
            if error.message != self._fault:
                _log.error("the keys known before still count: %s", error.message, extra={"code": error.code})
            self._fault = error.message

    def find(self, sha256: str) -> keys.Key | None:
        """Return the key of a secret's hash, expired or not; None if it was revoked, was rotated or never existed.

        The comparison is of hashes of what clients send, so its duration reveals nothing about a secret.
        """
        key, until = self._opened.get(sha256, _NONE)
        return None if until is not None and until <= self._clock.now() else key

    def caller(self, sha256: str) -> access.Caller | None:
        """Return the caller with a secret's hash; None if the secret is not valid, or not any more."""
        key = self.find(sha256)
        return None if key is None or key.is_expired(self._clock.now()) else key.caller(sha256)

    def approvers(self) -> list[keys.Key]:
        """Return the keys of the file that may answer gates; it blocks.

        Raises:
            errors.ConfigurationError: as `check`.
        """
        now = self._clock.now()
        return [key for key in self.read() if key.role.includes(Role.APPROVER) and not key.is_expired(now)]

    def is_administered(self) -> bool:
        """Return whether a key of the file can manage keys; it blocks.

        Raises:
            errors.ConfigurationError: as `check`.
        """
        return any(key.administers(self._clock.now()) for key in self.read())

    def check(self) -> None:
        """Read the file if it has changed; it blocks.

        Raises:
            errors.ConfigurationError: `keys_invalid`, with the place of the error; or the file cannot be read.
        """
        # A write invalidates earlier reads, so that a revoked key does not reappear.
        with self._turn:
            self._check()

    def read(self) -> list[keys.Key]:
        """Return the keys that the file has now; it blocks.

        Raises:
            errors.ConfigurationError: as `check`.
        """
        try:
            content = self._disk.read(FILE)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise disk_health.unusable(self._folder / FILE, error) from error
        # Imported only if there are keys: few projects have them.
        from app.storage import key_file

        try:
            found = key_file.parsed(content)
        except errors.ConfigurationError as error:
            message = f"{self._folder / FILE}: {error.message}; fix the file, or restore it from a backup"
            raise errors.ConfigurationError(message, code=error.code) from error
        if len({key.name for key in found}) < len(found):
            raise errors.ConfigurationError(f"{self._folder / FILE}: two keys have the same name", code="keys_invalid")
        return found

    def renew(self) -> None:
        """Make sure that the next read sees the last write of other processes; it blocks.

        Raises:
            OSError: the last write cannot be read now.
        """
        if self.common is not None:
            self.common.pull()

    def write(self, found: Sequence[keys.Key]) -> None:
        """Replace the file durably; it blocks. The new keys are valid here at once, and other processes notice them."""
        content = {"version": 1, "keys": [_written(key) for key in found]}
        whole = plain.readable(content)
        if self.common is not None:
            self.common.put(FILE, whole)
            self.reload()
            return
        disk_port.replace(self._disk, FILE, whole, sync=True, reach=self.reach, at="storage.project_file")
        self.reload()

    def _check(self) -> None:
        try:
            signature: Signature | None = self._disk.signature(FILE)
        except (FileNotFoundError, NotADirectoryError):
            signature = None
        except OSError as error:
            raise disk_health.unusable(self._folder / FILE, error) from error
        if signature == self._signature:
            return
        found = self.read()
        # Set last, so that an unreadable file is read again.
        self._opened = {secret.sha256: (key, _until(secret)) for key in found for secret in key.secrets}
        self.is_locked = self.is_locked or signature is not None
        self._signature = signature


def _until(secret: keys.Secret) -> datetime | None:
    return None if secret.until is None else clock.instant(secret.until)


def _written(key: keys.Key) -> dict[str, plain.Json]:
    return {
        "name": key.name,
        "role": key.role.value,
        "recipes": list(key.scope.recipes),
        "labels": [":".join(pair) for pair in key.scope.labels],
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "secrets": [{"sha256": secret.sha256, "until": secret.until} for secret in key.secrets],
    }
