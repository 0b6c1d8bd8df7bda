"""Globs: find the paths of a workspace that a pattern matches (workflow-dsl, file dependencies).

Names are matched component by component, and every folder on the way is entered as for any other path: from the open
root, never out of the workspace. A link that a pattern matches is a result if its target is inside, is left out if the
target does not exist, and is refused if the target is outside.
"""

# The standard library's `glob` resolves paths by name: it follows links out of the workspace, and a folder can
# become a link between check and use. `**` is rejected: a pattern that only looks recursive would find too few files
# without notice.

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app import environment_values, errors
from app.tools import failures, name_patterns
from app.tools.confinement import Descent, components
from app.tools.reserved import Root

MOST_PATHS = 100_000  # Most paths that one pattern may match.

_Parts = tuple[str, ...]


def fitting(root: Root | Path, pattern: str, left_out: list[str] | None = None) -> list[str]:
    """Return the files, folders and other entries that a pattern matches, in the order of the bytes of their paths.

    A pattern that ends with a slash matches folders only. Names that are not UTF-8 are left out.

    Args:
        left_out: Takes the reasons for omitting links that wildcards match but that lead out of the workspace, and
            names that are not UTF-8; None: such links are refused.

    Raises:
        errors.ToolFailed: `invalid_pattern`, `path_outside_workspace`, `too_many_files`, `workspace_missing`, or
            `file_unreadable` if the pattern names the unreadable folder without a wildcard.
    """
    return sorted(("/".join(parts) or "." for parts in _Search(root, pattern, left_out).found()), key=str.encode)


class _Entry(NamedTuple):
    name: str
    is_link: bool
    is_folder: bool


class _Search:
    def __init__(self, root: Root | Path, pattern: str, left_out: list[str] | None) -> None:
        self._root = root
        self._pattern = pattern
        self._left_out = left_out
        self._names = _names(pattern)
        self._only_folders = pattern.endswith("/")

    def found(self) -> Iterable[_Parts]:
        reached: list[_Parts] = [()]
        is_named, is_listed = True, False
        for position, name in enumerate(self._names):
            is_listed = isinstance(name, name_patterns.Wildcard)
            if isinstance(name, name_patterns.Wildcard):
                is_last = position + 1 == len(self._names)
                reached = self._entries(reached, name, is_named=is_named, is_last=is_last)
                is_named = False
            else:
                reached = [(*parts, name) for parts in reached]
        return reached if is_listed else [parts for parts in reached if self._leads(parts, is_named=is_named)]

    def _entries(
        self, reached: Iterable[_Parts], name: name_patterns.Wildcard, *, is_named: bool, is_last: bool
    ) -> list[_Parts]:
        found: list[_Parts] = []
        for parts in reached:
            for entry in self._listed(parts, name, is_named=is_named, is_last=is_last):
                if not is_last or not entry.is_link or self._leads((*parts, entry.name), is_named=False):
                    found.append((*parts, entry.name))
                if len(found) > MOST_PATHS:
                    raise failures.too_many(self._pattern, MOST_PATHS)
        return found

    def _listed(self, parts: _Parts, name: name_patterns.Wildcard, *, is_named: bool, is_last: bool) -> list[_Entry]:
        """Return the matching entries of a folder; if the path continues below them, only those that may be folders."""
        found: list[_Entry] = []
        with Descent(self._root, "/".join(parts)) as descent:
            try:
                descent.enter(parts)
                for entry in self._fitting(descent, parts, name):
                    if entry.is_link or entry.is_folder or (is_last and not self._only_folders):
                        found.append(entry)
                    if len(found) > MOST_PATHS:
                        raise failures.too_many(self._pattern, MOST_PATHS)
            except (errors.ToolFailed, OSError) as error:
                self._let_pass(parts, error, is_named=is_named)
        return found

    def _fitting(self, descent: Descent, parts: _Parts, wanted: name_patterns.Wildcard) -> Iterator[_Entry]:
        with os.scandir(descent.folder) as entries:
            for entry in entries:
                if not wanted.fits(entry.name):
                    continue
                if not environment_values.is_text(entry.name):
                    if self._left_out is not None:
                        shown = "/".join((*parts, os.fsencode(entry.name).decode("utf-8", "backslashreplace")))
                        self._left_out.append(f"'{shown}' cannot be used: its name is not UTF-8; rename it")
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if not descent.hides(entry.name, is_folder=is_folder):
                    yield _Entry(entry.name, entry.is_symlink(), is_folder)

    def _leads(self, parts: _Parts, *, is_named: bool) -> bool:
        with Descent(self._root, "/".join(parts)) as descent:
            try:
                mode = descent.status(parts).st_mode
            except errors.ToolFailed as failure:
                self._let_pass(parts, failure, is_named=is_named)
                return False
        return stat.S_ISDIR(mode) or not self._only_folders

    def _let_pass(self, parts: _Parts, error: errors.ToolFailed | OSError, *, is_named: bool) -> None:
        """Ignore a path that does not exist, and an unreadable folder that only a wildcard matches."""
        failure = error if isinstance(error, errors.ToolFailed) else failures.of_system("/".join(parts), error)
        if isinstance(failure, errors.Fault):
            raise failure
        if failure.code == "file_not_found":
            return
        if failure.code == "path_outside_workspace" and self._left_out is not None and not is_named:
            self._left_out.append(failure.message)
            return
        if is_named or failure.code != "file_unreadable" or failure.detail.get("errno") in _FAILING:
            raise failure


_FAILING = ("EIO", "ESTALE", "ETIMEDOUT")


def _names(pattern: str) -> Sequence[str | name_patterns.Wildcard]:
    if not pattern.strip():
        raise failures.invalid_pattern(pattern, "it is blank")
    if "**" in pattern.split("/"):
        raise failures.invalid_pattern(pattern, "** is not supported")
    if not environment_values.is_text(pattern):
        raise failures.invalid_pattern(pattern, "it holds half a surrogate pair")
    names: list[str | name_patterns.Wildcard] = []
    for part in components(pattern):
        try:
            name = name_patterns.parse(part)
        except ValueError as error:
            raise failures.invalid_pattern(pattern, str(error)) from None
        # Without its backslashes, a name may be a forbidden one.
        names += components(f"./{name}") if isinstance(name, str) else [name]
    return names
