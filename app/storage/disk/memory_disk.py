"""A disk in memory that, when a test cuts its power, loses exactly the unsynced writes."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.storage.disk.disk_port import AppendFile, Lock, Signature, Syncer

_tick = itertools.count(1).__next__


@dataclass(slots=True, eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: int = 0
    overwritten: int = 0
    number: int = field(default_factory=itertools.count().__next__)
    changed: int = field(default_factory=_tick)

    def after_crash(self, lose_unsynced: bool) -> _File:
        kept = bytearray(self.content[: self.synced] if lose_unsynced else self.content)
        return _File(kept, len(kept), changed=self.changed)


@dataclass(slots=True, eq=False)
class _Folder:
    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    locked: bool = False
    changed: int = field(default_factory=_tick)

    def after_crash(self, lose_unsynced: bool) -> _Folder:
        kept = self.synced if lose_unsynced else self.entries
        entries = {name: node.after_crash(lose_unsynced) for name, node in kept.items()}
        return _Folder(entries, dict(entries), changed=self.changed)


class MemoryAppendFile:
    """`AppendFile` over a file in memory."""

    def __init__(self, file: _File) -> None:
        self._file: _File | None = file

    def write(self, content: bytes) -> None:
        file = self._open()
        file.content.extend(content)
        file.changed = _tick()

    def sync(self) -> None:
        file = self._open()
        file.synced = len(file.content)

    def close(self) -> None:
        self._file = None

    def _open(self) -> _File:
        if self._file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._file


class MemoryLock:
    """`Lock` on a folder in memory."""

    def __init__(self, folder: _Folder) -> None:
        self._folder: _Folder | None = folder

    def release(self) -> None:
        """Release the lock."""
        if self._folder is not None:
            self._folder.locked = False
            self._folder = None


class MemorySyncer:
    """`Syncer` over a disk in memory."""

    def __init__(self, sync: Callable[[Iterable[str]], None]) -> None:
        self._sync = sync

    def sync(self, paths: Callable[[], Iterable[str]]) -> None:
        """Make files and folders durable."""
        self._sync(paths())

    def close(self) -> None:
        """Do nothing; this syncer has no open folders."""


class MemoryDisk:
    """`Disk` in memory."""

    def __init__(self, root: _Folder | None = None, power_cuts: int = 0) -> None:
        self._root = root or _Folder()
        self._power_cuts = power_cuts
        self._guard = threading.RLock()

    def crashed(self, *, lose_unsynced: bool) -> MemoryDisk:
        """Return the disk as a restart finds it; later writes to the old disk have no effect on it.

        Args:
            lose_unsynced: Whether the machine lost power; otherwise only the process died.
        """
        with self._guard:
            return MemoryDisk(self._root.after_crash(lose_unsynced), self._power_cuts + lose_unsynced)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        content = self._file(path).content
        return bytes(content[offset:] if size < 0 else content[offset : offset + size])

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        """Sync a file and return its content from an offset."""
        file = self._file(path)
        file.synced = len(file.content)
        return bytes(file.content[offset:])

    def size(self, path: str) -> int:
        return len(self._file(path).content)

    def signature(self, path: str) -> Signature:
        """Return the number of the file, its length and how often it was overwritten."""
        file = self._file(path)
        return file.number, len(file.content), file.overwritten

    def changed_at(self, path: str) -> int:
        """Return the number of the last change."""
        node = self._find(path)
        if node is None:
            raise _missing(path)
        return node.changed

    def names(self, folder: str) -> list[str]:
        node = self._find(folder)
        return sorted(node.entries) if isinstance(node, _Folder) else []

    def has_file(self, path: str) -> bool:
        """Return whether the file exists."""
        return isinstance(self._find(path), _File)

    def has_folder(self, path: str) -> bool:
        return isinstance(self._find(path), _Folder)

    def add_folder(self, path: str) -> bool:
        with self._guard:
            parent, name = self._parent(path)
            if name in parent.entries:
                return False
            parent.entries[name] = _Folder()
            return True

    def append_to(self, path: str) -> AppendFile:
        return MemoryAppendFile(self._made(path))

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        file = self._made(path)
        file.content = bytearray(content)
        file.synced = len(content) if sync else 0
        file.overwritten = file.overwritten + 1
        file.changed = _tick()

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        file = self._file(path)
        del file.content[size:]
        file.changed = _tick()
        file.synced = len(file.content) if sync else min(file.synced, size)

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            source, name = self._parent(old)
            target, new_name = self._parent(new)
            if name not in source.entries:
                raise _missing(old)
            if isinstance(target.entries.get(new_name), _Folder):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
            target.entries[new_name] = source.entries.pop(name)
            source.changed = target.changed = _tick()

    def sync_folder(self, path: str) -> None:
        with self._guard:
            folder = self._folder(path)
            folder.synced = dict(folder.entries)

    def syncer(self, folders: Iterable[str]) -> Syncer:
        """Return a syncer that syncs file by file."""
        return MemorySyncer(self.sync_paths)

    def sync_paths(self, paths: Iterable[str]) -> None:
        """Make these files and folders durable, as far as they exist."""
        with self._guard:
            for path in paths:
                node = self._find(path)
                if isinstance(node, _File):
                    node.synced = len(node.content)
                elif node is not None:
                    node.synced = dict(node.entries)

    def boot_id(self) -> str:
        """Return how often the power was lost."""
        return str(self._power_cuts)

    def remove(self, path: str) -> None:
        with self._guard:
            self._file(path)
            parent, name = self._parent(path)
            del parent.entries[name]
            parent.changed = _tick()

    def remove_tree(self, path: str) -> None:
        with self._guard:
            self._folder(path)
            parent, name = self._parent(path)
            del parent.entries[name]
            parent.changed = _tick()

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        """Lock a folder; waiting is impossible in memory, where everything happens in one thread."""
        with self._guard:
            node = self._folder(folder)
            if node.locked:
                return None
            node.locked = True
            return MemoryLock(node)

    def _find(self, path: str) -> _File | _Folder | None:
        node: _File | _Folder | None = self._root
        for part in path.split("/") if path else ():
            node = node.entries.get(part) if isinstance(node, _Folder) else None
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise _missing(path)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if not isinstance(node, _Folder):
            raise _missing(path)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _made(self, path: str) -> _File:
        with self._guard:
            parent, name = self._parent(path)
            node = parent.entries.setdefault(name, _File())
            if not isinstance(node, _File):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            return node


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
