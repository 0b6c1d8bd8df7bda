"""
Small recipes for the tests of the dialect amplifier.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app import errors
from app.dialects.amplifier import parse
from app.engine import library

ROOT = Path(__file__).resolve().parents[4]


def recipe(*steps: Any, **more: Any) -> dict[str, Any]:
    """
    Return a recipe of the first version.
    """
    made = {"name": "small", "description": "A small one.", "version": "1.0.0", "steps": list(steps), **more}
    return {name: value for name, value in made.items() if value is not None}


def later(*steps: Any, **more: Any) -> dict[str, Any]:
    """
    Return a recipe of the newest version.
    """
    return recipe(*steps, **{"schema": "1.7", **more})


def staged(*stages: Any, **more: Any) -> dict[str, Any]:
    """
    Return a recipe of stages.
    """
    return later(**{"steps": None, "stages": list(stages), **more})


def step(id: str = "a", **more: Any) -> dict[str, Any]:
    """
    Return a step, which asks an agent unless it says otherwise.
    """
    other = "type" in more or "substeps" in more
    return {"id": id, **({} if other else {"agent": "helper", "prompt": "Do it."}), **more}


def parsed(document: Any) -> library.Recipe:
    """
    Parse a recipe that is given as a value, or as a text; JSON is YAML.
    """
    return parse.parse(document if isinstance(document, str) else json.dumps(document))


def told(document: Any) -> tuple[errors.Flaw, ...]:
    """
    Return everything that is wrong with a recipe.
    """
    try:
        parsed(document)
    except errors.RecipeInvalid as error:
        return error.flaws
    return ()


def flaws(document: Any) -> set[tuple[str, str]]:
    """
    Return path and code of everything that is wrong with a recipe.
    """
    return {(flaw.path, flaw.code) for flaw in told(document)}
