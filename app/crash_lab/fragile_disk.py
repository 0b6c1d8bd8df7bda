"""A disk in memory that loses power, fakes a sync, or refuses a write or reads, at a chosen operation."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from app.storage import layout
from app.storage.disk import disk_port, memory_disk


class Trouble(Enum):
    """What happens to a disk."""

    POWER_LOSS = "power_loss"  # All unsynced data are lost, including names in folders.
    LIE = "lie"
    """A sync succeeds without effect; the power is lost before the next sync of the same file or folder."""
    EIO = "EIO"  # An operation fails.
    ENOSPC = "ENOSPC"  # The disk is too full for an operation.
    READ_EIO = "read EIO"  # A file cannot be read until the fault is lifted.
    READ_EMFILE = "read EMFILE"  # No file can be read until the fault is lifted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One change or sync of a disk."""

    name: str  # The kind of operation.
    path: str  # File or folder of the operation.
    nth: int  # Its number among operations of its kind, from 1.

    def __str__(self) -> str:
        return f"{self.name} {self.path or '.'} {self.nth}"

    @property
    def is_sync(self) -> bool:
        """Return whether the operation makes data durable."""
        return self.name.startswith("sync")

    @property
    def kind(self) -> str:
        """Return the common part of similar operations: name and file name."""
        return f"{self.name} {self.path.rpartition('/')[2]}"


END = Operation(name="end", path="", nth=1)  # The moment after the last operation.


class FragileDisk(memory_disk.MemoryDisk):
    """Record the operations, and cause trouble at one of them.

    Args:
        out: Called when the power is lost, or when reads begin to be refused.
        left: Earlier content of the disk; None: it is empty.
    """

    def __init__(
        self,
        trouble: Trouble | None = None,
        at: Operation = END,
        out: Callable[[], None] = lambda: None,
        left: memory_disk.MemoryDisk | None = None,
    ) -> None:
        super().__init__(*((left._root, left._power_cuts) if left else ()))
        self._trouble = trouble
        self._at = at
        self._tell_out = out
        self._watched: object = None
        self._counts: Counter[tuple[str, str]] = Counter()
        self.story: list[Operation] = []
        """Operations so far."""
        self.promised: dict[str, bytes] = {}
        """Content of each step journal, as far as a sync of it succeeded or seemed to."""
        self.looks: list[Operation] = []
        """Reads so far."""
        self.refuses = False
        """Whether reads are refused now."""
        self.left: memory_disk.MemoryDisk | None = None
        """Content after a loss of power, for a restart."""

    def lose_power(self) -> None:
        """Lose unsynced writes; later operations on this disk have no effect."""
        if self.left is None:
            self.left = self.crashed(lose_unsynced=True)
            self._tell_out()

    def lift(self) -> None:
        """Allow all reads from now on."""
        self.refuses = False
        self._trouble = None

    # -- reads

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Return a file's content."""
        self._looks("read", path)
        return super().read(path, offset, size)

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        """Sync a file and return its content."""
        self._looks("read", path)
        return super().read_synced(path, offset)

    def size(self, path: str) -> int:
        self._looks("stat", path)
        return super().size(path)

    def signature(self, path: str) -> disk_port.Signature:
        """Return the signature of a file."""
        self._looks("stat", path)
        return super().signature(path)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        self._looks("list", folder)
        return super().names(folder)

    def has_file(self, path: str) -> bool:
        """Return whether a file exists."""
        self._looks("stat", path)
        return super().has_file(path)

    def has_folder(self, path: str) -> bool:
        self._looks("stat", path)
        return super().has_folder(path)

    def lock(self, folder: str, *, wait: bool = False) -> disk_port.Lock | None:
        """Lock a folder."""
        self._looks("open", folder)
        return super().lock(folder, wait=wait)

    # -- operations

    def add_folder(self, path: str) -> bool:
        """Make a folder."""
        if not super().has_folder(path):
            self._meets("add_folder", path)
        return super().add_folder(path)

    def append_to(self, path: str) -> disk_port.AppendFile:
        """Open a file for appending."""
        return _FragileFile(self, path, super().append_to(path))

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        self._meets("write", path)
        super().write(path, content, sync=False)
        if sync and not self._lies("sync", path):
            super().write(path, content, sync=True)

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        self._meets("cut", path)
        super().cut(path, size, sync=sync and not self._lies("sync", path))

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder."""
        self._meets("rename", old)
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        if not self._lies("sync_folder", path):
            super().sync_folder(path)

    def sync_paths(self, paths: Iterable[str]) -> None:
        """Make files and folders durable."""
        if not self._lies("sync_all", ""):
            super().sync_paths(paths)

    def remove(self, path: str) -> None:
        self._meets("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder."""
        self._meets("remove_tree", path)
        super().remove_tree(path)

    # -- trouble

    def _meets(self, name: str, path: str) -> bool:
        self._counts[name, path] += 1
        operation = Operation(name=name, path=path, nth=self._counts[name, path])
        self.story.append(operation)
        if operation != self._at:
            return False
        match self._trouble:
            case Trouble.POWER_LOSS:
                self.lose_power()
            case Trouble.EIO | Trouble.ENOSPC:
                code = getattr(errno, self._trouble.value)
                raise OSError(code, os.strerror(code), path)
        return True

    def _looks(self, name: str, path: str) -> None:
        self._counts[name, path] += 1
        operation = Operation(name=name, path=path, nth=self._counts[name, path])
        self.looks.append(operation)
        if self._trouble not in (Trouble.READ_EIO, Trouble.READ_EMFILE):
            return
        if operation == self._at:
            self.refuses = True
            self._tell_out()
        if self.refuses and (self._trouble is Trouble.READ_EMFILE or path == self._at.path):
            code = getattr(errno, self._trouble.value.removeprefix("read "))
            raise OSError(code, os.strerror(code), path)

    def _promise(self, path: str) -> None:
        if self.left is None and path.endswith(f"/{layout.STEPS}"):
            self.promised[path] = super().read(path)

    def _lies(self, name: str, path: str) -> bool:
        node = self._find(path)
        if node is not None and node is self._watched:
            self.lose_power()
        met = self._meets(name, path)
        if not met or self._trouble is not Trouble.LIE:
            return False
        self._watched = node
        return True


class _FragileFile:
    def __init__(self, owner: FragileDisk, path: str, file: disk_port.AppendFile) -> None:
        self._owner = owner
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        self._owner._meets("append", self._path)
        self._file.write(content)

    def sync(self) -> None:
        if not self._owner._lies("sync", self._path):
            self._file.sync()
        self._owner._promise(self._path)

    def close(self) -> None:
        self._file.close()
