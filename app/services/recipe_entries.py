"""Entries: recipes as lists and callers are shown them, whole or broken."""

from __future__ import annotations

from dataclasses import dataclass

from app import errors
from app.domain import library, plain
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

    def to_json(self) -> dict[str, plain.Json]:
        """Return the entry as plain JSON."""
        recipe = self.recipe
        return {
            "recipe_id": self.recipe_id,
            "label": recipe.label if recipe else None,
            "dialect": self.dialect,
            "layer": self.layer,
            "path": self.path,
            "shadows": list(self.shadows),
            "task_patterns": list(recipe.task_patterns) if recipe else [],
            "total_steps": recipe.total_steps if recipe else None,
            "valid": self.usable,
            "flaws": [flaw.to_json() for flaw in self.flaws],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of looking at a recipe's text."""

    recipe_version: RecipeVersion | None
    """The recipe, ready to be started; None where it cannot be parsed."""
    flaws: tuple[errors.Flaw, ...]
    """Everything wrong with it."""
    lacks: tuple[errors.Flaw, ...] = ()
    """Backends and programs that a run would need and that cannot work here."""

    def to_json(self) -> dict[str, plain.Json]:
        """Return the finding as plain JSON."""
        recipe = self.recipe_version.recipe if self.recipe_version else None
        return {
            "valid": recipe is not None and not self.flaws,
            "recipe_id": recipe.recipe_id if recipe else None,
            "flaws": [flaw.to_json() for flaw in self.flaws],
            "ready": recipe is not None and not self.flaws and not self.lacks,
            "lacks": [lack.to_json() for lack in self.lacks],
            "args_schema": plain.plain(recipe.args_schema) if recipe else None,
        }
