"""The catalogue: all recipes of the bundled and the project layer, valid or not, from their present files."""

# A broken file of the project still shadows the bundled recipe with its id: using the bundled one would hide that the
# edited recipe does not run. An exception in a dialect's code becomes the flaw `dialect_fault` of that recipe alone.
# Files are read on a thread (`refresh`), since a large recipe takes seconds.

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app import clock, errors
from app.domain import graphs, library, plain
from app.engine import ports
from app.services import folder_listings, recipe_files, run_graphs
from app.services.recipe_files import Layer, RecipeFile, RecipeFiles, folders, parsed
from app.services.recipe_versions import Entry, Examined, Readiness, RecipeDetail, RecipeListed, RecipeVersion

PROJECT_DIALECT = "control_room"  # Dialect of the recipes directly in a project's `recipes/`.
BUNDLED = "bundled"  # Layer of the recipes that are bundled with the program.

FILE_MOMENT_SECONDS = 50e-6
"""Time for which a check of the files is valid for starts, per recipe, so that checks take only a fraction of it."""

_NEAREST = 3
_SHOWN_CHARACTERS = 80
_RESEMBLANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    files: Sequence[Sequence[RecipeFile]]
    definition_cache: library.Library
    entries: Mapping[str, Sequence[Entry]]

    def holds(self, files: Sequence[Sequence[RecipeFile]], definition_cache: library.Library) -> bool:
        return definition_cache is self.definition_cache and all(
            now is then for now, then in zip(files, self.files, strict=True)
        )


class Catalogue:
    """All recipes that can be named.

    Args:
        library: Returns everything that recipes can refer to, and may have to read it first.
        is_current: Returns whether a library that it returned is still valid, without reading files.
        watched: Returns the files of that library; None: only `is_current` can check it.
    """

    def __init__(
        self,
        *,
        layers: Sequence[Layer],
        dialects: Mapping[str, ports.Dialect],
        library: Callable[[], library.Library],
        readiness: Readiness,
        clock: clock.Clock,
        is_current: Callable[[library.Library], bool] | None = None,
        watched: Callable[[], Iterable[folder_listings.Watched]] | None = None,
    ) -> None:
        self._layers = [
            RecipeFiles(layer, dialects, clock, below=tuple(reversed(layers[:number])), adapted=readiness.adapted)
            for number, layer in enumerate(layers)
        ]
        self._sharing = tuple(reversed(layers))
        self._dialects = dialects
        self._library = library
        self._is_current = is_current or (lambda known: self._library() is known)
        self.readiness = readiness
        """Finds missing backends."""
        self._recipe_versions: dict[str, RecipeVersion] = {}
        self._listing: _Listing | None = None
        self._reading = threading.RLock()
        self._refreshing = asyncio.Lock()
        self._clock = clock
        self._fresh_until = -math.inf
        self._watched = watched
        self._seen: tuple[folder_listings.Watched, ...] = ()
        self._moment_seconds = 0.0

    async def refresh(self) -> None:
        """Read changed files on a thread, so that the next reader on the event loop need not."""
        # Checked twice: another request may have read the files while this one waited for the lock.
        if self._is_fresh():
            return
        async with self._refreshing:
            if self._is_fresh():
                return
            now = self._clock.monotonic()
            if not ((self._seen and _stand(self._seen, now)) or self._stands()):
                self._seen = ()
                await asyncio.to_thread(self._entries)
                self._moment_seconds = FILE_MOMENT_SECONDS * (1 + sum(layer.changing for layer in self._layers))
            self._fresh_until = self._clock.monotonic() + self._moment_seconds

    def all(self) -> list[Entry]:
        """Return every recipe that no later layer shadows, by id, including broken ones."""
        return [entry for group in self._entries().values() for entry in group]

    def find(self, recipe_id: str) -> Entry:
        """Return a recipe's entry; if files collide, the first of them.

        Raises:
            errors.UnknownRecipe: `detail.nearest` contains the nearest ids.
        """
        entries = self._entries()
        if recipe_id not in entries:
            raise _unknown(recipe_id, list(entries))
        return _first(entries[recipe_id])

    def get(self, recipe_id: str) -> RecipeVersion:
        """Return the present version of a startable recipe; the same object until a file changes.

        Raises:
            errors.UnknownRecipe: no recipe has that id.
            errors.RecipeInvalid: it is broken; the error contains its flaws.
            errors.Unreadable: its file cannot be read now.
        """
        entry = self._fresh_entry(recipe_id) or self.find(recipe_id)
        if not entry.usable:
            first = entry.flaws[0]
            if unread := next((flaw for flaw in entry.flaws if flaw.code == folder_listings.UNREADABLE), None):
                message = f"recipe {recipe_id} cannot be started now: {entry.path}: {unread.message}"
                detail = {"run_id": None, "file": entry.path, "path": entry.path, "retry_after_seconds": 1}
                raise errors.Unreadable(message, detail=detail)
            raise errors.RecipeInvalid(
                f"recipe {recipe_id} in {entry.path} cannot be started: {first.path}: {first.message}",
                flaws=entry.flaws,
                detail={"path": entry.path},
            )
        return self._recipe_versions[entry.path]

    def _fresh_entry(self, recipe_id: str) -> Entry | None:
        # A refusal needs a check of its own.
        named = self._listing.entries.get(recipe_id) if self._listing is not None and self._is_fresh() else None
        entry = _first(named) if named else None
        return entry if entry is not None and entry.usable else None

    def adapted(self, recipe: library.Recipe) -> library.Recipe:
        """Return a recipe without a file, adapted to this project."""
        return self.readiness.adapted(recipe)

    def listed(self) -> list[dict[str, plain.Json]]:
        """Return every recipe in the form of lists, with the backends and programs that a run of it would lack here."""
        return [self._shown(entry).to_json() for entry in self.all()]

    def refuse_unready(self, recipe_version: RecipeVersion, args: Mapping[str, plain.Json]) -> None:
        """Refuse a run that is known to lack a backend, a program or a recipe.

        Args:
            args: The run's arguments, completed with defaults.

        Raises:
            errors.NotReady: names every unusable backend, program and recipe.
        """
        flaws = self.readiness.lacks(recipe_version, args, self.get)
        if flaws:
            message = f"recipe {recipe_version.recipe.recipe_id} cannot run here: {flaws[0].message}"
            raise errors.NotReady(message, flaws=flaws)

    def recipes(self) -> list[library.Recipe]:
        """Return the recipes that can be parsed, for the router."""
        return [entry.recipe for entry in self.all() if entry.recipe is not None]

    def describe(self, recipe_id: str) -> dict[str, plain.Json]:
        """Return all facts about a recipe: its entry, the schema of its arguments, its document and its graph.

        Raises:
            errors.NotFound: no recipe has that id.
        """
        entry = self._described(recipe_id)
        recipe, listed = entry.recipe, self._shown(entry)
        return RecipeDetail(
            **{name: getattr(listed, name) for name in listed.__slots__},
            args_schema=recipe.args_schema if recipe else None,
            document=recipe.document if recipe else None,
            graph=self._graph(entry),
        ).to_json()

    def graph(self, recipe_id: str) -> graphs.Graph:
        """Return the graph of a recipe.

        Raises:
            errors.NotFound: no recipe has that id.
            errors.RecipeInvalid: it cannot be parsed.
        """
        entry = self._described(recipe_id)
        found = self._graph(entry)
        if found is None:
            message = f"recipe {recipe_id} in {entry.path} cannot be parsed, so it has no graph"
            raise errors.RecipeInvalid(message, flaws=entry.flaws, detail={"path": entry.path})
        return found

    def examine(self, source: str, dialect: str, stem: str = "recipe") -> Examined:
        """Check a recipe's text without storing it.

        Raises:
            errors.RequestInvalid: `unknown_dialect`.
        """
        shared = recipe_files.Shared(folders(dialect, self._sharing))
        composed = recipe_files.compose(self.dialect(dialect), source, shared, stem)
        recipe, flaws = parsed(self.dialect(dialect), composed, stem)
        definition_cache = self._stocked()
        if recipe is None:
            return Examined.of(None, self._unsound(dialect, composed, stem, definition_cache) or flaws)
        recipe_version = RecipeVersion(self.readiness.adapted(recipe), definition_cache, self._dialects[recipe.dialect])
        lacks = self.readiness.lacks(recipe_version, {}, self.get)
        return Examined.of(recipe_version, composed.located(recipe_version.flaws), lacks)

    def dialect(self, name: str) -> ports.Dialect:
        """Return a dialect.

        Raises:
            errors.RequestInvalid: `unknown_dialect`.
        """
        if name not in self._dialects:
            known = sorted(self._dialects)
            message, code = f"unknown dialect {name!r:.80}; dialects: {', '.join(known)}", "unknown_dialect"
            flaw = errors.Flaw(path="$.dialect", code=code, message=message)
            raise errors.RequestInvalid(message, code=code, flaws=[flaw], detail={"dialects": known})
        return self._dialects[name]

    def _described(self, recipe_id: str) -> Entry:
        try:
            return self.find(recipe_id)
        except errors.UnknownRecipe as error:
            raise errors.NotFound(error.message, code="recipe_not_found", detail=error.detail) from error

    def _graph(self, entry: Entry) -> graphs.Graph | None:
        recipe_version = self._recipe_versions[entry.path] if entry.usable else None
        return run_graphs.of_recipe(entry.recipe, self.dialect(entry.dialect), recipe_version)

    def _shown(self, entry: Entry) -> RecipeListed:
        if not entry.usable:
            return entry.listed(())
        return entry.listed(self.readiness.lacks(self._recipe_versions[entry.path], {}, self.get))

    def _stocked(self) -> library.Library:
        recipes = {entry.recipe_id: entry.recipe for entry in self.all() if entry.recipe is not None}
        return dataclasses.replace(self._library(), recipes=recipes)

    def _entries(self) -> Mapping[str, Sequence[Entry]]:
        with self._reading:
            files, definition_cache = [layer.read() for layer in self._layers], self._library()
            if self._listing is None or not self._listing.holds(files, definition_cache):
                self._listing = _Listing(
                    files=files, definition_cache=definition_cache, entries=self._listed(files, definition_cache)
                )
            return self._listing.entries

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() < self._fresh_until

    def _stands(self) -> bool:
        # A reading thread holds the lock until it has finished; the event loop must not wait for it here.
        if not self._reading.acquire(blocking=False):
            return False
        try:
            listed = self._listing
            if listed is None or not self._is_current(listed.definition_cache):
                return False
            if not all(layer.is_current for layer in self._layers):
                return False
            if self._watched is not None:
                self._seen = (*self._watched(), *(seen for layer in self._layers for seen in layer.watched()))
            return True
        finally:
            self._reading.release()

    def _listed(
        self, files: Sequence[Sequence[RecipeFile]], definition_cache: library.Library
    ) -> Mapping[str, Sequence[Entry]]:
        stocked = dataclasses.replace(definition_cache, recipes=_by_id(files))
        self._recipe_versions = self._renewed(files, definition_cache, stocked)
        entries: dict[str, list[Entry]] = {}
        for layer, read in zip(self._layers, files, strict=True):
            for recipe_id, group in recipe_files.grouped(read).items():
                shadows = tuple(dict.fromkeys(entry.layer for entry in entries.get(recipe_id, ())))
                shown = [_entry(file, layer.layer, shadows) for file in group]
                # Recipes are checked together with all others, since one may call another.
                entries[recipe_id] = [
                    self._judged(entry, file, group, stocked) for entry, file in zip(shown, group, strict=True)
                ]
        return dict(sorted(entries.items()))

    def _renewed(
        self, files: Sequence[Sequence[RecipeFile]], definition_cache: library.Library, stocked: library.Library
    ) -> dict[str, RecipeVersion]:
        # Only a recipe that leads to others must be made again when one of these may have changed.
        found = [(str(file.path), file.recipe) for read in files for file in read if file.recipe is not None]
        return {
            path: self._renewed_recipe_version(
                self._recipe_versions.get(path), recipe, stocked if recipe.leads_to else definition_cache
            )
            for path, recipe in found
        }

    def _renewed_recipe_version(
        self, known: RecipeVersion | None, recipe: library.Recipe, definition_cache: library.Library
    ) -> RecipeVersion:
        if known is not None and known.recipe is recipe and known.definition_cache is definition_cache:
            return known
        return RecipeVersion(recipe, definition_cache, self._dialects[recipe.dialect])

    def _judged(
        self, entry: Entry, file: RecipeFile, group: list[RecipeFile], definition_cache: library.Library
    ) -> Entry:
        if file.recipe is None:
            found = self._unsound(file.dialect, file.composed, file.path.stem, definition_cache)
            return dataclasses.replace(entry, flaws=found or file.flaws)
        recipe_version = self._recipe_versions[entry.path]
        found = (*recipe_files.collisions(file, group), *file.composed.located(recipe_version.flaws))
        judged = dataclasses.replace(entry, flaws=found)
        if not (judged.usable and file.is_long):
            return judged
        try:
            recipe_version.prepare()
        except errors.RecipeInvalid as error:
            return dataclasses.replace(judged, flaws=error.flaws)
        return judged

    def _unsound(
        self, dialect: str, composed: ports.Composition, stem: str, definition_cache: library.Library
    ) -> tuple[errors.Flaw, ...]:
        if not composed.source:
            return composed.flaws
        try:
            with recipe_files.confine_errors(stem, dialect):
                found: Iterable[errors.Flaw] = self._dialects[dialect].flaws(composed.source, stem, definition_cache)
        except errors.InputRefused as error:
            found = error.flaws
        return recipe_files.all_flaws(composed.flaws, composed.located(found))


def _entry(file: RecipeFile, layer: Layer, shadows: tuple[str, ...]) -> Entry:
    return Entry(
        recipe_id=file.recipe_id,
        dialect=file.dialect,
        layer=layer.name,
        path=str(file.path),
        recipe=file.recipe,
        shadows=shadows,
    )


def _by_id(files: Sequence[Sequence[RecipeFile]]) -> dict[str, library.Recipe]:
    return {file.recipe_id: file.recipe for read in files for file in read if file.recipe is not None}


def _first(named: Sequence[Entry]) -> Entry:
    return next((entry for entry in named if entry.recipe is not None), named[0])


def _unknown(recipe_id: str, known: list[str]) -> errors.UnknownRecipe:
    nearest = difflib.get_close_matches(recipe_id[:_SHOWN_CHARACTERS], sorted(set(known)), _NEAREST, _RESEMBLANCE)
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    if "/" in recipe_id or recipe_id.endswith((".json", ".yaml", ".yml")):
        hint = "; give the id of a recipe, not its file"
    if " " in recipe_id[:_SHOWN_CHARACTERS]:
        hint += "; to find the recipe for a description, use the router (control-room route, POST /api/route)"
    return errors.UnknownRecipe(
        f"there is no recipe {recipe_id!r:.80}{hint}",
        detail={"recipe_id": recipe_id[:80], "nearest": nearest},
        flaws=[errors.Flaw(path="$.recipe_id", code="unknown_recipe", message=f"no recipe has this id{hint}")],
    )


def _stand(seen: Sequence[folder_listings.Watched], now: float) -> bool:
    """Return whether all watched files are unchanged; also False if only another read can decide that."""
    for path, mark, until in seen:
        if now >= until:
            return False
        try:
            found = os.stat(path)
        except OSError as error:
            if mark.fault != (error.errno or -1):
                return False
            continue
        if mark != (0, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode):
            return False
    return True
