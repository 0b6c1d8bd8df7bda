"""What a process has loaded and read before it forks lives, so that none of them does so again:
imported there alone.
"""

from __future__ import annotations

import importlib

from app import clock, resources
from app.dialects import registry
from app.services import recipe_files, recipes

_LATE = (
    "alembic.command",
    "alembic.config",
    "jsonschema_specifications",
    "sqlite3",
    "sqlalchemy.dialects.sqlite",
    "yaml",
)
"""What the program itself loads only once it is needed."""


def _prepare() -> None:
    for name in _LATE:
        importlib.import_module(name)
    folder = resources.bundled("recipes")
    bundled, _ = recipes.layers(folder, folder, registry.DIALECTS)
    recipe_files.RecipeFiles(bundled, registry.DIALECTS, clock.SystemClock()).read()


_prepare()
