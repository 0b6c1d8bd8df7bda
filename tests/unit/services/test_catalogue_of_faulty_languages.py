"""A fault in a dialect's code is reported for the one recipe that met it, and all others can be used."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from app import clock, errors
from app.bootstrap import catalogue as bootstrap_catalogue
from app.dialects import registry
from app.dialects.agent_recipes import AgentRecipes
from app.dialects.control_room import ControlRoom
from app.services import recipes
from tests.unit.services import small_recipes

UNLUCKY = "unlucky"
"""The recipe that the faulty dialects cannot read."""


class FaultyControlRoom(ControlRoom):
    """The dialect with a fault in one place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def parse(self, source, stem):
        """Fail at the recipe, if the fault is here."""
        self._stumble("parse", source)
        return super().parse(source, stem)

    def check(self, recipe, library):
        """Fail at the recipe, if the fault is here."""
        self._stumble("check", recipe.recipe_id)
        return super().check(recipe, library)

    def flaws(self, source, stem, library):
        """Fail at the recipe, if the fault is here."""
        self._stumble("flaws", source)
        return super().flaws(source, stem, library)

    def freeze(self, recipe, library):
        """Fail at the recipe, if the fault is here."""
        self._stumble("freeze", recipe.recipe_id)
        return super().freeze(recipe, library)

    def _stumble(self, place, text):
        if place == self._place and UNLUCKY in text:
            raise KeyError("lost")


class FaultyAgentRecipes(AgentRecipes):
    """The dialect with a fault in composing parts."""

    def compose(self, source, read):
        """Fail at the recipe."""
        if UNLUCKY in source:
            raise IndexError("lost")
        return super().compose(source, read)


def _catalogue(root, **changed):
    dialects = {**registry.DIALECTS, **changed}
    return recipes.Catalogue(
        layers=bootstrap_catalogue.recipe_layers(root / "bundled", root, dialects),
        dialects=dialects,
        library=lambda: small_recipes.LIBRARY,
        readiness=small_recipes.READY,
        clock=clock.SystemClock(),
    )


@pytest.mark.parametrize("place", ["parse", "check", "flaws", "freeze"])
def test_a_fault_is_listed_at_its_recipe_and_logged_whole(tmp_path, caplog, place):
    """A recipe that meets a fault is listed with `dialect_fault`, other recipes are valid, and the log has it."""
    patterns: dict[str, Any] = {"flaws": 7, "freeze": ["p" * 500] * 100}
    broken = {"task_patterns": patterns[place]} if place in patterns else {}
    small_recipes.write(tmp_path / "recipes", "bad.json", small_recipes.recipe(UNLUCKY, **broken))
    small_recipes.write(tmp_path / "recipes", "good.json", small_recipes.recipe("lucky"))
    catalogue = _catalogue(tmp_path, control_room=FaultyControlRoom(place))
    with caplog.at_level(logging.ERROR, "app.services.recipe_files"):
        told = {entry.recipe_id: [flaw.code for flaw in entry.flaws] for entry in catalogue.all()}

    assert told == {"lucky": [], UNLUCKY: ["dialect_fault"]}
    assert catalogue.get("lucky").recipe.recipe_id == "lucky"
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError] * len(caplog.records)
    assert caplog.records[0].dialect == "control_room"


def test_a_recipe_that_met_a_fault_cannot_be_started(tmp_path):
    """A start of a recipe that met a fault is refused with `dialect_fault`."""
    small_recipes.write(tmp_path / "recipes", "bad.json", small_recipes.recipe(UNLUCKY))
    with pytest.raises(errors.RecipeInvalid) as refused:
        _catalogue(tmp_path, control_room=FaultyControlRoom("check")).get(UNLUCKY)

    assert [flaw.code for flaw in refused.value.flaws] == ["dialect_fault"]


def test_a_fault_while_parts_are_put_in_is_listed_too(tmp_path):
    """A fault while parts are composed is listed for its recipe, and other recipes are valid."""
    steps = {"one": {"prompt": "p", "outcomes": ["ok"], "onOutcome": {"ok": {"action": "exit", "reason": "r"}}}}
    machine = {"label": "l", "description": "d", "initialStep": "one", "steps": steps, "guardrails": {}}
    for name in (UNLUCKY, "lucky"):
        small_recipes.write(tmp_path / "recipes" / "agent_recipes", f"{name}.json", {"id": name, **machine})
    entries = _catalogue(tmp_path, agent_recipes=FaultyAgentRecipes()).all()

    told = {entry.recipe_id: [flaw.code for flaw in entry.flaws] for entry in entries}
    assert told[UNLUCKY] == ["dialect_fault"]
    assert told["lucky"] == []


def test_a_text_that_meets_a_fault_has_a_dialect_fault(tmp_path):
    """An examined text that meets a fault has the flaw `dialect_fault`."""
    examined = _catalogue(tmp_path, control_room=FaultyControlRoom("parse")).examine(
        json.dumps(small_recipes.recipe(UNLUCKY)), "control_room"
    )

    assert examined.recipe_version is None
    assert [flaw.code for flaw in examined.flaws] == ["dialect_fault"]
