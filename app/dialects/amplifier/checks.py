"""Checks: compare a recipe with the existing agents and recipes; a run that has begun is not checked again."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from app import errors
from app.dialects.amplifier import agents, commands, declarations, schema, templates, walk
from app.domain import json_schemas, json_text, library, plain, workspace_paths

_Flaws: TypeAlias = Iterator[errors.Flaw]


def flaws(recipe: library.Recipe, registry: library.Library) -> list[errors.Flaw]:
    """Return all flaws of a recipe that its schema does not cover, each with its line."""
    found = [*_of_literals(recipe.document)]
    for place, step in walk.placed(recipe.document):
        found += _of_agent(step, place, registry)
        found += _of_backends(step, place, registry)
        found += _of_recipe(step, place, recipe, registry)
        found += _of_command(step, place)
    return [dataclasses.replace(flaw, line=recipe.line_of(flaw.path)) for flaw in found]


def uses(recipe: library.Recipe, registry: library.Library) -> Iterator[library.Use]:
    """Return the backends through which each step's agent may be asked, and the recipes that steps run."""
    for place, step in walk.placed(recipe.document):
        if "agent" in step and (agent := agents.find(step["agent"], registry.agents)) is not None:
            preferred = tuple(dict.fromkeys(voice.backend for voice in agents.voices(agent.to_json(), step)))
            yield library.BackendUse(path=json_text.json_path((*place, "agent")), backends=preferred)
        elif "recipe" in step:
            params = step.get("context") or {}
            computed = tuple(name for name, value in params.items() if _is_computed(value))
            known = {name: value for name, value in params.items() if name not in computed}
            path = json_text.json_path((*place, "recipe"))
            target = called_recipe(step["recipe"], recipe, registry)
            name = step["recipe"] if target is None else target.recipe_id
            yield library.ChildUse(path=path, recipe_id=name, args=known, computed=computed)


def _is_computed(value: plain.Json) -> bool:
    return "{{" in value if isinstance(value, str) else isinstance(value, (Mapping, list))


def _of_agent(step: plain.Object, place: json_text.Parts, registry: library.Library) -> _Flaws:
    name = step.get("agent")
    if name is not None and agents.find(name, registry.agents) is None:
        known = {called for agent in registry.agents for called in (agent.id, agent.archetype)}
        message = f"there is no agent {name!r:.80}{json_schemas.nearest(name.rsplit(':', 1)[-1], known)}"
        yield json_schemas.flaw((*place, "agent"), "unknown_agent", message)


def _of_backends(step: plain.Object, place: json_text.Parts, registry: library.Library) -> _Flaws:
    known = registry.backends
    if known is None:
        return
    own = (step.get("agent_config") or {}).get("backend")
    for parts, name in (((*place, "provider"), step.get("provider")), ((*place, "agent_config", "backend"), own)):
        if name is not None and name not in known:
            yield json_schemas.flaw(parts, "unknown_backend", _no_backend(name, known))
    preferred = [wanted["provider"] for wanted in step.get("provider_preferences", ())]
    # One existing backend is enough; unknown ones are skipped.
    if preferred and not any(name in known for name in preferred):
        message = f"none of these is a backend; {_no_backend(preferred[0], known)}"
        yield json_schemas.flaw((*place, "provider_preferences"), "unknown_backend", message)


def _no_backend(name: str, known: Mapping[str, object]) -> str:
    return f"there is no backend {name!r:.80}{json_schemas.nearest(name, known)}; backends are in agents.json"


def _of_recipe(step: plain.Object, place: json_text.Parts, recipe: library.Recipe, registry: library.Library) -> _Flaws:
    name = step.get("recipe")
    if name is None:
        return
    target = called_recipe(name, recipe, registry)
    if target is None and is_file(name):
        message = f"there is no valid recipe in the file {name!r:.80}, seen from the folder of this one"
        yield json_schemas.flaw((*place, "recipe"), "unknown_recipe", message)
        return
    if target is None:
        near = json_schemas.nearest(name, registry.recipes)
        yield json_schemas.flaw((*place, "recipe"), "unknown_recipe", f"there is no valid recipe {name!r:.80}{near}")
        return
    params, schema = step.get("context", {}), target.args_schema
    known = schema.get("properties") or {}
    for missing in (arg for arg in schema.get("required") or () if arg not in params):
        yield json_schemas.flaw((*place, "context", missing), "missing_arg", f"{name} needs the argument {missing}")
    if schema.get("additionalProperties", False) is False:
        for arg in (arg for arg in params if arg not in known):
            message = f"{name} has no argument {arg!r:.80}{json_schemas.nearest(arg, known)}"
            yield json_schemas.flaw((*place, "context", arg), "undeclared_arg", message)
    for arg, value in params.items():
        # A value with variables is known only in the run.
        if isinstance(known.get(arg), dict) and not any("{{" in text for _, text in json_text.texts(value)):
            rule = {part: known[arg][part] for part in ("type", "enum") if part in known[arg]}
            yield from json_schemas.flaws(rule, value, (*place, "context", arg))


def _of_command(step: plain.Object, place: json_text.Parts) -> _Flaws:
    command = step.get("command")
    for problem in commands.problems(command) if command is not None else ():
        yield json_schemas.flaw((*place, "command"), problem.code, problem.message)
    cwd = step.get("cwd", "")
    if cwd.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", cwd):
        message = "is absolute; write it relative to the workspace, as in build/out, or start the run in that folder"
        yield json_schemas.flaw((*place, "cwd"), "absolute_cwd", message)
    elif (why := _why_outside(cwd)) is not None:
        yield json_schemas.flaw((*place, "cwd"), "absolute_cwd", f"is not a path inside the workspace: {why}")


def _why_outside(cwd: str) -> str | None:
    path = "".join(piece if name is None else "x" for piece, name in templates.split(cwd))
    return workspace_paths.why_outside(path) or workspace_paths.why_reserved(workspace_paths.parts_of(path))


def _of_literals(document: plain.Object) -> _Flaws:
    """Return paths to missing parts of context values that neither a step nor an argument can replace."""
    version = document.get("schema", schema.FIRST)
    declared = document.get("args_schema", {}).get("properties", {})
    known = declarations.values(document.get("context", {}), version)
    # A run's arguments are meant to replace an empty object or list.
    known = {name: value for name, value in known.items() if value not in (None, "", {}, []) and name not in declared}
    hidden = walk.made(document) | walk.looped(document)
    for spot in walk.spots(document):
        if isinstance(spot, walk.Question):
            kind, holder = "approval", spot.approval
        else:
            kind, holder = "step", spot.step
        for field in (field.name for field in schema.KINDS[kind] if field.filled and field.name in holder):
            for place, text in json_text.texts(holder[field], (*spot.place, field)):
                for name in dict.fromkeys(templates.names(text)):
                    root, _, path = name.partition(".")
                    if path and root in known and root not in hidden:
                        yield from _of_path(name, known, place)


def _of_path(name: str, known: plain.Object, place: json_text.Parts) -> _Flaws:
    try:
        templates.Scope(own=dict(known)).find(name)
    except templates.Undefined as gap:
        message = f"{{{{{name:.80}}}}} leads nowhere: {gap.reason}, which is its value in context"
        yield json_schemas.flaw(place, "undefined_variable", message)


_SUFFIXES = (".yaml", ".yml")


def is_file(name: str) -> bool:
    """Return whether a name of a recipe is that of its file."""
    return "/" in name or name.endswith(_SUFFIXES)


def called_recipe(name: str, recipe: library.Recipe, registry: library.Library) -> library.Recipe | None:
    """Return the recipe that a step names, or None.

    A recipe without a file is treated as if it were in the folder of any recipe with such a file.
    """
    if not is_file(name):
        return recipe if name == recipe.recipe_id else registry.recipes.get(name)
    if recipe.path:
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(recipe.path), name))
        fitting = [one for one in registry.recipes.values() if one.path == wanted]
    else:
        ending = "/" + posixpath.normpath(name).lstrip("./")
        fitting = [one for one in registry.recipes.values() if one.path.endswith(ending)]
    # If two files match, the choice must not depend on chance.
    return fitting[0] if len(fitting) == 1 else None


def files(recipe: library.Recipe, registry: library.Library) -> dict[str, str]:
    """Return the ids of the recipes that steps name by their files."""
    named = {step["recipe"] for _, step in walk.placed(recipe.document) if is_file(step.get("recipe", ""))}
    found = {name: called_recipe(name, recipe, registry) for name in sorted(named)}
    return {name: one.recipe_id for name, one in found.items() if one is not None}
