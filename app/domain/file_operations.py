"""Operations on the files of the workspace, for recipes that use folders as queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from app.domain.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class FindFiles(Operation):
    """Find the files and folders that patterns fit; the output is `{"found": {pattern: [path, ...]}}`.

    A pattern is a POSIX glob from the workspace: `*`, `?` and `[...]` within a name, no `**`; names that begin with a
    dot fit only a pattern that says the dot. Paths come in the order of their bytes, each once. A path that leads out
    of the workspace by a link fails the step.
    """

    kind: ClassVar[str] = "find_files"

    patterns: tuple[str, ...]  # Patterns, relative to the workspace.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFiles(Operation):
    """Read files of the workspace as text; the output is `{"files": {path: {"text", "size_bytes", "folder"}}}`."""

    kind: ClassVar[str] = "read_files"

    paths: tuple[str, ...] = ()
    """Files that are read whole; one that is missing, too large or no UTF-8 fails the step."""
    excerpts: tuple[str, ...] = ()
    """Files and folders whose beginning is enough; a folder, and one that is gone, has the text None."""
    excerpt_bytes: int = 256 * 1024
    """How much of the excerpts is read, all together, in their order; invalid UTF-8 is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForFiles(Operation):
    """Wait until files are there; the output is `{"files", "wait_duration_ms", "poll_count", "timed_out"}`.

    When `timeout_seconds` are over in the life of one process, the try fails with the code `timeout`.
    """

    kind: ClassVar[str] = "wait_for_files"
    idle: ClassVar[bool] = True

    pattern: str  # Pattern as in `FindFiles`.
    min_count: int = 1  # Files that are enough.
    poll_ms: float = 500  # Time between two looks, in milliseconds.
    literal: str | None = None
    """Pattern that is looked for before the other one; files that fit it are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFile(Operation):
    """Move a file or folder into a folder of the workspace, which is made; the output is `{"from", "to"}`.

    Nothing is overwritten. A repetition after a crash finds its own move and does not fail.
    """

    kind: ClassVar[str] = "move_file"
    outside: ClassVar[bool] = True

    source: str  # Path from the workspace.
    folder: str  # Folder it is moved to, under the same name.
