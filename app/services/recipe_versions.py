"""Editions: a recipe in one version of its file, and what all runs of it have in common, made once."""

# Every start checks the files of the project's recipes and prompts, so an edit takes effect at once; everything
# that runs of one version share is made once. That is a quarter of the time that preparing a start took.

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from app import errors
from app.domain import library, plain
from app.engine import ports
from app.services import arguments, recipe_texts
from app.services.story_args import Question


class RecipeVersion:
    """A recipe as it stands beside the tools, agents and prompts of the project."""

    def __init__(self, recipe: library.Recipe, definition_cache: library.Library, dialect: ports.Driver) -> None:
        self.recipe = recipe
        """The recipe."""
        self.definition_cache = definition_cache
        """What it stands beside."""
        self._dialect = dialect

    @functools.cached_property
    def flaws(self) -> tuple[errors.Flaw, ...]:
        """Return everything wrong with it that shows only beside the shelf."""
        try:
            with recipe_texts.looked_at(self.recipe.recipe_id, self.recipe.dialect):
                return tuple(self._dialect.check(self.recipe, self.definition_cache))
        except errors.InputRefused as error:
            return error.flaws

    def uses(self, args: Mapping[str, plain.Json]) -> tuple[library.Use, ...]:
        """Return what a run needs to be able to ask its agents."""
        if self.recipe.speaks_through is not None:
            return self._uses(args)
        return self._same_uses

    def prepare(self) -> None:
        """Make now what all runs of it have in common.

        Raises:
            errors.RecipeInvalid: `dialect_fault`.
        """
        with recipe_texts.looked_at(self.recipe.recipe_id, self.recipe.dialect):
            _ = self._encoded, self._validator

    def fit(
        self, args: Mapping[str, plain.Json], questions: Mapping[str, Question] | None = None
    ) -> dict[str, plain.Json]:
        """Return the arguments with the recipe's defaults filled in.

        Raises:
            errors.ArgsInvalid, errors.RecipeInvalid: as `arguments.fit`.
        """
        return arguments.fit(args, self.recipe, self._validator, questions)

    def frozen(self) -> dict[str, plain.Json]:
        """Return the fields of a run's start that the recipe decides, each time as values that nobody else has."""
        fields: dict[str, plain.Json] = json.loads(self._encoded)
        return fields

    @functools.cached_property
    def _same_uses(self) -> tuple[library.Use, ...]:
        return self._uses({})

    def _uses(self, args: Mapping[str, plain.Json]) -> tuple[library.Use, ...]:
        if not isinstance(self._dialect, ports.AskingDriver):
            return ()
        with recipe_texts.looked_at(self.recipe.recipe_id, self.recipe.dialect):
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
