"""The part that small languages of tests share: recipes that are JSON, and in which nothing is wrong."""

from __future__ import annotations

import json
from typing import Any

from app import errors
from app.domain import library as libraries
from app.domain import plain


class JsonDialect:
    """A language to inherit from; a subclass has a name and a `drive`."""

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
        """Find nothing."""
        return []

    def flaws(self, source: str, stem: str, library: libraries.Library) -> list[errors.Flaw]:
        """Find nothing."""
        return []

    def freeze(self, recipe: libraries.Recipe, library: libraries.Library) -> dict[str, plain.Json]:
        """Freeze nothing beside the recipe."""
        return {}

    def json_schema(self) -> dict[str, plain.Json]:
        """Take anything."""
        return {}
