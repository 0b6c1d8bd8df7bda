"""Recipes of runs without a recipe file: their ids, wherever they are listed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from app.domain import policies
from app.flows import conference, decomposition, prompt, registry, review

PAGES = Path(__file__).parents[3] / "app" / "ui" / "static" / "js" / "parts" / "orders.js"


def test_the_listed_recipes_are_those_of_the_drivers() -> None:
    """Each listed id is that of the runs which a driver's use case makes."""
    assert {conference.NAME, decomposition.RECIPE_ID, prompt.NAME, review.RECIPE_ID} == registry.RECIPE_IDS


def test_the_pages_know_the_same_recipes() -> None:
    """The pages mark none of these recipes as missing, nor the sign for every recipe."""
    (listed,) = re.findall(r"^const OWN = (\[.*\]);$", PAGES.read_text(encoding="utf-8"), re.MULTILINE)

    assert set(json.loads(listed)) == {policies.ANY, *registry.RECIPE_IDS}
