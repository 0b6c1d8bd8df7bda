"""The shared part of the small recipe languages of tests: recipes are JSON and have no flaws."""

from __future__ import annotations

import json
from typing import Any

from app import errors
from app.domain import library as libraries
from app.domain import plain


class JsonDialect:
    """A base class of recipe languages; a subclass has a name and a `drive`."""

    name: str
    driver_version: int = 1
    file_suffixes: tuple[str, ...] = (".json",)

    def parse(self, source: str, stem: str) -> libraries.Recipe:
        """Read a recipe, which may give its own id, label, arguments and patterns."""
        document: dict[str, Any] = json.loads(source)
        return libraries.Recipe(
            recipe_id=document.get("recipe_id", stem),
            dialect=self.name,
            label=document.get("label", stem),
            document=document,
            args_schema=document.get("args_schema", {"type": "object", "properties": {}}),
            task_patterns=tuple(document.get("task_patterns", ())),
        )

    def check(self, recipe: libraries.Recipe, library: libraries.Library) -> list[errors.Flaw]:
        """Return no flaws."""
        return []

    def flaws(self, source: str, stem: str, library: libraries.Library) -> list[errors.Flaw]:
        """Return no flaws."""
        return []

    def freeze(self, recipe: libraries.Recipe, library: libraries.Library) -> dict[str, plain.Json]:
        """Return no frozen data besides the recipe."""
        return {}

    def json_schema(self) -> dict[str, plain.Json]:
        """Return a schema that accepts every document."""
        return {}
