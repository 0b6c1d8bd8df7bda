"""Confinement: walk relative paths below one folder without ever leaving it.

Each component is opened relative to the descriptor of the folder before it, and the system follows no link. A link is
read and its target is walked by the same rules, so links inside the workspace work and links out of it are refused.
There is no moment between a check and a use in which a swapped folder or link could lead elsewhere: the checked file
is the open one. (Resolving a path and opening the result would have such a moment; verifying through /proc works
on Linux only.) The root itself is opened from the root of the disk down, and reserved folders are refused (`reserved`).
Hard links cannot be distinguished from files and are read as such.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from app.domain import workspace_paths
from app.tools import failures
from app.tools.reserved import Root

MAX_LINKS = 16  # Most links followed on the way to one file; more are treated as a cycle.

T = TypeVar("T")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def components(path: str) -> tuple[str, ...]:
    """Split a relative path, refusing every form that could name a place outside.

    Raises:
        errors.ToolFailed: `path_outside_workspace`, with the reason.
    """
    if (why := workspace_paths.why_outside(path)) is not None:
        raise failures.outside(path, why)
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise failures.outside(path, "it cannot be a file name") from None
    return workspace_paths.parts_of(path)


class Descent:
    """The open folders on the way from the root to one path; leaving the context closes them."""

    def __init__(self, root: Root | Path, path: str) -> None:
        self._root = root if isinstance(root, Root) else Root.of(root)
        self._path = path
        self._links = 0
        self._folders: list[int] = []
        self._names: list[str] = []
        self._known = self._root.reserved.identities()
        parts = workspace_paths.parts_of(path)
        self._granted = self._root.granted if self._root.allows(parts) else ()
        self._refuse_reserved(parts[len(self._granted) :])
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        self._hold(self._root.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @property
    def folder(self) -> int:
        """Descriptor of the deepest folder entered."""
        return self._folders[-1]

    def enter(self, parts: Iterable[str], *, create: bool = False) -> None:
        """Enter a folder; with `create`, missing folders are made and synced."""
        self._follow(parts, lambda name: self._go_down(name, create), create=create)

    def open_file(self, parts: Iterable[str]) -> int:
        """Return a descriptor of a regular file, opened for reading; it is closed with the context."""
        found = self._follow(parts, self._opened_file)
        if found is None:
            raise failures.not_a_file(self._path)
        return found

    def reach(self, parts: Iterable[str]) -> str:
        """Enter the folder of a file, making folders and following links; return the file's name there.

        Raises:
            errors.ToolFailed: `not_a_file` if the path ends at a folder, through a link, `.` or `..`.
        """
        name = self._follow(parts, lambda name: name, create=True)
        if name is None:
            raise failures.not_a_file(self._path)
        return name

    def status(self, parts: Iterable[str]) -> os.stat_result:
        """Return the status of the target of a path: a file, a folder, or another kind."""
        found = self._follow(parts, self._status)
        return os.fstat(self.folder) if found is None else found

    def _follow(self, parts: Iterable[str], finish: Callable[[str], T], *, create: bool = False) -> T | None:
        """Enter the folders up to the last component and finish there; None if a link or `..` leads to a folder."""
        pending = deque(parts)
        try:
            while pending:
                name = self._next_real(pending)
                if name is not None and not pending:
                    return finish(name)
                if name is not None:
                    self._go_down(name, create)
        except OSError as error:
            raise failures.of_system(self._path, error, "write_failed" if create else "file_unreadable") from error
        return None

    def _status(self, name: str) -> os.stat_result:
        found = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        self._refuse_known(name, found)
        return found

    def sync(self) -> None:
        """Make the names of the entered folders durable, and the names in the last one."""
        for folder in reversed(self._folders):
            os.fsync(folder)

    def hides(self, name: str, folder: int | None = None, *, is_folder: bool = True) -> bool:
        """Return whether an entry of the deepest folder is reserved, and so hidden."""
        if workspace_paths.reserved_name((name,)) is not None:
            return True
        try:
            if not is_folder or not self._known:
                return False
            found = os.stat(name, dir_fd=folder or self.folder, follow_symlinks=False)
        except OSError:
            return False  # gone since it was listed
        return (found.st_dev, found.st_ino) in self._known

    def refuse_to_move(self, name: str) -> None:
        """Refuse to move an entry of the deepest folder that is a data directory, or contains one.

        Raises:
            errors.ToolFailed: `path_outside_workspace`.
        """
        self._refuse_reserved((name,))
        try:
            folder = os.open(name, _FOLDER, dir_fd=self.folder)
        except OSError:
            return  # not a folder, or one that cannot be opened and so cannot be moved
        try:
            if self._root.reserved.lies_below(folder):
                raise failures.outside(self._path, f"{name} holds the service's data")
        finally:
            os.close(folder)

    def _next_real(self, pending: deque[str]) -> str | None:
        """Take the next component; for a link, queue the target's components and return None."""
        name = pending.popleft()
        if name in {"", "."}:
            return None
        if name == "..":
            self._go_up()
            return None
        if not self._is_granted(name):
            self._refuse_reserved((name,))
        target = self._link_target(name)
        if target is None:
            return name
        self._links += 1
        if self._links > MAX_LINKS or len(pending) > workspace_paths.MAX_COMPONENTS:
            raise failures.outside(self._path, "its links lead in a circle")
        pending.extendleft(reversed(self._from_here(target).split("/")))
        return None

    def _go_up(self) -> None:
        if len(self._folders) == 1:
            raise failures.outside(self._path, "a link leads out of it")
        self._folders.pop()
        self._names.pop()
        if self._names and self._is_granted():
            raise failures.outside(self._path, "a link leads out of it")

    def _link_target(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.folder)
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.ENOENT}:
                return None  # not a link, or no entry of this name
            raise

    def _from_here(self, target: str) -> str:
        if not target.startswith("/"):
            return target
        for root in (str(self._root.given or self._root.path), str(self._root.path)):
            if target == root or target.startswith(root.rstrip("/") + "/"):
                # An absolute link into the workspace begins again at the open root, by the same rules as any
                # path.
                del self._folders[1:], self._names[:]
                return target[len(root.rstrip("/")) :].lstrip("/")
        raise failures.outside(self._path, "a link leads out of it")

    def _go_down(self, name: str, create: bool = False) -> None:
        self._hold(self._opened_folder(name, create))
        if not self._is_granted(name):
            self._refuse_known(name, os.fstat(self.folder))
        self._names.append(name)

    def _is_granted(self, *names: str) -> bool:
        parts = (*self._names, *names)
        return parts == self._granted[: len(parts)]

    def _refuse_known(self, name: str, found: os.stat_result) -> None:
        if (found.st_dev, found.st_ino) in self._known:
            raise failures.outside(self._path, f"{name} does not belong to it")

    def _refuse_reserved(self, parts: Iterable[str]) -> None:
        if (why := workspace_paths.why_reserved(parts)) is not None:
            raise failures.outside(self._path, why)

    def _opened_folder(self, name: str, create: bool) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=self.folder)
        except FileNotFoundError:
            if not create:
                raise
        try:
            os.mkdir(name, dir_fd=self.folder)
            # A file that is acknowledged later must not disappear with its new folder in a power cut.
            os.fsync(self.folder)
        except FileExistsError:
            pass  # another writer made it first
        return os.open(name, _FOLDER, dir_fd=self.folder)

    def _opened_file(self, name: str) -> int:
        # A socket, or a device without a driver, cannot even be opened.
        if not stat.S_ISREG(os.stat(name, dir_fd=self.folder, follow_symlinks=False).st_mode):
            raise failures.not_a_file(self._path)
        descriptor = os.open(name, _FILE, dir_fd=self.folder)
        self._closing.callback(os.close, descriptor)
        # Check again on the open file: another file may have got the name since.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise failures.not_a_file(self._path)
        return descriptor

    def _hold(self, folder: int) -> None:
        self._closing.callback(os.close, folder)
        self._folders.append(folder)
