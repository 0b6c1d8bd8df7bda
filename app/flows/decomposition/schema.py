"""Schemas: the argument, the limits of prompt and reply by the size of the agent, and the schema of
the reply.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.domain import library, plain, task_outputs
from app.flows.decomposition import kinds

INTENT = "intent"  # Argument that holds the intent.
INTENT_CHARACTERS = 20_000  # Longest intent.
DESCRIPTION_CHARACTERS = 4_000  # Longest description of a task.
DOD_CHARACTERS = 2_000  # Longest definition of done.
QUESTION_CHARACTERS = 2_000  # Longest scoping question.
HIGHEST_ID = 9_999  # Highest number that the chief may give a task.
SMALL_CHARACTERS = 100  # Longest description by a T1 agent.

_MOST_ARGS = 50
_MOST_DEPS = 200

ARGS: plain.Object = {
    "type": "object",
    "additionalProperties": False,
    "required": [INTENT],
    "properties": {
        INTENT: {
            "type": "string",
            "minLength": 1,
            "maxLength": INTENT_CHARACTERS,
            "pattern": r"\S",
            "description": "The intent: what the plan as a whole should achieve.",
        }
    },
}
"""JSON Schema of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Limits of a prompt and reply for an agent of a tier (execution-modes, tier-based step sizing)."""

    tasks: int  # Most tasks of a plan.
    files: int  # Most files in a prompt.
    kinds: int  # Most kinds of tasks in a prompt; those that the intent names come first.
    phrases: int  # Most phrases of each kind.
    whole: bool  # Whether a prompt describes arguments, and asks for arguments and questions.
    tokens: int  # Longest reply.
    repeated_characters: int  # Longest part of a faulty reply in the correction prompt.
    flaws: int  # Most flaws in one correction.


SIZES: Mapping[library.Tier, Size] = {
    "t1": Size(tasks=8, files=0, kinds=12, phrases=1, whole=False, tokens=2_000, repeated_characters=1_500, flaws=5),
    "t3": Size(tasks=20, files=12, kinds=40, phrases=2, whole=True, tokens=8_000, repeated_characters=20_000, flaws=30),
    "t5": Size(
        tasks=60, files=30, kinds=100, phrases=4, whole=True, tokens=16_000, repeated_characters=60_000, flaws=100
    ),
}
"""Sizes by tier."""


@functools.cache
def checked(most_tasks: int, *, whole: bool = True) -> plain.Object:
    """Return the schema for checking every reply.

    Args:
        whole: Whether each task must have dependencies and a definition of done.
    """
    task = {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "description", *(["deps", "dod"] if whole else [])],
        "properties": {
            "id": _id(),
            "description": _text(DESCRIPTION_CHARACTERS) | {"minLength": 1, "pattern": r"\S"},
            "deps": {"type": "array", "items": _id(), "maxItems": _MOST_DEPS},
            "dod": _text(DOD_CHARACTERS) | ({"minLength": 1, "pattern": r"\S"} if whole else {}),
            "args": {"type": "object", "maxProperties": _MOST_ARGS},
            "scoping_question": _text(QUESTION_CHARACTERS) | {"type": ["string", "null"]},
        },
    }
    return _tasks(task, most_tasks)


def form(
    size: Size, arguments: Iterable[plain.Object], *, dod: bool = True, outputs: bool = True
) -> dict[str, plain.Json]:
    """Return the schema for backends that can enforce one on the chief's reply.

    Args:
        arguments: Arguments of the kinds of tasks in the prompt.
        dod: Whether each task must have a definition of done.
        outputs: Whether arguments may be outputs of earlier tasks.
    """
    named = {name: _or_output(rule) if outputs else rule for name, rule in _by_name(arguments).items()}
    task = {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "description", "deps", "dod", "args", "scoping_question"],
        "properties": {
            "id": _id(),
            "description": _text(DESCRIPTION_CHARACTERS),
            "deps": {"type": "array", "items": _id()},
            # Some services enforce this limit; the reply is checked in any case.
            "dod": _text(DOD_CHARACTERS) | ({"minLength": 1} if dod else {}),
            "args": {"type": "object", "additionalProperties": False, "properties": named},
            "scoping_question": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }
    return _tasks(task, size.tasks)


def _by_name(arguments: Iterable[plain.Object]) -> dict[str, plain.Json]:
    # If two kinds use the same name in different meanings, any value is valid.
    named: dict[str, plain.Json] = {}
    for argument in arguments:
        rule = plain.plain(argument["form"])
        named[argument["name"]] = rule if named.get(argument["name"], rule) == rule else kinds.ANY_FORM
    return named


def _or_output(rule: plain.Json) -> plain.Json:
    if isinstance(rule, dict) and rule.get("type") == "array":
        rule = rule | {"items": _or_output(rule["items"])}
    return {"anyOf": [rule, *(_output(field) for field in (task_outputs.OUTPUT, task_outputs.PATH))]}


def _output(field: str) -> dict[str, plain.Json]:
    names = {task_outputs.NAME: _id(), field: _text(task_outputs.MAX_CHARACTERS)}
    return {"type": "object", "additionalProperties": False, "required": [*names], "properties": names}


def _tasks(task: plain.Object, most: int) -> dict[str, plain.Json]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["tasks"],
        "properties": {"tasks": {"type": "array", "minItems": 1, "maxItems": most, "items": task}},
    }


def _id() -> dict[str, plain.Json]:
    return {"type": "integer", "minimum": 1, "maximum": HIGHEST_ID}


def _text(most: int) -> dict[str, plain.Json]:
    return {"type": "string", "maxLength": most}
