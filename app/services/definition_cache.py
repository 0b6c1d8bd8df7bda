"""The definition cache: tools, agents and prompts that recipes can refer to; prompts follow their files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from app import clock
from app.domain import library
from app.services import folder_listings, prompts


class DefinitionCache:
    """Keeps the library, and reads prompts again when one of their files has changed.

    Args:
        tools: Returns the tools by name; called at the first use of the library.
        backends: Models of each backend for haiku, sonnet and opus, by name; None: unknown.
        prompt_folders: Layers of prompts; the first is bundled with the program and never changes.
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
        """Return whether a library is the present one: it lacks no prompt, and no prompt has changed since."""
        return known is self._library and not known.unread_prompts and self._found() == self._marks

    def watched(self) -> Iterator[folder_listings.Watched]:
        """Return the files that the library was read from, each with its state at the last check."""
        yield from (listing.watched for listing in self._listings.values())
        yield from itertools.starmap(folder_listings.Watched, self._marks or ())

    def library(self) -> library.Library:
        """Return everything that recipes can refer to; the same object until a prompt changes."""
        marks = self._found()
        if marks != self._marks or self._library.unread_prompts:
            found = prompts.load(self._prompt_folders)
            # Unreadable prompts are tried again each time; only a difference makes a new library, and with it new
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
