"""Entries: recipes as lists and callers are shown them, whole or broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import errors
from app.domain import library, plain, shapes
from app.services.recipe_versions import RecipeVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A recipe as lists show it."""

    recipe_id: str
    """Id; of a broken file the one that it seems to claim."""
    dialect: str
    """Language."""
    layer: str
    """`bundled` or `project`."""
    path: str
    """File it stands in."""
    recipe: library.Recipe | None
    """The recipe; None where the file cannot be parsed."""
    flaws: tuple[errors.Flaw, ...] = ()
    """What keeps it from being started."""
    shadows: tuple[str, ...] = ()
    """Layers that have a recipe of the same id, hidden by this one."""

    @property
    def usable(self) -> bool:
        """Tell whether it can be started."""
        return self.recipe is not None and not self.flaws

    def listed(self, lacks: Sequence[errors.Flaw]) -> RecipeListed:
        """Return the recipe as lists show it.

        Args:
            lacks: Backends and programs that a run would need and that cannot be used here.
        """
        recipe = self.recipe
        return RecipeListed(
            recipe_id=self.recipe_id,
            label=recipe.label if recipe else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeListed(shapes.Shape):
    """A recipe as lists show it; an invalid one with its flaws."""

    recipe_id: str
    """Id of the recipe."""
    label: str | None
    """Name for people."""
    dialect: str
    """Language of the recipe."""
    layer: str
    """`bundled` or `project`."""
    path: str
    """Its file."""
    shadows: tuple[str, ...]
    """Layers whose recipe of the same id this one hides."""
    task_patterns: tuple[str, ...]
    """Phrases and `/expressions/` that route a task to it."""
    total_steps: int | None
    """Number of its steps; None if its flow can loop."""
    valid: bool
    """Whether it has no flaws."""
    flaws: tuple[errors.Flaw, ...]
    """Everything wrong with it."""
    ready: bool
    """Whether it is valid and every backend that a run could need can be used here."""
    lacks: tuple[errors.Flaw, ...]
    """Backends and programs that a run would need and that cannot be used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDetail(RecipeListed):
    """Everything about a recipe."""

    args_schema: Mapping[str, plain.Json] | None
    """JSON Schema of its arguments."""
    document: Mapping[str, plain.Json] | None
    """The recipe itself."""
    graph: Mapping[str, plain.Json] | None
    """Its flow, as `nodes` and `edges`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined(shapes.Shape):
    """Result of the validation of a recipe."""

    valid: bool
    """Whether it has no flaws."""
    recipe_id: str | None
    """Its id; None if it cannot be parsed."""
    flaws: tuple[errors.Flaw, ...]
    """Everything wrong with it."""
    ready: bool
    """Whether it is valid and every backend that a run could need can be used here."""
    lacks: tuple[errors.Flaw, ...]
    """Backends and programs that a run would need and that cannot be used here."""
    args_schema: Mapping[str, plain.Json] | None
    """JSON Schema of its arguments."""
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
