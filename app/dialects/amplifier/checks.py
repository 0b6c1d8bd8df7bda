"""
Checks: what is wrong with a recipe beside the agents and recipes that there are, and what a run of it would come to.

A run that has begun goes on without them: what it was begun with was good enough then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from app import errors
from app.dialects.amplifier import agents, commands, walk
from app.engine import json_schemas, json_text, library, plain

_Object: TypeAlias = Mapping[str, plain.Json]
_Flaws: TypeAlias = Iterator[errors.Flaw]


def flaws(recipe: library.Recipe, registry: library.Library) -> list[errors.Flaw]:
    """
    Return everything that is wrong with a recipe beside its text, each with its line.
    """
    found = list[errors.Flaw]()
    for place, step in walk.placed(recipe.document):
        found += _of_agent(step, place, registry)
        found += _of_recipe(step, place, recipe, registry)
        found += _of_command(step, place)
    return [dataclasses.replace(flaw, line=recipe.line_of(flaw.path)) for flaw in found]


def uses(recipe: library.Recipe, registry: library.Library) -> Iterator[library.Use]:
    """
    Return the backends that each step's agent may be asked through, and the recipes that steps run.
    """
    for place, step in walk.placed(recipe.document):
        if "agent" in step and (agent := agents.find(step["agent"], registry.agents)) is not None:
            preferred = tuple(dict.fromkeys(voice.backend for voice in agents.voices(agent.to_json(), step)))
            yield library.BackendUse(path=json_text.json_path((*place, "agent")), backends=preferred)
        elif "recipe" in step:
            given = step.get("context") or {}
            computed = tuple(name for name, value in given.items() if _is_computed(value))
            known = {name: value for name, value in given.items() if name not in computed}
            path = json_text.json_path((*place, "recipe"))
            yield library.ChildUse(path=path, recipe_id=step["recipe"], args=known, computed=computed)


def _is_computed(value: plain.Json) -> bool:
    return "{{" in value if isinstance(value, str) else isinstance(value, (Mapping, list))


def _of_agent(step: _Object, place: json_text.Parts, registry: library.Library) -> _Flaws:
    name = step.get("agent")
    if name is not None and agents.find(name, registry.agents) is None:
        known = {called for agent in registry.agents for called in (agent.id, agent.archetype)}
        message = f"there is no agent {name!r:.80}{json_schemas.nearest(name.rsplit(':', 1)[-1], known)}"
        yield json_schemas.flaw((*place, "agent"), "unknown_agent", message)


def _of_recipe(step: _Object, place: json_text.Parts, recipe: library.Recipe, registry: library.Library) -> _Flaws:
    name = step.get("recipe")
    if name is None:
        return
    target = recipe if name == recipe.recipe_id else registry.recipes.get(name)
    if target is None:
        near = json_schemas.nearest(name, registry.recipes)
        yield json_schemas.flaw((*place, "recipe"), "unknown_recipe", f"there is no recipe {name!r:.80}{near}")
        return
    given, schema = step.get("context", {}), target.args_schema
    known = schema.get("properties") or {}
    for missing in (arg for arg in schema.get("required") or () if arg not in given):
        yield json_schemas.flaw((*place, "context", missing), "missing_arg", f"{name} needs the argument {missing}")
    if schema.get("additionalProperties", False) is False:
        for arg in (arg for arg in given if arg not in known):
            message = f"{name} has no argument {arg!r:.80}{json_schemas.nearest(arg, known)}"
            yield json_schemas.flaw((*place, "context", arg), "undeclared_arg", message)


def _of_command(step: _Object, place: json_text.Parts) -> _Flaws:
    command = step.get("command")
    for problem in commands.problems(command) if command is not None else ():
        yield json_schemas.flaw((*place, "command"), problem.code, problem.message)
