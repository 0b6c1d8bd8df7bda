"""The disk of the machine."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from app.storage.disk.disk_port import LARGEST_BYTES, AppendFile, Lock, Signature, Syncer, SyncRefused

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_CHUNK_BYTES = 1024 * 1024
# A pipe in place of a file must not block a thread forever.
_NEITHER_LINK_NOR_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NEITHER_LINK_NOR_WAIT
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NEITHER_LINK_NOR_WAIT
_DISPLACED = "the data directory was moved, removed or replaced; put it back, or restart Control Room"
_NO_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_SYNC = getattr(os, "fdatasync", os.fsync)
_SYNC_FILE_SYSTEM = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


class OsAppendFile:
    """`AppendFile` over a file descriptor, which is opened at the first write or sync."""

    def __init__(self, path: str, at: int | None = None, confirm: Callable[[], None] | None = None) -> None:
        self._path = path
        self._at = at
        self._confirm = confirm
        self._descriptor = -1
        self._closed = False

    def write(self, content: bytes) -> None:
        written = os.write(self._descriptor if self._descriptor >= 0 else self._open(), content)
        if written != len(content):
            raise OSError(errno.ENOSPC, f"short write: {written} of {len(content)} bytes")

    def sync(self) -> None:
        _SYNC(self._descriptor if self._descriptor >= 0 else self._open())
        if self._confirm is not None:
            self._confirm()

    def close(self) -> None:
        descriptor, self._descriptor, self._closed = self._descriptor, -1, True
        if descriptor >= 0:
            # All content that matters was synced before, so a failing close changes nothing.
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _open(self) -> int:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._descriptor = os.open(self._path, _APPEND, _FILE_MODE, dir_fd=self._at)
        return self._descriptor


class OsLock:
    """`Lock` as a flock on the folder, which ends with its process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsSyncer:
    """`Syncer` over a folder of the machine."""

    def __init__(self, root: str, folders: Iterable[str], at: int | None = None) -> None:
        self._root = root
        self._at = at
        # The kernel reports a failed write once to each open descriptor, so these stay open while files are written.
        self._descriptors: dict[int, int] = {}
        for folder in ("", *folders):
            self._open(root + folder)

    def sync(self, paths: Callable[[], Iterable[str]]) -> None:
        """Make files and folders durable."""
        if _SYNC_FILE_SYSTEM is not None:
            for descriptor in self._descriptors.values():
                if _SYNC_FILE_SYSTEM(descriptor) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), self._root)
            return
        for path in paths():
            place = self._root + path
            with contextlib.suppress(FileNotFoundError), _opened(place, os.O_RDONLY, self._at) as descriptor:
                os.fsync(descriptor)

    def close(self) -> None:
        """Close the folders."""
        descriptors, self._descriptors = self._descriptors, {}
        for descriptor in descriptors.values():
            os.close(descriptor)

    def _open(self, place: str) -> None:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._at)
        # One descriptor for each file system; usually there is only one.
        if self._descriptors.setdefault(os.fstat(descriptor).st_dev, descriptor) != descriptor:
            os.close(descriptor)


class OsDisk:
    """`Disk` over a folder of the machine: whatever has the folder's path, or, if it is held, always the same folder.

    What happens to the path of a held folder does not change where its files are. Nothing becomes durable in it while
    its path leads elsewhere: another process, which finds another folder there, may do the same work.
    """

    def __init__(self, root: Path) -> None:
        self._folder = str(root)
        self._root = f"{root}/"
        self._at: int | None = None

    def hold(self) -> None:
        """Hold the folder until `close`."""
        self._at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._closing = weakref.finalize(self, os.close, self._at)
        self._root = "./"

    def confirm(self) -> None:
        """Refuse a held folder that its path does not lead to.

        Raises:
            OSError: ESTALE.
        """
        if self._at is None:
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.stat(self._folder), os.fstat(self._at)):
                return
        raise OSError(errno.ESTALE, _DISPLACED)

    def close(self) -> None:
        """Let the folder go; a held disk works no more."""
        if self._at is not None:
            self._at = -1
            self._closing()

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        descriptor = os.open(self._root + path, os.O_RDONLY | _NEITHER_LINK_NOR_WAIT, dir_fd=self._at)
        try:
            return _content(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        """Sync a file, drop the kernel's cached copy, and read it from the disk from an offset."""
        with _opened(self._root + path, os.O_RDONLY, self._at) as descriptor:
            _sync_regular(descriptor, path)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return _content(descriptor, offset, -1)

    def size(self, path: str) -> int:
        return os.stat(self._root + path, dir_fd=self._at, follow_symlinks=False).st_size

    def signature(self, path: str) -> Signature:
        """Return inode, size and time of the last change."""
        found = os.stat(self._root + path, dir_fd=self._at, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found.st_ino, found.st_size, found.st_mtime_ns

    def changed_at(self, path: str) -> int:
        """Return the time of the last change of a file or folder, including changes of its owner and mode."""
        return os.stat(self._root + path, dir_fd=self._at, follow_symlinks=False).st_ctime_ns

    def names(self, folder: str) -> list[str]:
        try:
            if self._at is None:
                return sorted(os.listdir(self._root + folder))
            with _opened(self._root + folder, os.O_RDONLY | os.O_DIRECTORY, self._at) as descriptor:
                return sorted(os.listdir(descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def has_file(self, path: str) -> bool:
        return stat.S_ISREG(_mode(self._root + path, self._at))

    def has_folder(self, path: str) -> bool:
        return stat.S_ISDIR(_mode(self._root + path, self._at))

    def add_folder(self, path: str) -> bool:
        try:
            os.mkdir(self._root + path, _FOLDER_MODE, dir_fd=self._at)
        except FileExistsError:
            return False
        return True

    def append_to(self, path: str) -> AppendFile:
        return OsAppendFile(self._root + path, self._at, None if self._at is None else self.confirm)

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        """Create or overwrite a file; remove it if the write fails."""
        place = self._root + path
        descriptor = os.open(place, _WRITE_ANEW, _FILE_MODE, dir_fd=self._at)
        try:
            # A write may be short, as after a signal or on a full disk.
            written = os.write(descriptor, content) if content else 0
            while written < len(content):
                written += os.write(descriptor, memoryview(content)[written:])
            if sync:
                os.fsync(descriptor)
                self.confirm()
        except OSError:
            # A reader must not take a partial file for a whole one.
            with contextlib.suppress(OSError):
                os.unlink(place, dir_fd=self._at)
            raise
        finally:
            os.close(descriptor)

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        with _opened(self._root + path, os.O_WRONLY, self._at) as descriptor:
            os.ftruncate(descriptor, size)
            if sync:
                os.fsync(descriptor)

    def rename(self, old: str, new: str) -> None:
        self.confirm()
        os.rename(self._root + old, self._root + new, src_dir_fd=self._at, dst_dir_fd=self._at)

    def sync_folder(self, path: str) -> None:
        with _opened(self._root + path, os.O_RDONLY | os.O_DIRECTORY, self._at) as descriptor:
            os.fsync(descriptor)

    def syncer(self, folders: Iterable[str]) -> Syncer:
        """Return a syncer of whole file systems where the machine has `syncfs`, otherwise of single files."""
        return OsSyncer(self._root, folders, self._at)

    def boot_id(self) -> str:
        """Return the kernel's id of the present boot; empty if the kernel has none."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def remove(self, path: str) -> None:
        os.unlink(self._root + path, dir_fd=self._at)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(self._root + path, dir_fd=self._at)

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        """Lock a folder with flock."""
        return lock(self._root + folder, wait=wait, at=self._at)


def sync(place: str | Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(folder: str, *, wait: bool = False, at: int | None = None) -> OsLock | None:
    """Lock a folder with flock on the folder itself; return None if another process has locked it.

    Args:
        at: Descriptor of the folder to which a relative path belongs.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    return _locked(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def lock_file(path: str, *, shared: bool) -> OsLock | None:
    """Lock a file with flock, shared or exclusive; return None if another process has a conflicting lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return _locked(descriptor, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))


def _locked(descriptor: int, how: int) -> OsLock | None:
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        if error.errno not in _NO_LOCKS:
            raise
        reason = f"its file system, perhaps NFS, cannot lock folders ({os.strerror(error.errno)}); use a local disk"
        raise OSError(error.errno, reason) from error
    return OsLock(descriptor)


@contextlib.contextmanager
def _opened(place: str, flags: int, at: int | None) -> Iterator[int]:
    descriptor = os.open(place, flags | _NEITHER_LINK_NOR_WAIT, _FILE_MODE, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_regular(descriptor: int, path: str) -> None:
    # A pipe in place of the file can never be synced, so waiting for the disk to recover would not end.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE), path)
    try:
        _SYNC(descriptor)
    except OSError as error:
        raise SyncRefused(error.errno, error.strerror, path) from error


def _content(descriptor: int, offset: int, size: int) -> bytes:
    # A file of an impossible size would only fill the memory.
    if size < 0 and os.fstat(descriptor).st_size - offset > LARGEST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    parts, left = [], size
    while left != 0:
        part = os.pread(descriptor, _CHUNK_BYTES if left < 0 else min(left, _CHUNK_BYTES), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        left -= len(part) if left > 0 else 0
    return b"".join(parts)


def _mode(place: str, at: int | None) -> int:
    try:
        return os.stat(place, dir_fd=at, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
