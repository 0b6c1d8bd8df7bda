"""
Recipe files: read from the folders of a layer, each again only when it has changed.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app import clock, errors
from app.control import listings
from app.engine import library, ports

MAX_RECIPE_BYTES = 1024 * 1024
"""Largest recipe file that is read."""

_ID_FIELDS = ("recipe_id", "id", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """
    A folder whose files are recipes of one dialect.
    """

    dialect: str
    """Language of its recipes."""
    path: Path
    """Where it is; it need not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """
    Folders that belong together; a later layer shadows an earlier one.
    """

    name: str
    """`bundled` or `project`."""
    folders: tuple[Folder, ...]
    """Where its recipes are."""
    fixed: bool = False
    """Whether it belongs to the program and never changes while that lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFile:
    """
    A file that was read, well or badly.
    """

    path: Path
    """Where it is."""
    dialect: str
    """Language it should be written in."""
    recipe_id: str
    """Id of the recipe; of a broken file the one that it seems to claim."""
    recipe: library.Recipe | None
    """The recipe; None of a broken file."""
    flaws: tuple[errors.Flaw, ...] = ()
    """Why it is broken."""
    source: str = ""
    """Text of a broken file, as far as it can be read."""


class _Found(NamedTuple):
    path: str
    dialect: str
    mark: listings.Mark


class RecipeFiles:
    """
    The files of one layer, as they stand now.
    """

    def __init__(self, layer: Layer, dialects: Mapping[str, ports.Dialect], clock: clock.Clock) -> None:
        self.layer = layer
        self._dialects = dialects
        self._listings = [(folder.dialect, listings.Listing(folder.path, clock)) for folder in layer.folders]
        self._known: dict[_Found, RecipeFile] = {}
        self._files: tuple[RecipeFile, ...] | None = None

    def read(self) -> tuple[RecipeFile, ...]:
        """
        Return every recipe file, in the order of folders and names; the very same tuple as long as none has changed.
        """
        if self._files is not None and self.layer.fixed:
            return self._files
        found = [file for dialect, listing in self._listings for file in self._found(dialect, listing)]
        if self._files is None or found != list(self._known):
            self._known = {file: self._known.get(file) or self._read(file) for file in found}
            self._files = tuple(self._known.values())
        return self._files

    def _found(self, dialect: str, listing: listings.Listing) -> Iterator[_Found]:
        suffixes = self._dialects[dialect].file_suffixes
        for name in listing.names():
            if name.endswith(suffixes) and not name.startswith("."):
                path = f"{listing.folder}/{name}"
                yield _Found(path, dialect, listings.mark(path))

    def _read(self, found: _Found) -> RecipeFile:
        path, dialect = Path(found.path), found.dialect
        try:
            source = _source(path)
        except errors.RecipeInvalid as error:
            return _broken(path, dialect, *error.flaws)
        recipe, flaws = parsed(self._dialects[dialect], source, path.stem)
        if recipe is None:
            return _broken(path, dialect, *flaws, source=source)
        return RecipeFile(path=path, dialect=dialect, recipe_id=recipe.recipe_id, recipe=recipe)


def parsed(dialect: ports.Dialect, source: str, stem: str) -> tuple[library.Recipe | None, tuple[errors.Flaw, ...]]:
    """
    Return the recipe that a text holds, or None and its flaws.
    """
    try:
        return dialect.parse(source, stem), ()
    except errors.InputRefused as error:
        return None, error.flaws or (_flaw(error.code, error.message),)
    except RecursionError:
        return None, (_flaw("too_deep", "is nested too deeply"),)


def _source(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.RecipeInvalid(flaws=[_flaw("not_a_file", "is not a regular file")])
        with path.open("rb") as file:
            content = file.read(MAX_RECIPE_BYTES + 1)
        if len(content) > MAX_RECIPE_BYTES:
            raise errors.RecipeInvalid(flaws=[_flaw("too_large", f"is larger than {MAX_RECIPE_BYTES} bytes")])
        return content.decode("utf-8-sig")
    except OSError as error:
        flaw = _flaw("file_unreadable", f"cannot be read: {error.strerror}")
        raise errors.RecipeInvalid(flaws=[flaw]) from error
    except UnicodeDecodeError as error:
        flaw = _flaw("not_text", f"is not UTF-8 text: byte {error.start} is wrong")
        raise errors.RecipeInvalid(flaws=[flaw]) from error


def _broken(path: Path, dialect: str, *flaws: errors.Flaw, source: str = "") -> RecipeFile:
    return RecipeFile(
        path=path, dialect=dialect, recipe_id=_claimed(source, path.stem), recipe=None, flaws=flaws, source=source
    )


def _claimed(source: str, stem: str) -> str:
    try:
        document = json.loads(source)
    except (ValueError, RecursionError):
        return stem
    names = (document.get(field) for field in _ID_FIELDS) if isinstance(document, dict) else ()
    return next((name for name in names if isinstance(name, str) and name), stem)


def _flaw(code: str, message: str) -> errors.Flaw:
    return errors.Flaw(path="$", code=code, message=f"the file {message}")
