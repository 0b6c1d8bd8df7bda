"""
The catalogue: every recipe of the bundled and the project layer, whole or broken, as the files stand now.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from app import errors
from app.control.entries import Entry, Examined
from app.control.recipe_files import Folder, Layer, RecipeFile, RecipeFiles, parsed
from app.engine import library, plain, ports

PROJECT_DIALECT = "control_room"
"""Dialect of the recipes that lie directly in a project's `recipes/`."""

_NEAREST = 3
_RESEMBLANCE = 0.5
_Checked: TypeAlias = tuple[library.Recipe, library.Library, tuple[errors.Flaw, ...]]


class Catalogue:
    """
    All recipes that can be named.
    """

    def __init__(
        self,
        *,
        layers: Sequence[Layer],
        dialects: Mapping[str, ports.Dialect],
        library: Callable[[], library.Library],
    ) -> None:
        self._layers = [RecipeFiles(layer, dialects) for layer in layers]
        self._dialects = dialects
        self._library = library
        self._checked: dict[str, _Checked] = {}

    def all(self) -> list[Entry]:
        """
        Return every recipe that no later layer shadows, by id; broken files too.
        """
        shelf = self._library()
        entries: dict[str, list[Entry]] = {}
        for files in self._layers:
            for recipe_id, group in _grouped(files.read()).items():
                shadows = tuple(dict.fromkeys(entry.layer for entry in entries.get(recipe_id, ())))
                shown = [_entry(file, files.layer, shadows) for file in group]
                entries[recipe_id] = [
                    self._judged(entry, file, group, shelf) for entry, file in zip(shown, group, strict=True)
                ]
        return [entry for recipe_id in sorted(entries) for entry in entries[recipe_id]]

    def find(self, recipe_id: str) -> Entry:
        """
        Return a recipe's entry; where files collide, the first of them.

        Raises:
            errors.UnknownRecipe: with the nearest ids in `detail.nearest`.
        """
        entries = self.all()
        named = [entry for entry in entries if entry.recipe_id == recipe_id]
        if not named:
            raise _unknown(recipe_id, [entry.recipe_id for entry in entries])
        return next((entry for entry in named if entry.recipe is not None), named[0])

    def get(self, recipe_id: str) -> library.Recipe:
        """
        Return a recipe that can be started.

        Raises:
            errors.UnknownRecipe: there is none of that id.
            errors.RecipeInvalid: it is broken; its flaws are told.
        """
        entry = self.find(recipe_id)
        if entry.recipe is None or entry.flaws:
            raise errors.RecipeInvalid(
                f"recipe {recipe_id} in {entry.path} cannot be started: {entry.flaws[0].message}",
                flaws=entry.flaws,
                detail={"path": entry.path},
            )
        return entry.recipe

    def recipes(self) -> list[library.Recipe]:
        """
        Return the recipes that can be parsed, for the router.
        """
        return [entry.recipe for entry in self.all() if entry.recipe is not None]

    def describe(self, recipe_id: str) -> dict[str, plain.Json]:
        """
        Return everything about a recipe: its entry, the schema of its arguments, its document and its graph.

        Raises:
            errors.NotFound: there is none of that id.
        """
        try:
            entry = self.find(recipe_id)
        except errors.UnknownRecipe as error:
            raise errors.NotFound(error.message, code="recipe_not_found", detail=error.detail) from error
        recipe = entry.recipe
        return entry.to_json() | {
            "args_schema": plain.plain(recipe.args_schema) if recipe else None,
            "document": plain.plain(recipe.document) if recipe else None,
            "graph": self.dialect(entry.dialect).graph(recipe) if recipe else None,
        }

    def examine(self, source: str, dialect: str, stem: str = "recipe") -> Examined:
        """
        Look at a recipe's text without keeping it.

        Raises:
            errors.RequestInvalid: `unknown_dialect`.
        """
        recipe, flaws = parsed(self.dialect(dialect), source, stem)
        shelf = self._library()
        return Examined(
            recipe=recipe,
            flaws=self._unsound(dialect, source, stem, shelf) or flaws
            if recipe is None
            else self._unfit(recipe, shelf),
        )

    def dialect(self, name: str) -> ports.Dialect:
        """
        Return a dialect.

        Raises:
            errors.RequestInvalid: `unknown_dialect`.
        """
        if name not in self._dialects:
            known = sorted(self._dialects)
            raise errors.RequestInvalid(
                f"there is no dialect {name!r:.80}; there are {', '.join(known)}",
                code="unknown_dialect",
                detail={"dialects": known},
            )
        return self._dialects[name]

    def _judged(self, entry: Entry, file: RecipeFile, group: list[RecipeFile], shelf: library.Library) -> Entry:
        if file.recipe is None:
            flaws = self._unsound(file.dialect, file.source, file.path.stem, shelf) if file.source else ()
            return dataclasses.replace(entry, flaws=flaws or file.flaws)
        flaws = (*_collisions(file, group), *self._check(entry.path, file.recipe, shelf))
        return dataclasses.replace(entry, flaws=flaws)

    def _check(self, path: str, recipe: library.Recipe, shelf: library.Library) -> tuple[errors.Flaw, ...]:
        known = self._checked.get(path)
        if known is None or known[0] is not recipe or known[1] is not shelf:
            known = self._checked[path] = (recipe, shelf, self._unfit(recipe, shelf))
        return known[2]

    def _unsound(self, dialect: str, source: str, stem: str, shelf: library.Library) -> tuple[errors.Flaw, ...]:
        return tuple(self._dialects[dialect].flaws(source, stem, shelf))

    def _unfit(self, recipe: library.Recipe, shelf: library.Library) -> tuple[errors.Flaw, ...]:
        return tuple(self._dialects[recipe.dialect].check(recipe, shelf))


def layers(bundled: Path, data_directory: Path, dialects: Iterable[str]) -> tuple[Layer, Layer]:
    """
    Return the two layers of a project, the bundled one first.

    Args:
        bundled: Folder of the bundled recipes, with one folder per dialect.
        data_directory: `.control-room` of the project.
    """
    names = tuple(dialects)
    own = data_directory / "recipes"
    return (
        Layer(name="bundled", folders=_by_dialect(bundled, names)),
        Layer(name="project", folders=(Folder(dialect=PROJECT_DIALECT, path=own), *_by_dialect(own, names))),
    )


def _by_dialect(root: Path, dialects: Iterable[str]) -> tuple[Folder, ...]:
    return tuple(Folder(dialect=name, path=root / name) for name in dialects)


def _entry(file: RecipeFile, layer: Layer, shadows: tuple[str, ...]) -> Entry:
    return Entry(
        recipe_id=file.recipe_id,
        dialect=file.dialect,
        layer=layer.name,
        path=str(file.path),
        recipe=file.recipe,
        shadows=shadows,
    )


def _grouped(files: Iterable[RecipeFile]) -> dict[str, list[RecipeFile]]:
    groups: dict[str, list[RecipeFile]] = {}
    for file in files:
        groups.setdefault(file.recipe_id, []).append(file)
    return groups


def _collisions(file: RecipeFile, group: list[RecipeFile]) -> list[errors.Flaw]:
    others = [str(other.path) for other in group if other.recipe is not None and other is not file]
    if not others:
        return []
    message = f"recipe id {file.recipe_id} is also claimed by {', '.join(others)}"
    return [errors.Flaw(path="$.recipe_id", code="duplicate_recipe_id", message=message)]


def _unknown(recipe_id: str, known: list[str]) -> errors.UnknownRecipe:
    nearest = difflib.get_close_matches(recipe_id, sorted(set(known)), _NEAREST, _RESEMBLANCE)
    hint = f"; the nearest are {', '.join(nearest)}" if nearest else ""
    return errors.UnknownRecipe(
        f"there is no recipe {recipe_id!r:.80}{hint}",
        detail={"recipe_id": recipe_id[:80], "nearest": nearest},
        flaws=[errors.Flaw(path="$.recipe_id", code="unknown_recipe", message=f"no recipe has this id{hint}")],
    )
