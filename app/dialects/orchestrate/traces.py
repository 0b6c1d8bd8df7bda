"""Traces: how a step's command was made, for runs that are debugged (workflow-dsl, debug mode)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from app.dialects.orchestrate import providers, results, variables
from app.domain import operations, plain

_Object: TypeAlias = Mapping[str, plain.Json]

_VALUE_CHARACTERS = 1000


def notes(
    step: _Object,
    scope: variables.Scope,
    command: operations.Command,
    fitting: Mapping[str, Sequence[str]],
    prompt: str,
) -> dict[str, str]:
    """Return the texts of a step's debug logs, by the endings of their names."""
    told = {
        "variables": {name: _value(name, scope) for name in dict.fromkeys(_names(step))},
        "dependencies": {pattern: list(found) for pattern, found in fitting.items()},
        "command": results.shown(command.argv),
        "input_file": step.get("input_file"),
        "output_file": command.output_file,
        "env": sorted(command.env),
        "secrets": list(command.secrets),
    }
    texts = {"debug": json.dumps(told, indent=2, ensure_ascii=False) + "\n"}
    return {**texts, "prompt.txt": prompt} if prompt else texts


def debug(working_dir: str, called: providers.Invocation, output: _Object) -> _Object:
    """Return what the state tells of a command that is debugged."""
    told: dict[str, plain.Json] = {"command": results.shown(called.argv), "cwd": working_dir}
    if called.ignored:
        told["ignored_params"] = list(called.ignored)
    return told | ({"env_count": output["env_count"]} if "env_count" in output else {})


def _value(name: str, scope: variables.Scope) -> plain.Json:
    found = variables.resolved(name, scope)
    return None if isinstance(found, variables.Gap) else variables.written(found)[:_VALUE_CHARACTERS]


def _names(template: plain.Json) -> Iterator[str]:
    match template:
        case str():
            yield from variables.names(template)
        case Mapping():
            for part in template.values():
                yield from _names(part)
        case list() | tuple():
            for part in template:
                yield from _names(part)
