"""
The shelf: tools, agents and prompts that recipes of a project can refer to, prompts as their files stand now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from app.control import prompts
from app.engine import library

_Mark: TypeAlias = tuple[str, int, int, int]


class Shelf:
    """
    Keep the library, and read prompts again when one of their files has changed.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, library.ToolSpec],
        agents: Sequence[library.Agent],
        prompt_folders: Sequence[Path],
    ) -> None:
        """
        Args:
            prompt_folders: Layers of prompts, the bundled one first; that one belongs to the program and never changes.
        """
        self._tools = tools
        self._agents = tuple(agents)
        self._prompt_folders = tuple(prompt_folders)
        self._marks: list[_Mark] | None = None
        self._library = library.Library()

    def library(self) -> library.Library:
        """
        Return everything that recipes can refer to.
        """
        marks = [mark for folder in self._prompt_folders[1:] for mark in _marks(folder)]
        if marks != self._marks:
            templates = prompts.load(self._prompt_folders).templates
            self._library = library.Library(tools=self._tools, agents=self._agents, prompts=templates)
            self._marks = marks
        return self._library


def _marks(folder: Path) -> Iterator[_Mark]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from _marks(Path(entry.path))
        else:
            yield _mark(entry)


def _mark(entry: os.DirEntry[str]) -> _Mark:
    try:
        found = entry.stat()
    except OSError:
        return entry.path, 0, 0, 0
    return entry.path, found.st_mtime_ns, found.st_ctime_ns, found.st_size
