"""Readiness: whether everything that a recipe asks can be asked here, known before anything is paid for."""

# Conditions are not evaluated: a step that might run counts. A backend that worked is trusted for five seconds; a
# missing one is checked every time.

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from app import clock, errors
from app.domain import library, plain
from app.services.recipe_versions import RecipeVersion

TRUSTED_SECONDS = 5.0
"""Time for which a backend that worked is not looked at again; one that lacks something always is."""

Lack: TypeAlias = Callable[[str, bool], str | None]
"""Says what keeps a backend from working here; the second argument is whether a conversation continues."""

Find: TypeAlias = Callable[[str], RecipeVersion | None]
"""Returns another recipe of the project; None where there is none that can be started."""

_Asked: TypeAlias = library.BackendUse | library.ProgramUse


class Readiness:
    """Look for what a run would lack, through the recipes that it runs as well."""

    def __init__(
        self,
        *,
        backend_lack: Lack,
        program_lack: Callable[[str], str | None],
        default_backend: str | None,
        clock: clock.Clock,
    ) -> None:
        """Args:
        backend_lack: Looks at a backend.
        program_lack: Looks at a program that is called by its name.
        default_backend: Backend that the project's recipes ask where nothing names another one.
        """
        self._backend_lack = backend_lack
        self._program_lack = program_lack
        self._clock = clock
        self._default_backend = default_backend
        self._worked: dict[tuple[str, bool], float] = {}

    def adapted(self, recipe: library.Recipe) -> library.Recipe:
        """Return the recipe with the project's default backend in the schema of its arguments."""
        name, schema = recipe.speaks_through, recipe.args_schema
        if name is None or self._default_backend is None:
            return recipe
        properties: Mapping[str, Any] = schema.get("properties") or {}
        described = {**properties.get(name, {}), "default": self._default_backend}
        return dataclasses.replace(recipe, args_schema={**schema, "properties": {**properties, name: described}})

    def lacks(self, recipe_version: RecipeVersion, args: Mapping[str, plain.Json], find: Find) -> list[errors.Flaw]:
        """Return everything that is known to be missing, each backend and program once.

        Args:
            args: The run's arguments; the default backend counts where they name none.
        """
        name = recipe_version.recipe.speaks_through
        if name is not None and self._default_backend is not None:
            args = {name: self._default_backend, **args}
        found: dict[_Asked, tuple[str, int]] = {}
        for use, path in _reached(recipe_version, args, find):
            first, count = found.get(use, (path, 0))
            found[use] = first, count + 1
        told = ((self._lack(use), path, count) for use, (path, count) in found.items())
        line_of = recipe_version.recipe.line_of
        return [_flaw(lack, path, line_of(path), count) for lack, path, count in told if lack is not None]

    def _lack(self, use: _Asked) -> str | None:
        if isinstance(use, library.ProgramUse):
            return self._program_lack(use.program)
        lacks = [lack for name in use.backends if (lack := self._of_backend(name, use.continues)) is not None]
        return " ".join(lacks) if lacks and len(lacks) == len(use.backends) else None

    def _of_backend(self, name: str, continues: bool) -> str | None:
        now = self._clock.monotonic()
        if now - self._worked.get((name, continues), -TRUSTED_SECONDS) < TRUSTED_SECONDS:
            return None
        lack = self._backend_lack(name, continues)
        if lack is None:
            self._worked[name, continues] = now
        return lack


def program_lack(program: str) -> str | None:
    """Return what keeps a program from being called by its name; None where nothing does."""
    # A path may name a program that an earlier step makes.
    if "/" in program or shutil.which(program) is not None:
        return None
    return f"The program {program} is not installed: no folder of PATH contains it."


def _reached(recipe_version: RecipeVersion, args: Mapping[str, plain.Json], find: Find) -> Iterator[tuple[_Asked, str]]:
    """Return each use without its place, and the place, which names the recipe where it is another one."""
    waiting, seen = [(recipe_version, args, "")], {recipe_version.recipe.recipe_id}
    while waiting:
        at, given, through = waiting.pop()
        for use in at.uses(given):
            if not isinstance(use, library.ChildUse):
                yield dataclasses.replace(use, path=""), through or use.path
                continue
            child = find(use.recipe_id) if use.recipe_id not in seen else None
            if child is not None and child.recipe.speaks_through not in use.computed:
                seen.add(use.recipe_id)
                waiting.append((child, use.args, through or use.path))


def _flaw(lack: str, path: str, line: int | None, count: int) -> errors.Flaw:
    others = f" It is needed at {count} places." if count > 1 else ""
    return errors.Flaw(path=path, line=line, code=errors.NotReady.default_code, message=lack + others)
