"""Modules and data that a process loads before it forks, so that its children need not load them:
imported only there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import app
from app import clock, resources
from app.api import routes
from app.bootstrap import catalogue
from app.dialects import registry
from app.services import recipe_files

_LATE = (
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "jsonschema_specifications",
    "sqlalchemy.dialects.sqlite",
    "sqlite3",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "yaml",
)
"""Modules that the libraries and the program load only when they need them."""

_LEFT_OUT = ("__main__", "app.agents.local_model", "app.cli.top", "app.crash_lab", "app.temporal")
"""Modules that execute when imported, or that load what only few processes need."""


def _prepare() -> None:
    for name in [*_LATE, *_modules(app.__path__, "app.")]:
        importlib.import_module(name)
    routes.create()
    folder = resources.bundled("recipes")
    bundled, _ = catalogue.recipe_layers(folder, folder, registry.DIALECTS)
    recipe_files.RecipeFiles(bundled, registry.DIALECTS, clock.SystemClock()).read()


def _modules(folders: list[str], prefix: str) -> Iterator[str]:
    """Yield the program's modules, since it loads most of them only when a command needs them."""
    for module in pkgutil.iter_modules(folders, prefix):
        if module.name in _LEFT_OUT or module.name.endswith("__main__"):
            continue
        yield module.name
        if module.ispkg:
            yield from _modules(list(importlib.import_module(module.name).__path__), f"{module.name}.")


_prepare()
