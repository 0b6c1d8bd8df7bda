"""Small workflows for the tests of the dialect orchestrate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app import errors
from app.dialects.orchestrate import parse, variables
from app.domain import library

ROOT = Path(__file__).resolve().parents[4]

PROVIDERS = {"echo": {"command": ["echo", "${PROMPT}"]}, "cat": {"command": ["cat"], "input_mode": "stdin"}}


def workflow(*steps: Any, version: str = "1.3", **more: Any) -> dict[str, Any]:
    """Return a workflow of the newest version."""
    return {"version": version, "providers": PROVIDERS, "steps": list(steps), **more}


def step(name: str = "A", **more: Any) -> dict[str, Any]:
    """Return a step, which runs a command unless its fields say otherwise."""
    forms = ("provider", "command", "wait_for", "for_each")
    return {"name": name, **({} if any(form in more for form in forms) else {"command": ["true"]}), **more}


def loop(name: str, *steps: Any, **more: Any) -> dict[str, Any]:
    """Return a step with a loop, by default over two items."""
    items = {} if "items" in more or "items_from" in more else {"items": ["x", "y"]}
    return {"name": name, "for_each": {**items, **more, "steps": list(steps)}}


def parsed(document: Any) -> library.Recipe:
    """Parse a workflow, given as a value; JSON is YAML."""
    return parse.parse(document if isinstance(document, str) else json.dumps(document), "file")


def flaws(document: Any) -> set[tuple[str, str]]:
    """Return path and code of every flaw of a workflow."""
    return {(flaw.path, flaw.code) for flaw in all_flaws(document)}


def all_flaws(document: Any) -> tuple[errors.Flaw, ...]:
    """Return every flaw of a workflow."""
    try:
        parsed(document)
    except errors.RecipeInvalid as error:
        return error.flaws
    return ()


def scope(**more: Any) -> variables.Scope:
    """Return the scope of variables of a run that has just begun."""
    run = {"id": "20260102T030405Z-abc123", "root": ".orchestrate/runs/x", "timestamp_utc": "20260102T030405Z"}
    return variables.Scope(run=run, **more)
