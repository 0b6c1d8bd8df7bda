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
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from app import clock, errors
from app.domain import library
from app.engine import ports
from app.services import folder_listings
from app.services.folder_listings import ABSENT, UNREADABLE, passes

MAX_RECIPE_BYTES = 1024 * 1024  # Largest recipe file that is read.

_log = logging.getLogger(__name__)


class Shared:
    """The files that recipes of one language can take parts from, and which of them were looked for.

    Args:
        folders: Folders of recipes; the first that has a file gives it.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.looked_for: dict[str, folder_listings.Mark] = {}
        """Marks of all files that were looked for, by path."""

    def read(self, name: str) -> str:
        """Return the text of a file.

        Raises:
            errors.InputRefused: there is none, it is outside its folder, or it is not text.
        """
        for folder in self._folders:
            path = folder / name
            # Noted even where nothing is: a file that appears there later changes what is read.
            mark = self.looked_for[str(path)] = folder_listings.mark_of(str(path))
            if mark.fault not in ABSENT or path.is_symlink():
                return _inside(path, folder)
        looked = ", ".join(str(folder / name) for folder in self._folders)
        raise errors.InputRefused(f"the file does not exist; searched {looked:.500}", code="file_not_found")


@contextmanager
def looked_at(name: str, dialect: str) -> Iterator[None]:
    """Confine an error in a language's code to the one recipe that raised it; the log says where.

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
        told = f"made Control Room fail ({type(error).__name__}); see the log"
        raise _refused(flaw("dialect_fault", told)) from error


def compose(dialect: ports.Dialect, source: str, shared: Shared, stem: str) -> ports.Composition:
    """Return a recipe's text with what it takes from shared files, where its language knows of such.

    Args:
        stem: What the recipe is called as long as its text is unread.
    """
    if not isinstance(dialect, ports.ComposingDialect):
        return ports.Composition(source=source)
    try:
        with looked_at(stem, dialect.name):
            return dialect.compose(source, shared.read)
    except errors.InputRefused as error:
        return ports.Composition(source=source, flaws=error.flaws)


def all_flaws(composing: Iterable[errors.Flaw], others: Iterable[errors.Flaw]) -> tuple[errors.Flaw, ...]:
    """Return what could not be put in and what else is wrong; if a place has both, only the first is returned."""
    told = {flaw.path: flaw for flaw in composing}
    return (*told.values(), *(flaw for flaw in others if flaw.path not in told))


def source_of(path: Path) -> str:
    """Return the text of a recipe's file.

    Raises:
        errors.RecipeInvalid: it cannot be read, is not a text, or is too large; its one flaw says so.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unusable("not_a_file", "is not a regular file")
        with path.open("rb") as file:
            # One byte more than allowed shows a file that is too large.
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
    """Make a flaw of a file as a whole."""
    return errors.Flaw(path="$", code=code, message=f"the file {message}")


def _inside(path: Path, folder: Path) -> str:
    if not folder_listings.is_inside(path, [folder]):
        raise errors.InputRefused("its path is outside of the recipes folder", code="outside")
    return source_of(path)


def _unusable(code: str, message: str) -> errors.RecipeInvalid:
    return _refused(flaw(code, message))


def _refused(found: errors.Flaw) -> errors.RecipeInvalid:
    return errors.RecipeInvalid(found.message, flaws=[found])


_Parse: TypeAlias = Callable[..., tuple[library.Recipe | None, tuple[errors.Flaw, ...]]]

_ID_FIELDS = ("recipe_id", "id", "name")
_LONG_CHARACTERS = 32 * 1024
_FOREIGN = ("unknown_field", "later_field")
_MOST_DEPTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder whose files are recipes of one dialect."""

    dialect: str  # Language of its recipes.
    path: Path  # Where it is; it need not exist.


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Folders that belong together; a later layer shadows an earlier one."""

    name: str  # `bundled` or `project`.
    folders: tuple[Folder, ...]  # Where its recipes are.
    fixed: bool = False  # Whether it belongs to the program and never changes while that lives.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFile:
    """A file that was read, well or badly."""

    path: Path  # Where it is.
    dialect: str  # Language it should be written in.
    recipe_id: str  # Id of the recipe; of a broken file the one that it seems to claim.
    recipe: library.Recipe | None  # The recipe; None of a broken file.
    flaws: tuple[errors.Flaw, ...] = ()  # Why it is broken.
    unmade: tuple[errors.Flaw, ...] = ()  # Those of them that kept it from being put together.
    source: str = ""  # Text of a broken file, as far as it can be read and put together.
    is_long: bool = False  # Whether processing it takes too long for the event loop.
    beside: Mapping[str, folder_listings.Mark] = field(default_factory=dict)
    """Other files that were looked for to put the recipe together, by path, as they were then."""

    @property
    def is_current(self) -> bool:
        """Return whether those other files are as they were, and it could be read."""
        if self.flaws and any(flaw.code == UNREADABLE for flaw in self.flaws):
            # That says nothing about the file, and passes without a change of it.
            return False
        return not self.beside or all(folder_listings.mark_of(path) == mark for path, mark in self.beside.items())


@runtime_checkable
class NestingDialect(Protocol):
    """A dialect whose recipes may be in folders below its own, because they name one another by their files."""

    takes_folders: bool  # True.


class _Found(NamedTuple):
    path: str
    dialect: str
    mark: folder_listings.Mark


class RecipeFiles:
    """The files of one layer, as they are now.

    Args:
        adapted: Returns a recipe as this project runs it.
        below: Layers whose shared files are taken where this one has none, the nearest first.
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
        # Not before a file is looked for: this imports every language.
        return tuple({suffix for dialect in self._dialects.values() for suffix in dialect.file_suffixes})

    def read(self) -> tuple[RecipeFile, ...]:
        """Return every recipe file, in the order of folders and names; the very same tuple as long
        as none has changed.
        """
        if self._files is not None and self.layer.fixed:
            return self._files
        found, standing = self._all_found(), self._standing()
        if self._files is None or found != list(standing):
            self._known = {file: standing.get(file) or self._read(file) for file in found}
            self._files = tuple(self._known.values())
        return self._files

    @property
    def is_current(self) -> bool:
        """Return whether no file has changed since they were read."""
        if self._files is None or self.layer.fixed:
            return self._files is not None
        return self._all_found() == list(self._known) and all(known.is_current for known in self._files)

    @property
    def changing(self) -> int:
        """Return the number of files that can change."""
        return 0 if self.layer.fixed else len(self._known)

    def watched(self) -> Iterator[folder_listings.Watched]:
        """Return everything that can change, as it was last looked at."""
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
        # A file with the ending of another language was put into the wrong folder, and is listed as that.
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
        # A file in the wrong folder is named as such instead of by the many flaws that it has in the other language.
        if not path.name.endswith(self._dialects[dialect].file_suffixes):
            return _broken(path, dialect, *self._misplaced(path, dialect, source))
        shared = Shared(folders(dialect, self._sharing))
        composed = compose(self._dialects[dialect], source, shared, path.stem)
        parse: _Parse = _parsed_once if self.layer.fixed else parsed
        recipe, flaws = parse(self._dialects[dialect], composed, path.stem)
        if recipe is None:
            misplaced = self._misplaced(path, dialect, composed.source) if not self.layer.fixed else ()
            read = _broken(path, dialect, *(misplaced or flaws), source="" if misplaced else composed.source)
        else:
            adapted = dataclasses.replace(self._adapted(recipe), path=str(path))
            read = RecipeFile(path=path, dialect=dialect, recipe_id=recipe.recipe_id, recipe=adapted)
        return dataclasses.replace(
            read,
            unmade=composed.flaws,
            beside=shared.looked_for,
            is_long=len(composed.source) > _LONG_CHARACTERS,
        )

    def _misplaced(self, path: Path, dialect: str, source: str) -> tuple[errors.Flaw, ...]:
        """Return the one flaw of a file that is written in the language of another folder; nothing where it is not."""
        fitting = [name for name, known in self._dialects.items() if path.name.endswith(known.file_suffixes)]
        unlike = {name: self._unlikeness(name, path, source) for name in fitting}
        found = min(unlike, key=lambda name: (unlike[name], name != dialect), default=dialect)
        # Only the fields present identify a language: a missing field may be missing in any of them.
        if found == dialect or (dialect in unlike and unlike[found][0] == unlike[dialect][0]):
            return ()
        folder = next((folder.path for folder in self.layer.folders if folder.dialect == found), None)
        message = f"is not a recipe of {dialect}, as its folder says; it reads as {found}: move it to {folder}"
        return (errors.Flaw(path="$", code="misplaced", message=message),)

    def _unlikeness(self, name: str, path: Path, source: str) -> tuple[int, int]:
        try:
            with looked_at(path.stem, name):
                flaws: Sequence[errors.Flaw] = self._dialects[name].flaws(source, path.stem, library.Library())
        except errors.InputRefused as error:
            flaws = error.flaws
        return sum(flaw.code in _FOREIGN for flaw in flaws), len(flaws)


def folders(dialect: str, layers: Sequence[Layer]) -> list[Path]:
    """Return the folders of a dialect's recipes in the order of the layers; of two in one layer the dialect's own
    first.
    """
    return [folder.path for layer in layers for folder in reversed(layer.folders) if folder.dialect == dialect]


def parsed(
    dialect: ports.Dialect, composed: ports.Composition, stem: str
) -> tuple[library.Recipe | None, tuple[errors.Flaw, ...]]:
    """Return the recipe that a text holds, or None and its flaws."""
    try:
        with looked_at(stem, dialect.name):
            recipe = dialect.parse(composed.source, stem)
    except errors.InputRefused as error:
        return None, all_flaws(composed.flaws, error.flaws)
    return (None, composed.flaws) if composed.flaws else (recipe, ())


# A process that serves several projects, or is forked from one that has looked, reads what never changes once.
_parsed_once = functools.lru_cache(maxsize=256)(parsed)


def grouped(files: Iterable[RecipeFile]) -> dict[str, list[RecipeFile]]:
    """Return files by the id of their recipe."""
    groups: dict[str, list[RecipeFile]] = {}
    for file in files:
        groups.setdefault(file.recipe_id, []).append(file)
    return groups


def collisions(file: RecipeFile, group: list[RecipeFile]) -> list[errors.Flaw]:
    """Return the flaw of a file whose id others claim as well."""
    others = [str(other.path) for other in group if other.recipe is not None and other is not file]
    if not others:
        return []
    message = f"recipe id {file.recipe_id} is also claimed by {', '.join(others)}"
    return [errors.Flaw(path="$.recipe_id", code="duplicate_recipe_id", message=message)]


def _broken(path: Path, dialect: str, *flaws: errors.Flaw, source: str = "") -> RecipeFile:
    return RecipeFile(
        path=path,
        dialect=dialect,
        # Only JSON says its id where it is too broken to be read in its language.
        recipe_id=_claimed(source, path.stem) if path.suffix == ".json" else path.stem,
        recipe=None,
        flaws=flaws,
        source=source,
    )


def _claimed(source: str, stem: str) -> str:
    try:
        document = json.loads(source)
    except (ValueError, RecursionError):
        return stem
    names = (document.get(field) for field in _ID_FIELDS) if isinstance(document, dict) else ()
    return next((name for name in names if isinstance(name, str) and name), stem)
