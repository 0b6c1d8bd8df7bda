"""File operations: operations on the files of the workspace, for recipes that use folders as queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from app.domain.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class FindFiles(Operation):
    """Find the files and folders that match patterns; the output is `{"found": {pattern: [path, ...]}}`.

    A pattern is a POSIX glob from the workspace: `*`, `?` and `[...]` within a name, no `**`; a name that begins with
    a dot matches only a pattern with that dot. Paths are listed in the order of their bytes, each once. A path that
    leads out of the workspace through a link fails the step.
    """

    kind: ClassVar[str] = "find_files"

    patterns: tuple[str, ...]  # Patterns, relative to the workspace.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFiles(Operation):
    """Read files of the workspace as text; the output is `{"files": {path: {"text", "size_bytes", "folder"}}}`.

    `masked` is true where secrets in a text are masked. An excerpt also has `whole`, and `not_utf8` where invalid bytes
    are replaced.
    """

    kind: ClassVar[str] = "read_files"

    paths: tuple[str, ...] = ()
    """Files that are read completely; a file that is missing, too large or not UTF-8 fails the step."""
    excerpts: tuple[str, ...] = ()
    """Files and folders of which only the beginning is read; a folder, or a file that is gone, has the text None."""
    excerpt_bytes: int = 256 * 1024
    """Bytes of all excerpts together, in their order; invalid UTF-8 is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForFiles(Operation):
    """Wait until files exist; the output is `{"files", "wait_duration_ms", "poll_count", "timed_out"}`.

    When `timeout_seconds` have passed within one process, the attempt fails with the code `timeout`.
    """

    kind: ClassVar[str] = "wait_for_files"
    idle: ClassVar[bool] = True

    pattern: str  # Pattern as in `FindFiles`.
    min_count: int = 1  # Number of files that is enough.
    poll_ms: float = 500  # Time between two checks, in milliseconds.
    literal: str | None = None
    """Pattern that is checked before the other one; files that match it are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFile(Operation):
    """Move a file or folder into a folder of the workspace, created if missing; the output is `{"from", "to"}`.

    It never overwrites a file. A repetition after a crash finds its own move and does not fail.
    """

    kind: ClassVar[str] = "move_file"
    outside: ClassVar[bool] = True

    source: str  # Path from the workspace.
    folder: str  # Folder into which it is moved, under the same name.
