"""References: which recipe a step means, by its id or by its file relative to the recipe that runs it."""

from __future__ import annotations

import posixpath

from app.dialects.amplifier import walk
from app.domain import library

_SUFFIXES = (".yaml", ".yml")


def is_file(name: str) -> bool:
    """Tell whether a recipe is named by its file."""
    return "/" in name or name.endswith(_SUFFIXES)


def target(name: str, recipe: library.Recipe, registry: library.Library) -> library.Recipe | None:
    """Return the recipe that a step means, or None.

    A recipe without a file of its own is taken to be in the folder of whatever recipe has such a file.
    """
    if not is_file(name):
        return recipe if name == recipe.recipe_id else registry.recipes.get(name)
    if recipe.path:
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(recipe.path), name))
        fitting = [one for one in registry.recipes.values() if one.path == wanted]
    else:
        ending = "/" + posixpath.normpath(name).lstrip("./")
        fitting = [one for one in registry.recipes.values() if one.path.endswith(ending)]
    return fitting[0] if len(fitting) == 1 else None


def files(recipe: library.Recipe, registry: library.Library) -> dict[str, str]:
    """Return the ids of the recipes that steps name by their files."""
    named = {step["recipe"] for _, step in walk.placed(recipe.document) if is_file(step.get("recipe", ""))}
    found = {name: target(name, recipe, registry) for name in sorted(named)}
    return {name: one.recipe_id for name, one in found.items() if one is not None}
