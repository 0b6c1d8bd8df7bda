"""Texts of recipes: read from files, with the parts put in that they take from files beside them."""

from __future__ import annotations

import errno
import logging
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app import errors
from app.engine import ports
from app.services import folder_listings

UNREADABLE = "unreadable"
"""Code of the flaw of a file that the system does not let be read now."""

MAX_RECIPE_BYTES = 1024 * 1024
"""Largest recipe file that is read."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR)

_log = logging.getLogger(__name__)


class Shared:
    """The files that recipes of one language can take parts from, and which of them were looked for."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Args: folders: Folders of recipes; the first that has a file gives it."""
        self._folders = folders
        self.looked_for: dict[str, folder_listings.Mark] = {}
        """Marks of all files that were looked for, by path."""

    def read(self, name: str) -> str:
        """Return the text of a file.

        Raises:
            errors.InputRefused: there is none, it lies outside its folder, or it is no text.
        """
        for folder in self._folders:
            path = folder / name
            mark = self.looked_for[str(path)] = folder_listings.mark(str(path))
            if mark.fault not in _ABSENT or path.is_symlink():
                return _inside(path, folder)
        looked = ", ".join(str(folder / name) for folder in self._folders)
        raise errors.InputRefused(f"there is no such file; looked for {looked:.500}", code="file_not_found")


@contextmanager
def looked_at(name: str, dialect: str) -> Iterator[None]:
    """Keep what goes wrong in a language's own code to the one recipe that it was met in; the log tells where it was.

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
        told = f"met a fault of this program ({type(error).__name__}), which its log tells of"
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
    """Return what could not be put in and what else is wrong; of a place that has both, the first is told."""
    told = {flaw.path: flaw for flaw in composing}
    return (*told.values(), *(flaw for flaw in others if flaw.path not in told))


def source(path: Path) -> str:
    """Return the text of a recipe's file.

    Raises:
        errors.RecipeInvalid: it cannot be read, or is no text of decent size; its one flaw says so.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unusable("not_a_file", "is not a regular file")
        with path.open("rb") as file:
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


def is_absent(path: Path) -> bool:
    """Tell whether there is nothing at a path; what cannot be looked at now may be there."""
    try:
        path.stat()
    except OSError as error:
        return not passes(error)
    except ValueError:
        return True
    return False


def passes(error: OSError) -> bool:
    """Tell whether an error of reading says nothing about the file: it may be read later as it is."""
    return error.errno not in (*_ABSENT, errno.ELOOP)


def flaw(code: str, message: str) -> errors.Flaw:
    """Make a flaw of a file as a whole."""
    return errors.Flaw(path="$", code=code, message=f"the file {message}")


def _inside(path: Path, folder: Path) -> str:
    try:
        outside = not path.resolve().is_relative_to(folder.resolve())
    except OSError as error:
        if passes(error):
            raise _unusable(UNREADABLE, f"cannot be read now: {error.strerror}") from error
        outside = True
    except RuntimeError:
        outside = True
    if outside:
        raise errors.InputRefused("it leads out of the folder of the recipes", code="outside")
    return source(path)


def _unusable(code: str, message: str) -> errors.RecipeInvalid:
    return _refused(flaw(code, message))


def _refused(found: errors.Flaw) -> errors.RecipeInvalid:
    return errors.RecipeInvalid(found.message, flaws=[found])
