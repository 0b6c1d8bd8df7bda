"""Folders: read several files at once, including those of folders, within a limit on their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from app import errors, printable
from app.tools import bounds, confinement, failures
from app.tools.story import documents
from app.tools.workspace import Workspace

MAX_FILES = 400  # Files that one tool reads.
MAX_CHARACTERS = 4 * 1024 * 1024  # Their largest total number of characters.

_TEXT_SUFFIXES = frozenset({".md", ".markdown", ".txt", ".text"})
_SKIPPED = frozenset({"not_text", "file_too_large", "file_unreadable"})
_NAMED = 3


def read_all(workspace: Workspace, paths: Sequence[str], left_out: list[str]) -> list[documents.Document]:
    """Read the named files, and the text files below the named folders, each file once.

    A file that was named must be readable; one that is only found in a named folder is left out if it is not text.

    Args:
        left_out: Receives the paths of the files and folders that could not be read.

    Raises:
        errors.ToolFailed: `too_much_text`, or why a named file cannot be read.
    """
    found: list[documents.Document] = []
    characters = 0
    for path, named in _expanded(workspace, paths, left_out).items():
        try:
            text = workspace.read_text(path)
        except errors.ToolFailed as failure:
            if not named and failure.code in _SKIPPED:
                left_out.append(path)
            elif named or failure.code != "file_not_found":
                raise
            continue
        characters += len(text)
        if characters > MAX_CHARACTERS or len(found) >= MAX_FILES:
            raise failures.too_much_text(MAX_FILES, MAX_CHARACTERS)
        found.append(documents.parse(text, path=path))
    return found


def is_text(path: str) -> bool:
    """Return whether a file can be a scene, an outline or a card, by the ending of its name."""
    return PurePosixPath(path).suffix.lower() in _TEXT_SUFFIXES


def remark(left_out: Sequence[str]) -> str:
    """Return `; 2 not read: a.md, b.md` for a summary; empty if everything was read."""
    names = [path.rpartition("/")[2] for path in dict.fromkeys(left_out)]
    return f"; {len(names)} not read: {printable.listed(names, _NAMED)}" if names else ""


def warning(left_out: Sequence[str]) -> list[str]:
    """Return the line of a report that names what was not read; none if everything was read."""
    named = ", ".join(dict.fromkeys(left_out))
    return [bounds.clipped(f"Not read (not UTF-8 text, too large, or not permitted): {named}", 400)] if named else []


def _expanded(workspace: Workspace, paths: Iterable[str], left_out: list[str]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for path in paths:
        plain_path = "/".join(confinement.components(path))
        if workspace.kind(plain_path) == "folder":
            scan = workspace.scan(plain_path, is_text)
            if scan.truncated:
                # An incomplete list would look like a complete one.
                raise failures.too_many_entries(path, MAX_FILES, workspace.limits.scan_entries)
            left_out += scan.closed
            for file in scan.files:
                found.setdefault(file.path, False)
        else:
            found[plain_path] = True
    return found
