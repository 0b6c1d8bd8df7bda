"""Recipe versions: a recipe with one content of its file, the data that all its runs share, and its readiness."""

# Every start checks the files of the project's recipes and prompts, so that an edit takes effect at once. Data that all
# runs of one version share is made once, which saves a quarter of the time for preparing a start.

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from app import clock, errors
from app.domain import graphs, library, plain, shapes
from app.engine import ports
from app.services import arguments, recipe_files

if TYPE_CHECKING:
    from app.services.story_args import Question


_MOST_DESCRIPTION = 2000


class RecipeVersion:
    """A recipe with the tools, agents and prompts of the project."""

    def __init__(self, recipe: library.Recipe, definition_cache: library.Library, dialect: ports.Driver) -> None:
        self.recipe = recipe
        """The recipe."""
        self.definition_cache = definition_cache
        """The library that it can refer to."""
        self._dialect = dialect

    @functools.cached_property
    def flaws(self) -> tuple[errors.Flaw, ...]:
        """Return every flaw that appears only together with the library."""
        try:
            with recipe_files.confine_errors(self.recipe.recipe_id, self.recipe.dialect):
                return tuple(self._dialect.check(self.recipe, self.definition_cache))
        except errors.InputRefused as error:
            return error.flaws

    def uses(self, args: Mapping[str, plain.Json]) -> tuple[library.Use, ...]:
        """Return the backends and programs that a run needs."""
        if self.recipe.speaks_through is not None:
            return self._uses(args)
        return self._same_uses

    def prepare(self) -> None:
        """Make the data that all its runs share now.

        Raises:
            errors.RecipeInvalid: `dialect_fault`.
        """
        with recipe_files.confine_errors(self.recipe.recipe_id, self.recipe.dialect):
            _ = self._encoded, self._validator

    def fit(
        self, args: Mapping[str, plain.Json], questions: Mapping[str, Question] | None = None
    ) -> dict[str, plain.Json]:
        """Return the arguments with the recipe's defaults filled in.

        Raises:
            errors.ArgsInvalid, errors.RecipeInvalid: as `arguments.fit`.
        """
        return arguments.fit(args, self.recipe, self._validator, questions) if args or questions else self._defaults()

    def _defaults(self) -> dict[str, plain.Json]:
        # Encoded once, so that each caller gets a copy of its own.
        made: dict[str, plain.Json] = json.loads(self._encoded_defaults)
        return made

    @functools.cached_property
    def _encoded_defaults(self) -> bytes:
        return plain.encode(arguments.fit({}, self.recipe, self._validator))

    def frozen(self) -> dict[str, plain.Json]:
        """Return the fields of a run's start that the recipe determines, as a new copy each time."""
        fields: dict[str, plain.Json] = json.loads(self._encoded)
        return fields

    @functools.cached_property
    def _same_uses(self) -> tuple[library.Use, ...]:
        return self._uses({})

    def _uses(self, args: Mapping[str, plain.Json]) -> tuple[library.Use, ...]:
        if not isinstance(self._dialect, ports.AskingDriver):
            return ()
        with recipe_files.confine_errors(self.recipe.recipe_id, self.recipe.dialect):
            return tuple(self._dialect.uses(self.recipe, self.definition_cache, args))

    @functools.cached_property
    def _validator(self) -> arguments.Validator:
        return arguments.validator(self.recipe)

    @functools.cached_property
    def _encoded(self) -> bytes:
        document = plain.plain(self.recipe.document)
        fields: dict[str, Any] = {
            "dialect": self.recipe.dialect,
            "driver_version": self._dialect.driver_version,
            "recipe": document,
            "recipe_sha256": plain.sha256(plain.canonical(document)),
            "frozen": plain.plain(self._dialect.freeze(self.recipe, self.definition_cache)),
        }
        return plain.encode(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A recipe in a list."""

    recipe_id: str  # Id; for a broken file, the id that it seems to claim.
    dialect: str  # Language.
    layer: str  # `bundled` or `project`.
    path: str  # Path of its file.
    recipe: library.Recipe | None  # The recipe; None if the file cannot be parsed.
    flaws: tuple[errors.Flaw, ...] = ()  # Flaws that prevent its start.
    shadows: tuple[str, ...] = ()  # Layers with a recipe of the same id, which this one hides.

    @property
    def usable(self) -> bool:
        """Return whether the recipe can be started."""
        return self.recipe is not None and not self.flaws

    def listed(self, lacks: Sequence[errors.Flaw]) -> RecipeListed:
        """Return the recipe in the form of lists.

        Args:
            lacks: Backends, programs and recipes that a run would need and that are unusable here.
        """
        recipe = self.recipe
        return RecipeListed(
            recipe_id=self.recipe_id,
            label=recipe.label if recipe else None,
            description=_description(recipe),
            dialect=self.dialect,
            layer=self.layer,
            path=self.path,
            shadows=self.shadows,
            task_patterns=recipe.task_patterns if recipe else (),
            total_steps=recipe.total_steps if recipe else None,
            valid=self.usable,
            flaws=self.flaws,
            ready=self.usable and not lacks,
            lacks=tuple(lacks),
        )


def _description(recipe: library.Recipe | None) -> str | None:
    description = recipe.document.get("description") if recipe else None
    return description.strip()[:_MOST_DESCRIPTION] or None if isinstance(description, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeListed(shapes.Shape):
    """A recipe in a list, with its flaws if it is invalid."""

    recipe_id: str  # Id of the recipe.
    label: str | None  # Name for people.
    description: str | None  # Description, from its file.
    dialect: str  # Language of the recipe.
    layer: str  # `bundled` or `project`.
    path: str  # Path of its file.
    shadows: tuple[str, ...]  # Layers whose recipe of the same id this one hides.
    task_patterns: tuple[str, ...]  # Phrases and `/expressions/` that route a task to it.
    total_steps: int | None  # Number of its steps; None if its flow can loop.
    valid: bool  # Whether it has no flaws.
    flaws: tuple[errors.Flaw, ...]  # All flaws.
    ready: bool  # Whether it is valid and every backend that a run could need is usable here.
    lacks: tuple[errors.Flaw, ...]
    """Backends, programs and recipes that a run would need and that are unusable here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDetail(RecipeListed):
    """All facts about a recipe."""

    args_schema: Mapping[str, plain.Json] | None  # JSON Schema of its arguments.
    document: Mapping[str, plain.Json] | None  # The recipe itself.
    graph: graphs.Graph | None  # Its flow; None if it cannot be parsed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined(shapes.Shape):
    """Result of the validation of a recipe."""

    valid: bool  # Whether the recipe has no flaws.
    recipe_id: str | None  # Id of the recipe; None if it cannot be parsed.
    flaws: tuple[errors.Flaw, ...]  # All flaws.
    ready: bool  # Whether it is valid and every backend that a run could need is usable here.
    lacks: tuple[errors.Flaw, ...]
    """Backends, programs and recipes that a run would need and that are unusable here."""
    args_schema: Mapping[str, plain.Json] | None  # JSON Schema of its arguments.
    recipe_version: RecipeVersion | None = shapes.internal()
    """The recipe, ready to be started; None if it cannot be parsed."""

    @classmethod
    def of(
        cls, version: RecipeVersion | None, flaws: Sequence[errors.Flaw], lacks: Sequence[errors.Flaw] = ()
    ) -> Examined:
        """Return the result for a recipe, or for a text that cannot be parsed."""
        recipe = version.recipe if version else None
        return cls(
            valid=recipe is not None and not flaws,
            recipe_id=recipe.recipe_id if recipe else None,
            flaws=tuple(flaws),
            ready=recipe is not None and not flaws and not lacks,
            lacks=tuple(lacks),
            args_schema=recipe.args_schema if recipe else None,
            recipe_version=version,
        )


TRUSTED_SECONDS = 5.0
"""Time for which a working backend is not checked again; a backend that lacks something is always checked."""

Lack: TypeAlias = Callable[[str, bool, str | None], str | None]
"""Returns what prevents a backend from working here; the other arguments are whether a conversation continues, and the
model if it is known."""

Find: TypeAlias = Callable[[str], RecipeVersion | None]
"""Returns another recipe of the project, or raises `RequestInvalid`; None if there are no others."""


@dataclass(frozen=True, slots=True)
class _Broken:
    why: str  # Why a recipe that a run starts cannot be started.


_Asked: TypeAlias = library.BackendUse | library.ProgramUse | _Broken


# Conditions are not evaluated: a step that might run counts. A working backend is trusted for five seconds; a missing
# one is checked every time.
class Readiness:
    """Finds what a run would lack, including the recipes that it runs.

    Args:
        backend_lack: Checks a backend.
        program_lack: Checks a program that is called by its name.
        default_backend: Backend that the project's recipes use unless they name another one.
    """

    def __init__(
        self,
        *,
        backend_lack: Lack,
        program_lack: Callable[[str], str | None],
        default_backend: str | None,
        clock: clock.Clock,
    ) -> None:
        self._backend_lack = backend_lack
        self._program_lack = program_lack
        self._clock = clock
        self._default_backend = default_backend
        self._worked: dict[tuple[str, bool, str | None], float] = {}

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
            args: The run's arguments; without a backend among them, the default backend is checked.
        """
        name = recipe_version.recipe.speaks_through
        if name is not None and self._default_backend is not None:
            args = {name: self._default_backend, **args}
        found: dict[_Asked, tuple[str, int]] = {}
        for use, path in _reached(recipe_version, args, find):
            first, count = found.get(use, (path, 0))
            found[use] = first, count + 1
        lacking = ((self._lack(use), path, count) for use, (path, count) in found.items())
        line_of = recipe_version.recipe.line_of
        return [_flaw(lack, path, line_of(path), count) for lack, path, count in lacking if lack is not None]

    def backend_fault(self, name: str, model: str | None) -> str | None:
        """Return why a backend cannot be used here, with a model if it is known; None if it can."""
        return self._of_backend(name, continues=False, model=model)

    def _lack(self, use: _Asked) -> str | None:
        if isinstance(use, _Broken):
            return use.why
        if isinstance(use, library.ProgramUse):
            return self._program_lack(use.program)
        found = [self._of_backend(name, use.continues, use.model) for name in use.backends]
        lacks = [lack for lack in found if lack is not None]
        return " ".join(lacks) if lacks and len(lacks) == len(use.backends) else None

    def _of_backend(self, name: str, continues: bool, model: str | None) -> str | None:
        now, asked = self._clock.monotonic(), (name, continues, model)
        if now - self._worked.get(asked, -TRUSTED_SECONDS) < TRUSTED_SECONDS:
            return None
        lack = self._backend_lack(*asked)
        if lack is None:
            self._worked[asked] = now
        return lack


def program_lack(program: str) -> str | None:
    """Return what prevents a program from being called by its name; None if it can be called."""
    # A path may name a program that an earlier step makes.
    if "/" in program or shutil.which(program) is not None:
        return None
    return f"The program {program} is not installed: no folder of PATH contains it."


def _reached(recipe_version: RecipeVersion, args: Mapping[str, plain.Json], find: Find) -> Iterator[tuple[_Asked, str]]:
    """Yield each use without its position, and the position of the use in the first recipe that leads to it."""
    # Recipes may call one another in a circle; each is visited once.
    waiting, seen = [(recipe_version, args, "")], {recipe_version.recipe.recipe_id}
    while waiting:
        at, given, through = waiting.pop()
        for use in at.uses(given):
            if not isinstance(use, library.ChildUse):
                yield dataclasses.replace(use, path=""), through or use.path
                continue
            if use.recipe_id in seen:
                continue
            try:
                child = find(use.recipe_id)
            except errors.RecipeInvalid as error:
                yield _Broken(error.message), through or use.path
                continue
            except errors.UnknownRecipe:
                child = None  # A flaw of the recipe itself.
            # The backend of a child that its parent computes is known only in the run.
            if child is not None and child.recipe.speaks_through not in use.computed:
                seen.add(use.recipe_id)
                waiting.append((child, use.args, through or use.path))


def _flaw(lack: str, path: str, line: int | None, count: int) -> errors.Flaw:
    others = f" It is needed at {count} places." if count > 1 else ""
    return errors.Flaw(path=path, line=line, code=errors.NotReady.default_code, message=lack + others)
