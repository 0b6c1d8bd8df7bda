"""
Recipe files: read from the folders of a layer, each again only when it has changed.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import stat_result
from pathlib import Path
from typing import TypeAlias

from app import errors
from app.engine import library, ports

MAX_RECIPE_BYTES = 1024 * 1024
"""Largest recipe file that is read."""

_ID_FIELDS = ("recipe_id", "id", "name")
_Mark: TypeAlias = tuple[int, int, int, int]


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


class RecipeFiles:
    """
    The files of one layer, as they stand now.
    """

    def __init__(self, layer: Layer, dialects: Mapping[str, ports.Dialect]) -> None:
        self.layer = layer
        self._dialects = dialects
        self._known: dict[Path, tuple[_Mark, RecipeFile]] = {}

    def read(self) -> list[RecipeFile]:
        """
        Return every recipe file, in the order of folders and names.
        """
        self._known = {
            path: self._current(path, folder.dialect)
            for folder in self.layer.folders
            for path in _listed(folder.path, self._dialects[folder.dialect].file_suffixes)
        }
        return [file for _, file in self._known.values()]

    def _current(self, path: Path, dialect: str) -> tuple[_Mark, RecipeFile]:
        try:
            found = path.stat()
        except OSError as error:
            return (0, 0, 0, 0), _broken(path, dialect, _flaw("file_unreadable", f"cannot be read: {error.strerror}"))
        mark, known = _mark(found), self._known.get(path)
        if known is not None and known[0] == mark:
            return known
        return mark, self._read(path, dialect, found)

    def _read(self, path: Path, dialect: str, found: stat_result) -> RecipeFile:
        try:
            source = _source(path, found)
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


def _listed(folder: Path, suffixes: Iterable[str]) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if path.name.endswith(tuple(suffixes)) and not path.name.startswith("."):
            yield path


def _mark(found: stat_result) -> _Mark:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _source(path: Path, found: stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        raise errors.RecipeInvalid(flaws=[_flaw("not_a_file", "is not a regular file")])
    try:
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
