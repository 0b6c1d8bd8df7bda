"""A disk whose blobs, and logs of ended runs, are objects in a bucket; all other files are on another disk.

A blob becomes an object before the line that names it is written. A log is a file while its run may write to it. Files
from before the bucket was used are still read from the other disk.
"""

# Why: docs/decisions/0350.

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from app.storage import layout
from app.storage.disk.disk_port import AppendFile, Disk, Lock, Signature, Syncer
from app.storage.objects.bucket import Bucket

_RUN = r"runs/(?:\.trash/(?P<gone>[^/]+)\.\d+|(?P<fresh>\.new-)?(?P<run>[^/]+))"
_FOLDER = re.compile(rf"{_RUN}(?:/(?P<kind>{layout.BLOBS}|{layout.LOGS}))?")
_FILE = re.compile(rf"{_RUN}/(?P<kind>{layout.BLOBS}|{layout.LOGS})/(?P<name>[^/]+)")
_ABSENT = (FileNotFoundError, NotADirectoryError)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ObjectDisk:
    """`Disk` over a bucket and another disk."""

    add_folder: Callable[[str], bool]
    read_synced: Callable[..., bytes]
    cut: Callable[..., None]
    has_folder: Callable[[str], bool]
    sync_folder: Callable[[str], None]
    syncer: Callable[[Iterable[str]], Syncer]
    boot_id: Callable[[], str]
    lock: Callable[..., Lock | None]

    def __init__(self, disk: Disk, bucket: Bucket) -> None:
        self._disk = disk
        self.bucket = bucket
        """Bucket of the objects."""
        self._fresh: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        # The other disk implements the attributes declared above.
        return getattr(self._disk, name)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        if (key := _key(path)) is None:
            return self._disk.read(path, offset, size)
        try:
            return self._disk.read(path, offset, size)
        except _ABSENT:
            return self._of_object(lambda: self.bucket.get(key, offset, None if size < 0 else offset + size))

    def size(self, path: str) -> int:
        return self._either(path, self._disk.size, lambda key: self.bucket.head(key).size_bytes)

    def signature(self, path: str) -> Signature:
        """Return a stamp of a file; every change of the file changes the stamp."""
        return self._either(path, self._disk.signature, self._signature)

    def changed_at(self, path: str) -> int:
        """Return the stamp of the last change of a file or folder."""
        return self._either(path, self._disk.changed_at, lambda key: self._signature(key)[0])

    def names(self, folder: str) -> list[str]:
        names = self._disk.names(folder)
        place = _FOLDER.fullmatch(folder)
        if place is None or not place["kind"]:
            return names
        prefix = f"{_prefix(place)}/{place['kind']}/"
        return sorted({*names, *(found.name.removeprefix(prefix) for found in self.bucket.all(prefix))})

    def has_file(self, path: str) -> bool:
        """Return whether a file exists."""
        if self._disk.has_file(path):
            return True
        key = _key(path)
        return key is not None and self.bucket.has(key)

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        """Make or overwrite a file; new content for a blob stays in memory until the rename."""
        key = _key(path)
        # A run appends to its logs while it executes, which objects do not allow.
        if key is None or f"/{layout.LOGS}/" in path:
            self._disk.write(path, content, sync=sync)
        elif path.rpartition("/")[2].startswith("."):
            self._fresh[path] = content
        else:
            self.bucket.put(key, content)
            if self._disk.has_file(path):
                # A blob file from before the bucket was used, which would be read first.
                self._disk.remove(path)

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder; the objects of a run keep their names wherever its folder is."""
        if (content := self._fresh.pop(old, None)) is None:
            self._disk.rename(old, new)
        else:
            self.write(new, content, sync=True)

    def append_to(self, path: str) -> AppendFile:
        """Open a file for appending; a log that is an object becomes a file again."""
        key = _key(path)
        if key is not None and not self._disk.has_file(path) and self.bucket.has(key):
            self._disk.write(path, self.bucket.get(key), sync=False)
        return self._disk.append_to(path)

    def remove(self, path: str) -> None:
        if self._fresh.pop(path, None) is not None:
            return
        key = _key(path)
        if key is None or self._disk.has_file(path):
            self._disk.remove(path)
        else:
            self.bucket.head(key)
            self.bucket.remove([key])

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, and a run's objects if no other folder of the run exists."""
        self._disk.remove_tree(path)
        place = _FOLDER.fullmatch(path)
        if place is None or place["kind"] or any(map(self._disk.has_folder, _folders(_id(place)))):
            return
        try:
            self.bucket.remove([found.name for found in self.bucket.all(f"{_prefix(place)}/")])
        except OSError as error:
            _log.warning("objects of a removed run are left to be collected: %s", error.strerror)

    def put_logs_away(self, folder: str) -> None:
        """Move the logs of an ended run into objects."""
        logs = f"{folder}/{layout.LOGS}"
        for name in self._disk.names(logs):
            path = f"{logs}/{name}"
            key = None if name.startswith(".") else _key(path)
            if key is None or not self._disk.has_file(path):
                continue
            content = self._disk.read(path)
            self.bucket.put(key, content)
            # A log that grew meanwhile is moved next time.
            if self._disk.size(path) == len(content):
                self._disk.remove(path)

    def _either(self, path: str, on_disk: Callable[[str], T], in_bucket: Callable[[str], T]) -> T:
        key = _key(path)
        try:
            return on_disk(path)
        except _ABSENT:
            if key is None:
                raise
            return self._of_object(lambda: in_bucket(key))

    def _of_object(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except FileNotFoundError:
            # A missing bucket, or a folder that is not mounted, does not prove that the object is missing.
            if self.bucket.has(layout.BUCKET_MARK):
                raise
        raise OSError(errno.ESTALE, f"{self.bucket.shown} does not hold {layout.BUCKET_MARK}", layout.BUCKET_MARK)

    def _signature(self, key: str) -> Signature:
        found = self.bucket.head(key)
        return int(found.changed_at.timestamp() * 1_000_000_000), found.size_bytes


def _key(path: str) -> str | None:
    place = _FILE.fullmatch(path)
    return None if place is None else f"{_prefix(place)}/{place['kind']}/{place['name']}"


def _id(place: re.Match[str]) -> str:
    return place["gone"] or place["run"]


def _prefix(place: re.Match[str]) -> str:
    return f"{layout.RUNS}/{_id(place)}"


def _folders(run_id: str) -> tuple[str, str]:
    return f"{layout.RUNS}/{run_id}", layout.new_folder(run_id)
