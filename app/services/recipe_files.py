"""Recipe files: read from the folders of a layer, each again only when it has changed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import logging
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from app import clock, errors
from app.domain import library
from app.engine import ports
from app.services import folder_listings
from app.services.folder_listings import ABSENT, UNREADABLE, passes

MAX_RECIPE_BYTES = 1024 * 1024  # Largest recipe file that is read.

_log = logging.getLogger(__name__)


class Shared:
    """The shared files from which recipes of one language can take parts, with a record of the searched paths.

    Args:
        folders: Folders of recipes; the first one that has the file is used.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.looked_for: dict[str, folder_listings.Mark] = {}
        """Marks of all searched files, by path."""

    def read(self, name: str) -> str:
        """Return the text of a file.

        Raises:
            errors.InputRefused: the file does not exist, is outside its folder, or is not text.
        """
        for folder in self._folders:
            path = folder / name
            # Recorded even for a missing file: one that appears there later changes the result.
            mark = self.looked_for[str(path)] = folder_listings.mark_of(str(path))
            if mark.fault not in ABSENT or path.is_symlink():
                return _inside(path, folder)
        looked = ", ".join(str(folder / name) for folder in self._folders)
        raise errors.InputRefused(f"the file does not exist; searched {looked:.500}", code="file_not_found")


@contextmanager
def confine_errors(name: str, dialect: str) -> Iterator[None]:
    """Confine an error in a language's code to the one recipe that caused it; the log contains the place.

    Raises:
        errors.RecipeInvalid: `dialect_fault`, or `too_deep`.
    """
    try:
        yield
    except errors.InputRefused as error:
        if error.flaws:
            raise
        raise _refused(flaw(error.code, error.message)) from error
    except RecursionError as error:
        raise _refused(flaw("too_deep", "is nested too deeply")) from error
    except Exception as error:
        _log.exception("a recipe could not be looked at", extra={"recipe": name, "dialect": dialect})
        message = f"made Control Room fail ({type(error).__name__}); see the log"
        raise _refused(flaw("dialect_fault", message)) from error


def compose(dialect: ports.Dialect, source: str, shared: Shared, stem: str) -> ports.Composition:
    """Return a recipe's text with its parts from shared files, if its language has such parts.

    Args:
        stem: Name of the recipe until its text is read.
    """
    if not isinstance(dialect, ports.ComposingDialect):
        return ports.Composition(source=source)
    try:
        with confine_errors(stem, dialect.name):
            return dialect.compose(source, shared.read)
    except errors.InputRefused as error:
        return ports.Composition(source=source, flaws=error.flaws)


def all_flaws(composing: Iterable[errors.Flaw], others: Iterable[errors.Flaw]) -> tuple[errors.Flaw, ...]:
    """Return the flaws of composing and the other flaws; if a position has both, only the first is returned."""
    by_path = {flaw.path: flaw for flaw in composing}
    return (*by_path.values(), *(flaw for flaw in others if flaw.path not in by_path))


def source_of(path: Path) -> str:
    """Return the text of a recipe's file.

    Raises:
        errors.RecipeInvalid: it cannot be read, is not text, or is too large; its one flaw names the reason.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unusable("not_a_file", "is not a regular file")
        with path.open("rb") as file:
            # One byte more than allowed shows that a file is too large.
            content = file.read(MAX_RECIPE_BYTES + 1)
        if len(content) > MAX_RECIPE_BYTES:
            raise _unusable("too_large", f"is larger than {MAX_RECIPE_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        if passes(error):
            raise _unusable(UNREADABLE, f"cannot be read now: {error.strerror}") from error
        raise _unusable("file_unreadable", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _unusable("not_text", f"is not UTF-8 text: byte {error.start} is wrong") from error


def flaw(code: str, message: str) -> errors.Flaw:
    """Return a flaw of a file as a whole."""
    return errors.Flaw(path="$", code=code, message=f"the file {message}")


def _inside(path: Path, folder: Path) -> str:
    if not folder_listings.is_inside(path, [folder]):
        raise errors.InputRefused("its path is outside of the recipes folder", code="outside")
    return source_of(path)


def _unusable(code: str, message: str) -> errors.RecipeInvalid:
    return _refused(flaw(code, message))


def _refused(found: errors.Flaw) -> errors.RecipeInvalid:
    return errors.RecipeInvalid(found.message, flaws=[found])


_ID_FIELDS = ("recipe_id", "id", "name")
_LONG_CHARACTERS = 32 * 1024
_FOREIGN = ("unknown_field", "later_field")
_MOST_DEPTH = 3
_NOTHING = ports.Composition(source="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder whose files are recipes of one dialect."""

    dialect: str  # Language of its recipes.
    path: Path  # Path of the folder, which need not exist.


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Folders that belong together; a later layer shadows an earlier one."""

    name: str  # `bundled` or `project`.
    folders: tuple[Folder, ...]  # Folders of its recipes.
    fixed: bool = False  # Whether it belongs to the program and never changes while the process lives.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFile:
    """A file that was read, sound or broken."""

    path: Path  # Path of the file.
    dialect: str  # Language of its folder.
    recipe_id: str  # Id of the recipe; for a broken file, the id that it seems to claim.
    recipe: library.Recipe | None  # The recipe; None for a broken file.
    flaws: tuple[errors.Flaw, ...] = ()  # Flaws that make it broken.
    composed: ports.Composition = _NOTHING
    """The composition of its text; the text itself is kept only of a broken file that can be read."""
    is_long: bool = False  # Whether processing it takes too long for the event loop.
    beside: Mapping[str, folder_listings.Mark] = field(default_factory=dict)
    """Other files that were searched to compose the recipe, by path, with their marks then."""

    @property
    def is_current(self) -> bool:
        """Return whether the file could be read and those other files are unchanged."""
        if self.flaws and any(flaw.code == UNREADABLE for flaw in self.flaws):
            # This flaw does not concern the content, and may end without a change of the file.
            return False
        return not self.beside or all(folder_listings.mark_of(path) == mark for path, mark in self.beside.items())


@runtime_checkable
class NestingDialect(Protocol):
    """A dialect whose recipes may be in subfolders of its folder, because they name one another by their files."""

    takes_folders: bool  # Always True.


class _Found(NamedTuple):
    path: str
    dialect: str
    mark: folder_listings.Mark


class _Understood(NamedTuple):
    composed: ports.Composition
    recipe: library.Recipe | None
    flaws: tuple[errors.Flaw, ...]
    looked_for: Mapping[str, folder_listings.Mark]


class RecipeFiles:
    """The present files of one layer.

    Args:
        adapted: Returns a recipe adapted to this project.
        below: Layers whose shared files are used if this one lacks them, nearest first.
    """

    def __init__(
        self,
        layer: Layer,
        dialects: Mapping[str, ports.Dialect],
        clock: clock.Clock,
        below: Sequence[Layer] = (),
        adapted: Callable[[library.Recipe], library.Recipe] = lambda recipe: recipe,
    ) -> None:
        self.layer = layer
        self._sharing = (layer, *below)
        self._dialects = dialects
        self._adapted = adapted
        self._listings = [(folder.dialect, folder_listings.Listing(folder.path, clock)) for folder in layer.folders]
        self._clock = clock
        self._inner: dict[str, folder_listings.Listing] = {}
        self._known: dict[_Found, RecipeFile] = {}
        self._files: tuple[RecipeFile, ...] | None = None

    @functools.cached_property
    def _suffixes(self) -> tuple[str, ...]:
        # Only when a file is searched, since this imports every language.
        return tuple({suffix for dialect in self._dialects.values() for suffix in dialect.file_suffixes})

    def read(self) -> tuple[RecipeFile, ...]:
        """Return every recipe file, ordered by folder and name; the same tuple until a file changes."""
        if self._files is not None and self.layer.fixed:
            return self._files
        found, standing = self._all_found(), self._standing()
        if self._files is None or found != list(standing):
            self._known = {file: standing.get(file) or self._read(file) for file in found}
            self._files = tuple(self._known.values())
        return self._files

    @property
    def is_current(self) -> bool:
        """Return whether no file has changed since the last read."""
        if self._files is None or self.layer.fixed:
            return self._files is not None
        return self._all_found() == list(self._known) and all(known.is_current for known in self._files)

    @property
    def changing(self) -> int:
        """Return the number of files that can change."""
        return 0 if self.layer.fixed else len(self._known)

    def watched(self) -> Iterator[folder_listings.Watched]:
        """Return everything that can change, with its mark at the last check."""
        if not self.layer.fixed:
            yield from (listing.watched for _, listing in self._listings)
            yield from (listing.watched for listing in self._inner.values())
            for found, file in self._known.items():
                yield folder_listings.Watched(found.path, found.mark)
                yield from itertools.starmap(folder_listings.Watched, file.beside.items())

    def _all_found(self) -> list[_Found]:
        return [file for dialect, listing in self._listings for file in self._found(dialect, listing, _MOST_DEPTH)]

    def _standing(self) -> dict[_Found, RecipeFile]:
        return {file: known for file, known in self._known.items() if known.is_current}

    def _found(self, dialect: str, listing: folder_listings.Listing, depth: int) -> Iterator[_Found]:
        written_in = self._dialects[dialect]
        # A file with the ending of another language is in the wrong folder, and is listed as such.
        suffixes = written_in.file_suffixes if self.layer.fixed else self._suffixes
        for name in listing.names():
            path = f"{listing.folder}/{name}"
            if name.startswith("."):
                continue
            if name.endswith(suffixes):
                yield _Found(path, dialect, folder_listings.mark_of(path))
            elif depth and isinstance(written_in, NestingDialect) and folder_listings.mark_of(path).is_folder:
                inner = self._inner.setdefault(path, folder_listings.Listing(path, self._clock))
                yield from self._found(dialect, inner, depth - 1)

    def _read(self, found: _Found) -> RecipeFile:
        path, dialect = Path(found.path), found.dialect
        try:
            source = source_of(path)
        except errors.RecipeInvalid as error:
            return _broken(path, dialect, *error.flaws)
        # A file in the wrong folder is reported as such, instead of by the many flaws that it has in the other
        # language.
        if not path.name.endswith(self._dialects[dialect].file_suffixes):
            return _broken(path, dialect, *self._misplaced(path, dialect, source))
        understand: Callable[..., _Understood] = _understood_once if self.layer.fixed else _understood
        searched = tuple(folders(dialect, self._sharing))
        composed, recipe, flaws, looked_for = understand(self._dialects[dialect], source, path.stem, searched)
        kept = ""
        if recipe is None:
            misplaced = self._misplaced(path, dialect, composed.source) if not self.layer.fixed else ()
            kept = "" if misplaced else composed.source
            read = _broken(path, dialect, *(misplaced or flaws), source=kept)
        else:
            adapted = dataclasses.replace(self._adapted(recipe), path=str(path))
            read = RecipeFile(path=path, dialect=dialect, recipe_id=recipe.recipe_id, recipe=adapted)
        return dataclasses.replace(
            read,
            composed=dataclasses.replace(composed, source=kept),
            beside=looked_for,
            is_long=len(composed.source) > _LONG_CHARACTERS,
        )

    def _misplaced(self, path: Path, dialect: str, source: str) -> tuple[errors.Flaw, ...]:
        """Return the one flaw of a file that is in the folder of another language; empty if it is not."""
        fitting = [name for name, known in self._dialects.items() if path.name.endswith(known.file_suffixes)]
        unlike = {name: self._unlikeness(name, path, source) for name in fitting}
        found = min(unlike, key=lambda name: (unlike[name], name != dialect), default=dialect)
        # Only present fields identify a language: a missing field may be missing in any of them.
        if found == dialect or (dialect in unlike and unlike[found][0] == unlike[dialect][0]):
            return ()
        folder = next((folder.path for folder in self.layer.folders if folder.dialect == found), None)
        message = f"is not a recipe of {dialect}, as its folder says; it reads as {found}: move it to {folder}"
        return (errors.Flaw(path="$", code="misplaced", message=message),)

    def _unlikeness(self, name: str, path: Path, source: str) -> tuple[int, int]:
        try:
            with confine_errors(path.stem, name):
                flaws: Sequence[errors.Flaw] = self._dialects[name].flaws(source, path.stem, library.Library())
        except errors.InputRefused as error:
            flaws = error.flaws
        return sum(flaw.code in _FOREIGN for flaw in flaws), len(flaws)


def folders(dialect: str, layers: Sequence[Layer]) -> list[Path]:
    """Return the folders of a dialect's recipes in the order of layers, in each layer the dialect's own first."""
    return [folder.path for layer in layers for folder in reversed(layer.folders) if folder.dialect == dialect]


def parsed(
    dialect: ports.Dialect, composed: ports.Composition, stem: str
) -> tuple[library.Recipe | None, tuple[errors.Flaw, ...]]:
    """Return the recipe in a text, or None and its flaws."""
    try:
        with confine_errors(stem, dialect.name):
            recipe = dialect.parse(composed.source, stem)
    except errors.InputRefused as error:
        return None, all_flaws(composed.flaws, composed.located(error.flaws))
    return (None, composed.flaws) if composed.flaws else (recipe, ())


def _understood(dialect: ports.Dialect, source: str, stem: str, searched: Sequence[Path]) -> _Understood:
    shared = Shared(searched)
    composed = compose(dialect, source, shared, stem)
    return _Understood(composed, *parsed(dialect, composed, stem), shared.looked_for)


# A process that serves several projects, or is forked from one that has read them, reads unchanging files only once.
_understood_once = functools.lru_cache(maxsize=256)(_understood)


def grouped(files: Iterable[RecipeFile]) -> dict[str, list[RecipeFile]]:
    """Return files by the id of their recipe."""
    groups: dict[str, list[RecipeFile]] = {}
    for file in files:
        groups.setdefault(file.recipe_id, []).append(file)
    return groups


def collisions(file: RecipeFile, group: list[RecipeFile]) -> list[errors.Flaw]:
    """Return the flaw of a file whose id other files claim as well."""
    others = [str(other.path) for other in group if other.recipe is not None and other is not file]
    if not others:
        return []
    message = f"recipe id {file.recipe_id} is also claimed by {', '.join(others)}"
    return [errors.Flaw(path="$.recipe_id", code="duplicate_recipe_id", message=message)]


def _broken(path: Path, dialect: str, *flaws: errors.Flaw, source: str = "") -> RecipeFile:
    return RecipeFile(
        path=path,
        dialect=dialect,
        # Only in JSON can the id be read if the file is too broken for its language.
        recipe_id=_claimed(source, path.stem) if path.suffix == ".json" else path.stem,
        recipe=None,
        flaws=flaws,
    )


def _claimed(source: str, stem: str) -> str:
    try:
        document = json.loads(source)
    except (ValueError, RecursionError):
        return stem
    names = (document.get(field) for field in _ID_FIELDS) if isinstance(document, dict) else ()
    return next((name for name in names if isinstance(name, str) and name), stem)
