"""The workspace: the only way in which a tool reads and writes files."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app import errors
from app.domain import runs
from app.tools import commits, failures, scanning
from app.tools.confinement import Descent, components
from app.tools.reserved import Reserved, Root
from app.tools.scanning import Limits, Scan

_SNIFFED_BYTES = 8 * 1024
_ABSENT = frozenset({"file_not_found", "not_a_file", "file_unreadable"})

Kind = Literal["file", "folder"]  # What a path can lead to.

_REACHES: tuple[tuple[Kind, Callable[[Descent, tuple[str, ...]], object]], ...] = (
    ("file", Descent.open_file),
    ("folder", Descent.enter),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that a commit has written."""

    path: str  # Path relative to the root.
    sha256: str  # Bare hash of its bytes.
    size_bytes: int  # Number of its bytes.


class Workspace:
    """A folder that tools read text files from and commits write to; no path leads out of it."""

    def __init__(self, root: Root | Path, limits: Limits | None = None) -> None:
        self.place = root if isinstance(root, Root) else Root.of(root)
        self.limits = limits or Limits()

    @property
    def root(self) -> Path:
        """Return the absolute path of its folder."""
        return self.place.path

    def read_text(self, path: str) -> str:
        """Return the text of a file without a byte order mark, with its line ends unchanged.

        Raises:
            errors.ToolFailed: `path_outside_workspace`, `file_not_found`, `not_a_file`, `file_too_large`, `not_text`
                or `file_unreadable`.
        """
        content = self._read(path)
        if b"\0" in content[:_SNIFFED_BYTES]:
            raise failures.not_text(path, "it holds NUL bytes")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise failures.not_text(path, f"byte {error.start} is not UTF-8") from None

    def kind(self, path: str) -> Kind | None:
        """Return whether a path leads to a file or a folder, following links inside the workspace; None if to neither.

        Raises:
            errors.ToolFailed: `path_outside_workspace`.
        """
        parts = components(path)
        for kind, reach in _REACHES:
            with Descent(self.place, path) as descent:
                try:
                    reach(descent, parts)
                except errors.ToolFailed as failure:
                    if failure.code not in _ABSENT:
                        raise
                else:
                    return kind
        return None

    def exists(self, path: str) -> bool:
        """Return whether a path names a regular file.

        Raises:
            errors.ToolFailed: `path_outside_workspace`.
        """
        return self.kind(path) == "file"

    def existing_sha256(self, path: str) -> str | None:
        """Return the bare hash of a file of any size and content, or None if the file does not exist.

        By this hash, a commit that runs again after a crash detects that its text is already on disk: a crash between
        the file's rename and the journal's line leaves the file complete and the step without a record.

        Raises:
            errors.ToolFailed: `path_outside_workspace` or `file_unreadable`.
        """
        if not self.exists(path):
            return None
        with Descent(self.place, path) as descent:
            descriptor = descent.open_file(components(path))
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise failures.of_system(path, error) from error

    def scan(self, folder: str = "", wants: Callable[[str], bool] = lambda _: True) -> Scan:
        """List the regular files below a folder, each folder's own files first, all in the order of their names.

        Hidden files and folders, links, and names that are not UTF-8 are left out.

        Args:
            wants: Returns, for the name of a file, whether it is listed.

        Raises:
            errors.ToolFailed: `path_outside_workspace` or `file_not_found`.
        """
        parts = components(folder)
        with Descent(self.place, folder) as descent:
            descent.enter(parts)
            try:
                return scanning.scan(descent.folder, "/".join(parts), self.limits, descent.hides, wants)
            except OSError as error:
                raise failures.of_system(folder or ".", error) from error

    def write_text(self, path: str, text: str, *, overwrite: bool = False) -> WrittenFile:
        """Write a file atomically and durably; missing folders are made.

        A link at the path itself is replaced, never followed.

        Raises:
            errors.ToolFailed: `path_outside_workspace`, `file_exists` (unless `overwrite`), `not_a_file`, `not_text` or
                `write_failed`; the file is then unchanged.
        """
        *folders, name = components(path) or ("",)
        if not name:
            raise failures.not_a_file(path)
        try:
            content = text.encode()
        except UnicodeEncodeError:
            raise failures.not_text(path, "the text holds half a surrogate pair") from None
        with Descent(self.place, path) as descent:
            descent.enter(folders, create=True)
            try:
                commits.put(descent.folder, name, content, overwrite=overwrite)
            except FileExistsError:
                raise failures.already_exists(path) from None
            except IsADirectoryError:
                raise failures.not_a_file(path) from None
            except OSError as error:
                raise failures.of_system(path, error, "write_failed") from error
        written = "/".join((*folders, name))
        return WrittenFile(path=written, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))

    def _read(self, path: str) -> bytes:
        limit = self.limits.file_bytes
        with Descent(self.place, path) as descent:
            descriptor = descent.open_file(components(path))
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes > limit:
                raise failures.too_large(path, size_bytes, limit)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    # One byte more than allowed: the file may have grown since its size was read.
                    content = file.read(limit + 1)
            except OSError as error:
                raise failures.of_system(path, error) from error
        if len(content) > limit:
            raise failures.too_large(path, len(content), limit)
        return content


_NOTHING = Reserved()


class Workspaces:
    """The roots below which a run's working folder must be; a foreign run's folder makes no other folder accessible."""

    def __init__(self, roots: Sequence[Path], reserved: Reserved = _NOTHING) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        self._reserved = reserved

    def of(self, run: runs.RunStart) -> Workspace:
        """Return the workspace of a run.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`.
        """
        folder = Path(run.working_dir).absolute()
        base = self._base(folder)
        if base is None:
            raise failures.not_allowed(run.working_dir)
        if not _is_itself(str(folder)):
            raise failures.linked(run.working_dir)
        return Workspace(Root(path=folder, base=base, reserved=self._reserved, granted=_granted(folder, run)))

    def check(self, run: runs.RunStart) -> None:
        """Raise if no run may work in a run's folder.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`, `workspace_missing`.
        """
        self.of(run).place.check()

    def fault(self, run: runs.RunStart, looks: bool) -> errors.Fault | None:
        """Return the fault that parks a run whose folder is no longer allowed or has gone; None if it is usable.

        Steps wait for a folder that the system refuses only temporarily.

        Args:
            looks: Whether to examine the disk, too; otherwise only the settings decide.
        """
        # Plans work in no folder, and are recorded without one: their folder is relative.
        if not os.path.isabs(run.working_dir):
            return None
        try:
            if looks:
                self.check(run)
            elif self._base(Path(run.working_dir)) is None:
                raise failures.not_allowed(run.working_dir)
        except errors.ToolFailed as failure:
            return errors.Fault(failures.moved(run.working_dir, failure), code=failure.code, detail=failure.detail)
        except errors.WorkspaceFault:
            return None
        return None

    def _base(self, folder: Path) -> Path | None:
        return next((root for root in self._roots if _is_below(str(folder), str(root))), None)


def _granted(folder: Path, run: runs.RunStart) -> tuple[str, ...]:
    if not run.folder:
        return ()
    own = Path(run.folder, runs.ARTIFACTS).absolute()
    return own.relative_to(folder).parts if _is_below(str(own), str(folder)) else ()


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root if root.endswith("/") else f"{root}/")


def _is_itself(folder: str) -> bool:
    """Return whether a path has no link in it. A run begins with a resolved folder: a link in it was made later."""
    try:
        if os.path.realpath(folder) != folder:
            return False
        os.stat(folder)
    except ValueError:
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    return True
