"""The shelf: tools, agents and prompts that recipes of a project can refer to, prompts as their files stand now."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from app import clock
from app.domain import library
from app.services import prompts

_log = logging.getLogger(__name__)

TRUSTED_SECONDS = 1.0
"""Time for which a listing counts while its folder's mark stays the same; longer than a tick of any disk's clock."""


class Mark(NamedTuple):
    """What is another as soon as a file or folder has changed."""

    fault: int = 0
    """Why it cannot be looked at, as the system numbers it; 0 where it can."""
    modified_ns: int = 0
    """When its content changed."""
    changed_ns: int = 0
    """When anything about it changed."""
    size_bytes: int = 0
    """Size."""
    inode: int = 0
    """Which one it is."""
    mode: int = 0
    """Kind and permissions."""

    @property
    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return stat.S_ISDIR(self.mode)


class Listing:
    """The names in one folder, which need not exist."""

    def __init__(self, folder: Path | str, clock: clock.Clock) -> None:
        self.folder = str(folder)
        """Path of the folder."""
        self._clock = clock
        self._mark = Mark(fault=-1)
        self._marked_at = self._listed_at = 0.0
        self._names: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return the names in order: none where there is no folder, the last ones where it cannot be read now."""
        now, present = self._clock.monotonic(), mark_of(self.folder)
        if present != self._mark:
            self._mark = present
            self._marked_at = now
        elif self._is_trusted(now):
            return self._names
        self._names = _listed(self.folder, self._names)
        self._listed_at = now
        return self._names

    def _is_trusted(self, now: float) -> bool:
        # Of two changes within a tick of the disk's clock the second leaves no mark, so a listing counts only if the
        # mark had stood for a while when it was made. Some disks do not mark folders at all; hence only for a while.
        return self._listed_at - self._marked_at >= TRUSTED_SECONDS and now - self._listed_at < TRUSTED_SECONDS


def mark_of(path: str) -> Mark:
    """Return the present mark of a file or folder."""
    try:
        found = os.stat(path)
    except OSError as error:
        return Mark(fault=error.errno or -1)
    return Mark(0, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def _listed(folder: str, before: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        _log.warning("%s cannot be listed now: %s", folder, error, extra={"file": folder})
        return before


class DefinitionCache:
    """Keep the library, and read prompts again when one of their files has changed."""

    def __init__(
        self,
        *,
        tools: Mapping[str, library.ToolSpec],
        agents: Sequence[library.Agent],
        backends: Mapping[str, Mapping[str, str]] | None = None,
        prompt_folders: Sequence[Path],
        clock: clock.Clock,
    ) -> None:
        """Args:
        backends: Their models for haiku, sonnet and opus, by name; None: they are not known.
        prompt_folders: Layers of prompts, the bundled one first; that one belongs to the program and never changes.
        """
        self._tools = tools
        self._agents = tuple(agents)
        self._backends = backends
        self._prompt_folders = tuple(prompt_folders)
        self._clock = clock
        self._listings: dict[str, Listing] = {}
        self._marks: list[tuple[str, Mark]] | None = None
        self._library = library.Library()

    def library(self) -> library.Library:
        """Return everything that recipes can refer to; the very same library as long as no prompt has changed."""
        marks = self._found()
        if marks != self._marks or self._library.unread_prompts:
            found = prompts.load(self._prompt_folders)
            if marks != self._marks or found.unread != self._library.unread_prompts:
                self._library = library.Library(
                    tools=self._tools,
                    agents=self._agents,
                    prompts=found.templates,
                    unread_prompts=found.unread,
                    backends=self._backends,
                )
            self._marks = marks
        return self._library

    @property
    def stands(self) -> bool:
        """Tell whether all prompts could be read, and none has changed since."""
        return not self._library.unread_prompts and self._marks is not None and self._found() == self._marks

    def _found(self) -> list[tuple[str, Mark]]:
        return [found for folder in self._prompt_folders[1:] for found in self._files(str(folder))]

    def _files(self, folder: str) -> Iterator[tuple[str, Mark]]:
        for name in self._listing(folder).names():
            path = f"{folder}/{name}"
            mark = mark_of(path)
            if mark.is_folder:
                yield from self._files(path)
            else:
                yield path, mark

    def _listing(self, folder: str) -> Listing:
        if folder not in self._listings:
            self._listings[folder] = Listing(folder, self._clock)
        return self._listings[folder]
