"""The definition cache: tools, agents and prompts that recipes can refer to, prompts as their files are now."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from app import clock
from app.domain import library
from app.services import folder_listings, prompts


class DefinitionCache:
    """Keep the library, and read prompts again when one of their files has changed.

    Args:
        tools: Returns the tools by name; called when the library is first asked for.
        backends: Their models for haiku, sonnet and opus, by name; None: they are not known.
        prompt_folders: Layers of prompts, the bundled one first; that one belongs to the program and never changes.
    """

    def __init__(
        self,
        *,
        tools: Callable[[], Mapping[str, library.ToolSpec]],
        agents: Sequence[library.Agent],
        backends: Mapping[str, Mapping[str, str]] | None = None,
        prompt_folders: Sequence[Path],
        clock: clock.Clock,
    ) -> None:
        self._tools = tools
        self._agents = tuple(agents)
        self._backends = backends
        self._prompt_folders = tuple(prompt_folders)
        self._clock = clock
        self._listings: dict[str, folder_listings.Listing] = {}
        self._marks: list[tuple[str, folder_listings.Mark]] | None = None
        self._library = library.Library()

    def is_current(self, known: library.Library) -> bool:
        """Return whether a library is the present one: all prompts could be read, and none has changed since."""
        return known is self._library and not known.unread_prompts and self._found() == self._marks

    def watched(self) -> Iterator[folder_listings.Watched]:
        """Return the files that the library was read from, as they were checked last."""
        yield from (listing.watched for listing in self._listings.values())
        yield from itertools.starmap(folder_listings.Watched, self._marks or ())

    def library(self) -> library.Library:
        """Return everything that recipes can refer to; the same object while no prompt has changed."""
        marks = self._found()
        if marks != self._marks or self._library.unread_prompts:
            found = prompts.load(self._prompt_folders)
            # What could not be read is tried again each time; only a difference makes a new library, and with it new
            # recipes.
            if marks != self._marks or found.unread != self._library.unread_prompts:
                self._library = library.Library(
                    tools=self._tools(),
                    agents=self._agents,
                    prompts=found.templates,
                    unread_prompts=found.unread,
                    backends=self._backends,
                )
            self._marks = marks
        return self._library

    def _found(self) -> list[tuple[str, folder_listings.Mark]]:
        return [found for folder in self._prompt_folders[1:] for found in self._files(str(folder))]

    def _files(self, folder: str) -> Iterator[tuple[str, folder_listings.Mark]]:
        for name in self._listing(folder).names():
            path = f"{folder}/{name}"
            mark = folder_listings.mark_of(path)
            if mark.is_folder:
                yield from self._files(path)
            else:
                yield path, mark

    def _listing(self, folder: str) -> folder_listings.Listing:
        if folder not in self._listings:
            self._listings[folder] = folder_listings.Listing(folder, self._clock)
        return self._listings[folder]
