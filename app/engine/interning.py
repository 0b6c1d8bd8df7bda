"""Sharing: one copy of what many runs have frozen alike, since thousands of them may wait at a time."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

from app.domain import plain
from app.domain.runs import RunStart

KEPT_RECIPES = 64
"""Recipes of which a copy is kept for the next run."""

_Frozen: TypeAlias = Mapping[str, plain.Json]


class Interner:
    """Know the recipes of the newest runs."""

    def __init__(self, kept: int = KEPT_RECIPES) -> None:
        self._kept = kept
        self._newest: OrderedDict[str, tuple[_Frozen, _Frozen]] = OrderedDict()

    def shared(self, start: RunStart) -> RunStart:
        """Return the same facts, with the recipe and what is frozen beside it in the copy that other runs have."""
        known = self._newest.get(start.recipe_sha256)
        if known is not None and known == (start.recipe, start.frozen):
            self._newest.move_to_end(start.recipe_sha256)
            return dataclasses.replace(start, recipe=known[0], frozen=known[1])
        self._newest[start.recipe_sha256] = (start.recipe, start.frozen)
        if len(self._newest) > self._kept:
            self._newest.popitem(last=False)
        return start
