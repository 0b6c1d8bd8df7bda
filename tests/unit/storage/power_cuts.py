"""Power cuts: what a disk in memory may contain after one, which may have taken any part of the unsynced data.

And disks that fail, and then behave like kernels: unwritten data is forgotten, and the next sync succeeds.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from app.storage.disk.disk_port import AppendFile
from app.storage.disk.memory_disk import MemoryDisk, _File, _Folder

_Node: TypeAlias = _File | _Folder


def cut(disk: MemoryDisk, chance: random.Random) -> MemoryDisk:
    """Return the disk as a restart may find it.

    Synced data is kept. Of the rest of a file any beginning is kept, sometimes with zeros in place of its end. Names
    that came or went since the last sync of their folder may have done so or not.
    """
    if isinstance(disk, ForgetfulDisk):
        disk.forget()
    return MemoryDisk(_folder(disk._root, chance), disk._power_cuts + 1)


def _folder(folder: _Folder, chance: random.Random) -> _Folder:
    kept: dict[str, _Node] = {}
    for name in sorted({*folder.entries, *folder.synced}):
        now, then = folder.entries.get(name), folder.synced.get(name)
        node = now if now is then or chance.random() < 0.5 else then
        if node is not None:
            kept[name] = node
    # A rename is made or not, but no file is lost by one.
    renamed = set(folder.entries.values()) & set(folder.synced.values()) - set(kept.values())
    kept |= {name: node for name, node in folder.entries.items() if node in renamed}
    left = {
        name: _folder(node, chance) if isinstance(node, _Folder) else _file(node, chance) for name, node in kept.items()
    }
    return _Folder(left, dict(left))


def _file(file: _File, chance: random.Random) -> _File:
    size = chance.choice((file.synced, chance.randint(file.synced, len(file.content)), len(file.content)))
    content = file.content[:size]
    if chance.random() < 0.2:
        content = content.ljust(len(file.content), b"\0")
    return _File(content, len(content))


def _files(folder: _Folder) -> Iterator[_File]:
    for node in folder.entries.values():
        if isinstance(node, _File):
            yield node
        else:
            yield from _files(node)


class ForgetfulDisk(MemoryDisk):
    """A disk that refuses some of its writes and syncs.

    Data that a refused sync left unwritten is read back from memory. Once it is read from the disk itself or the power
    is lost, the disk returns zeros. No later sync makes the data durable.
    """

    def __init__(self, chance: random.Random, often: float) -> None:
        super().__init__()
        self._chance = chance
        self.often = often
        self._holes: dict[_File, list[tuple[int, int]]] = {}
        self.failures: Counter[_File] = Counter()
        self.unseen: set[_File] = set()
        self._failed = False

    def refuse(self, path: str) -> None:
        """Fail by chance."""
        if self._chance.random() < self.often:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def sync_node(self, node: _File, path: str) -> None:
        """Make a file durable, or forget its unsynced part."""
        try:
            self.refuse(path)
        except OSError:
            self._forget_unsynced(node)
            self._failed = True
            raise
        node.synced = len(node.content)

    def forget(self, *nodes: _File) -> None:
        """Drop the unwritten data of these files, or of all files."""
        for node in nodes or list(self._holes):
            for begin, end in self._holes.pop(node, ()):
                if end <= len(node.content):
                    node.content[begin:end] = bytes(end - begin)

    def append_to(self, path: str) -> AppendFile:
        return _ForgetfulFile(self, path, super().append_to(path), self._made(path))

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        self.forget(self._file(path))
        return super().read_synced(path, offset)

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        self.refuse(path)
        super().write(path, content, sync=sync)
        self._holes.pop(self._file(path), None)

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        self.refuse(path)
        super().cut(path, size, sync=False)
        if sync:
            self.sync_node(self._file(path), path)

    def sync_paths(self, paths: Iterable[str]) -> None:
        given = list(paths)
        try:
            # A sync of the whole disk reports every failure since the last one.
            failed, self._failed = self._failed, False
            if failed:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.refuse("")
        except OSError:
            for node in _files(self._root):
                self._forget_unsynced(node)
            raise
        super().sync_paths(given)

    def _forget_unsynced(self, node: _File) -> None:
        if node.synced < len(node.content) and self._chance.random() < 0.7:
            self._holes.setdefault(node, []).append((node.synced, len(node.content)))
            self.failures[node] += 1
            self.unseen.add(node)
        node.synced = len(node.content)


class _ForgetfulFile:
    def __init__(self, disk: ForgetfulDisk, path: str, file: AppendFile, node: _File) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._node = node
        # An open file also gets a failure from before its opening that no other open file has got.
        self._seen = disk.failures[node] - (node in disk.unseen)

    def write(self, content: bytes) -> None:
        self._disk.refuse(self._path)
        self._file.write(content)

    def sync(self) -> None:
        # Each open file gets a failure once, whichever process synced it.
        failed = self._disk.failures[self._node] > self._seen
        self._seen = self._disk.failures[self._node]
        self._disk.unseen.discard(self._node)
        if failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        self._disk.sync_node(self._node, self._path)

    def close(self) -> None:
        self._file.close()
