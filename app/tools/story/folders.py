"""Folders: read several files at once, including those of folders, within a limit on their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from app import errors
from app.tools import confinement, failures
from app.tools.story import documents
from app.tools.workspace import Workspace

MAX_FILES = 400  # Files that one tool reads.
MAX_CHARACTERS = 4 * 1024 * 1024  # Their largest total number of characters.

_TEXT_SUFFIXES = frozenset({".md", ".markdown", ".txt", ".text"})
_SKIPPED = frozenset({"not_text", "file_too_large", "file_unreadable", "file_not_found"})


def read_all(workspace: Workspace, paths: Sequence[str]) -> list[documents.Document]:
    """Read the named files, and the text files below the named folders, each file once.

    A file that was named must be readable; one that is only found in a named folder is left out if it is not text.
    """
    found: list[documents.Document] = []
    characters = 0
    for path, named in _expanded(workspace, paths).items():
        try:
            text = workspace.read_text(path)
        except errors.ToolFailed as failure:
            # A file that was named must be readable; one that is only found in a folder is skipped.
            if named or failure.code not in _SKIPPED:
                raise
            continue
        characters += len(text)
        if characters > MAX_CHARACTERS or len(found) >= MAX_FILES:
            raise failures.too_much_text(MAX_FILES, MAX_CHARACTERS)
        found.append(documents.parse(text, path=path))
    return found


def _expanded(workspace: Workspace, paths: Iterable[str]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for path in paths:
        plain_path = "/".join(confinement.components(path))
        if workspace.kind(plain_path) == "folder":
            for file in workspace.scan(plain_path).files:
                if PurePosixPath(file.path).suffix.lower() in _TEXT_SUFFIXES:
                    found.setdefault(file.path, False)
        else:
            found[plain_path] = True
    return found
